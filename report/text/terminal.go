// Package text writes reports as text for terminals, and as Markdown. All text from records is hostile: control
// characters in it are escaped, and in Markdown none of it is markup.
package text

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/securebench/sbench/report"
)

const (
	shownText     = 60  // characters of a name in a table
	shownWords    = 160 // characters of a message in a table
	shownTasks    = 20  // rows of a table
	shownVerdicts = 200 // rows of the table of verdicts
)

// Write writes a summary for a terminal. Control characters in it are escaped.
func Write(w io.Writer, r report.Report) error {
	p := printer{tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)}
	if len(r.Runs) > 1 {
		p.table(leaders(r), shownTasks)
		_ = p.w.Flush() // the error comes back below
		p.line()
	}
	for i, run := range r.Runs {
		if i > 0 {
			p.line()
		}
		title := report.Visible(run.Title(), shownText)
		if words := run.Subtitle(); words != "" {
			title += " (" + report.Visible(words, 200) + ")"
		}
		p.line(title)
		p.line()
		p.section(ofRun(run))
	}
	for _, c := range r.Comparisons {
		_ = p.w.Flush() // the error comes back below
		p.line()
		p.line(versus(r, c, func(s string) string { return report.Visible(s, shownText) }))
		p.line()
		p.section(ofComparison(c))
	}
	return p.w.Flush()
}

// WriteOutcome writes what a run says at its end: the verdicts, in the order in which the attempts began, how
// many attempts passed, and why the other attempts did not. Control characters in it are escaped.
func WriteOutcome(w io.Writer, r report.Run, s *report.Source) error {
	p := printer{tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)}
	began := func(a, b report.Attempt) int { return a.Started.Compare(b.Started) }
	p.table(tableOf([]string{"task", "verdict", "time", "reason", "message"}, slices.SortedStableFunc(slices.Values(s.Attempts), began), func(a report.Attempt) []any {
		task := a.Task
		if a.Number > 1 {
			task += fmt.Sprintf(" (attempt %d)", a.Number)
		}
		return []any{name(task), a.Status, report.Seconds(a.Total), name(cmp.Or(a.Reason, a.Assurance)), words(a.Message)}
	}), shownVerdicts)
	all := ofRun(r)
	all.tables, all.details = all.tables[:1], nil // the causes
	_ = p.w.Flush()                               // the error comes back below
	p.line()
	p.section(all)
	return p.w.Flush()
}

// A printer writes lines of cells. Errors are returned by w.Flush.
type printer struct{ w *tabwriter.Writer }

func (p printer) line(cells ...any) {
	shown := make([]string, len(cells))
	for i, c := range cells {
		most := 400
		switch c.(type) {
		case name:
			most = shownText
		case words:
			most = shownWords
		}
		shown[i] = report.Visible(fmt.Sprint(c), most)
	}
	_, _ = fmt.Fprintln(p.w, strings.Join(shown, "\t"))
}

func (p printer) section(s section) {
	for _, w := range s.warnings {
		p.line("! "+w.Kind, w.Text)
	}
	for _, f := range s.facts {
		p.line(f.what, f.says)
	}
	for _, t := range slices.Concat(s.tables, s.details) {
		_ = p.w.Flush() // each table has its own column widths
		if len(t.rows) > 0 {
			p.line()
		}
		p.table(t, shownTasks)
	}
}

// table writes a table's first rows, at most most; nothing if it has none.
func (p printer) table(t table, most int) {
	if len(t.rows) == 0 {
		return
	}
	_, _ = fmt.Fprintln(p.w, strings.ToUpper(strings.Join(t.heads, "\t")))
	for _, row := range t.rows[:min(len(t.rows), most)] {
		p.line(row...)
	}
	if more := len(t.rows) - most; more > 0 {
		p.line(fmt.Sprintf("and %d more (sbench report --json has all)", more))
	}
}
