package run

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/securebench/sbench/run/record"
)

// maxRows bounds the table of verdicts: longer ones are read from the records.
const maxRows = 200

// A Table collects verdicts for people. The zero Table is ready.
type Table struct {
	rows    []row
	more    int
	started time.Time
}

type row struct {
	task, reason string
	status       record.Status
	took         time.Duration
}

// Add takes what concerns it from an event.
func (t *Table) Add(e Event) {
	switch {
	case e.Kind == TaskStart:
		t.started = e.Time
	case e.Kind == TaskDone && len(t.rows) == maxRows:
		t.more++
	case e.Kind == TaskDone:
		t.rows = append(t.rows, row{Printable(e.Task), e.Reason, e.Status, e.Time.Sub(t.started)})
	}
}

// Write prints the table.
func (t *Table) Write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "\nTASK\tVERDICT\tTIME\tREASON") // an error comes back from Flush
	for _, r := range t.rows {
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", r.task, r.status, r.took.Round(10*time.Millisecond), r.reason)
	}
	if t.more > 0 {
		_, _ = fmt.Fprintf(tw, "and %d more, in the records\n", t.more)
	}
	return tw.Flush()
}
