// Package progress shows the events of runs while they go on: as lines, on a terminal with a bar below the lines, or as
// JSON.
package progress

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/securebench/sbench/run"
)

// A Format says how progress is shown.
type Format string

// The formats.
const (
	Auto  Format = "auto" // lines; with a bar below them if the output is a terminal
	Plain Format = "plain"
	JSON  Format = "json"
	None  Format = "none"
)

// A Display shows the progress of one run after another. All other text for its output has to be written to the Display:
// the text appears above the bar or, as JSON, in events of its own. The methods may be called concurrently.
type Display struct {
	out  io.Writer
	bar  *bar        // nil for none
	json *jsonEvents // nil for lines
}

// New returns a Display in front of out.
func New(out io.Writer, format Format) *Display {
	d := &Display{out: out}
	switch {
	case format == JSON:
		d.json = &jsonEvents{enc: json.NewEncoder(out)}
		d.out = d.json
	case format == Auto && isTerminal(out, os.Getenv):
		d.bar = &bar{out: out.(*os.File)}
		d.out = d.bar
	}
	return d
}

// Show returns the function that shows the events of a run. It ignores write errors, which must not stop a run. JSON has
// all events. Lines have the output of agents, and the commands in sandboxes, only if also has their kind.
func (d *Display) Show(also ...run.Kind) func(run.Event) {
	if d.json != nil {
		return d.json.add
	}
	p := &plain{out: d.out}
	return func(e run.Event) {
		if d.bar != nil {
			d.bar.add(e)
		}
		if slices.Contains(also, e.Kind) || e.Kind != run.AgentOutput && e.Kind != run.SandboxCommand && e.Kind != run.SandboxResult {
			p.add(e)
		}
	}
}

// Write writes text to the output.
func (d *Display) Write(text []byte) (int, error) { return d.out.Write(text) }

// Close ends the bar, so that results and errors can be printed. Text can still be written.
func (d *Display) Close() {
	if d.bar != nil {
		d.bar.close()
	}
}

// jsonEvents writes events as JSON, one per line. Each line of text written to it becomes an
// event of the kind message, so that the stream holds nothing else.
type jsonEvents struct {
	mu      sync.Mutex
	enc     *json.Encoder
	partial []byte // an incomplete line
}

func (j *jsonEvents) add(e run.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.enc.Encode(e)
}

// Write turns the whole lines of p into events. An incomplete line waits for its rest.
func (j *jsonEvents) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.partial = append(j.partial, p...)
	for {
		line, rest, whole := bytes.Cut(j.partial, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		if err := j.enc.Encode(run.Event{Time: time.Now(), Kind: run.Message, Detail: string(line)}); err != nil {
			return 0, err
		}
		j.partial = rest
	}
}
