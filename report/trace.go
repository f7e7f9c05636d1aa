package report

import (
	"io"
	"slices"
	"strings"

	"github.com/securebench/sbench/harness"
)

// A Step is one step of an agent: a [harness.Step] whose texts may have been cut.
type Step struct {
	Kind   harness.StepKind `json:"kind"` // also stepRaw
	Title  string           `json:"title,omitempty"`
	Text   Text             `json:"text"`
	Output *Text            `json:"output,omitempty"` // of a command or tool; nil: none
	Exit   int              `json:"exit,omitempty"`   // a command's exit code
	Failed bool             `json:"failed,omitempty"` // as the agent reports it
}

// stepRaw is the kind of a line that is not an event.
const stepRaw = "raw"

// size returns the approximate bytes that the step takes.
func (s *Step) size() int {
	n := len(s.Title) + s.Text.Len() + 64
	if s.Output != nil {
		n += s.Output.Len()
	}
	return n
}

// A Trace is the steps of an agent; if there are too many, it lacks those in the middle.
type Trace struct {
	Steps []*Step `json:"steps"`         // never nil
	Cut   int     `json:"cut,omitempty"` // steps that were left out
	At    int     `json:"at,omitempty"`  // index in Steps where they were
}

// A tracer collects the first and the last steps.
type tracer struct {
	Trace
	most  int              // bytes of all steps
	text  int              // bytes of one text
	size  int              // bytes of the steps so far
	calls map[string]*Step // calls without a result so far
}

const (
	maxSteps        = 1000     // of a trace, however small
	maxMessageBytes = 32 << 20 // of a message that comes in pieces
)

// readTrace turns an agent's output into steps with its parser, read. A line that is no event is a raw step.
func readTrace(r io.Reader, read func([]byte) ([]harness.Step, bool), most int) (Trace, error) {
	t := &tracer{Trace: Trace{Steps: []*Step{}}, most: most, text: max(256, most/16), calls: map[string]*Step{}}
	events := &harness.EventReader{Step: t.add, MaxPiece: maxMessageBytes, Read: func(line []byte) ([]harness.Step, bool) {
		steps, ok := read(line)
		if !ok && len(line) > 0 {
			steps = []harness.Step{{Kind: stepRaw, Text: string(line)}}
		}
		return steps, ok
	}}
	_, err := io.Copy(events, r)
	events.End()
	return t.Trace, err
}

func (t *tracer) cutLines(text string) Text { return cutText(strings.TrimRight(text, "\n"), t.text) }

func (t *tracer) add(from harness.Step) {
	if from.Kind == harness.StepResult && t.result(from) {
		return
	}
	s := &Step{Kind: from.Kind, Title: from.Title, Text: t.cutLines(from.Text), Exit: from.Exit, Failed: from.Failed}
	if from.Output != "" {
		s.Output = new(t.cutLines(from.Output))
	}
	if from.Kind == harness.StepResult { // of a call that was not reported
		s.Kind, s.Title = harness.StepTool, "result"
	} else if from.Call != "" {
		t.calls[from.Call] = s
	}
	t.size += s.size()
	if t.At == len(t.Steps) && t.size <= t.most/2 && t.At < maxSteps/2 { // the step is among the first
		t.At++
	}
	t.Steps = append(t.Steps, s)
	t.trim()
}

// result adds a result to the step of its call, which trim may have removed. It reports whether there is one.
func (t *tracer) result(r harness.Step) bool {
	s, ok := t.calls[r.Call]
	if !ok {
		return false
	}
	delete(t.calls, r.Call)
	before, output := s.size(), t.cutLines(r.Output)
	s.Output, s.Failed = &output, r.Failed
	if slices.Contains(t.Steps, s) {
		t.size += s.size() - before
		t.trim()
	}
	return true
}

// trim removes the oldest steps after the first ones, but never the last step.
func (t *tracer) trim() {
	for len(t.Steps)-t.At > 1 && (t.size > t.most || len(t.Steps) > maxSteps) {
		t.size -= t.Steps[t.At].size()
		t.Steps, t.Cut = slices.Delete(t.Steps, t.At, t.At+1), t.Cut+1
	}
}
