package run

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// maxRows bounds the table of verdicts; the records have all of them.
const maxRows = 200

// A Table collects verdicts for people. The zero Table is ready.
type Table struct {
	rows    []string
	more    int
	started map[key]time.Time // of tries under way
}

// Add adds what the table shows of an event.
func (t *Table) Add(e Event) {
	k := key{e.Task, e.Attempt}
	switch e.Kind {
	case TaskStart:
		if t.started == nil {
			t.started = map[key]time.Time{}
		}
		t.started[k] = e.Time
	case TaskDone:
		took := e.Time.Sub(t.started[k])
		delete(t.started, k)
		if len(t.rows) == maxRows {
			t.more++
			return
		}
		name := Printable(e.Task)
		if e.Attempt > 1 {
			name += fmt.Sprintf(" (attempt %d)", e.Attempt)
		}
		t.rows = append(t.rows, fmt.Sprintf("%s\t%s\t%s\t%s\n", name, e.Status, took.Round(10*time.Millisecond), e.Reason))
	}
}

// Write prints the table.
func (t *Table) Write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "\nTASK\tVERDICT\tTIME\tREASON") // an error comes back from Flush
	for _, r := range t.rows {
		_, _ = io.WriteString(tw, r)
	}
	if t.more > 0 {
		_, _ = fmt.Fprintf(tw, "and %d more, in the records\n", t.more)
	}
	return tw.Flush()
}
