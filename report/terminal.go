package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

const (
	shownText  = 60 // characters of a name in a table
	shownTasks = 20 // rows of a table
)

// WriteText writes a summary for a terminal. Control characters in it are escaped.
func WriteText(w io.Writer, r Report) error {
	p := printer{tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)}
	for i, run := range r.Runs {
		if i > 0 {
			p.line()
		}
		title := Visible(run.Title(), shownText)
		if words := run.Subtitle(); words != "" {
			title += " (" + Visible(words, 200) + ")"
		}
		p.section(title, run.section())
	}
	for _, c := range r.Comparisons {
		_ = p.w.Flush() // the error comes back below
		p.line()
		p.section(fmt.Sprintf("%s (B) against %s (A)", Visible(r.Runs[c.B].Title(), shownText), Visible(r.Runs[c.A].Title(), shownText)), c.section())
	}
	return p.w.Flush()
}

// A printer writes lines of cells. Errors are returned by w.Flush.
type printer struct{ w *tabwriter.Writer }

func (p printer) line(cells ...any) {
	words := make([]string, len(cells))
	for i, c := range cells {
		most := 400
		if _, ok := c.(name); ok {
			most = shownText
		}
		words[i] = Visible(fmt.Sprint(c), most)
	}
	_, _ = fmt.Fprintln(p.w, strings.Join(words, "\t"))
}

func (p printer) section(title string, s section) {
	p.line(title)
	p.line()
	for _, f := range s.facts {
		p.line(f.what, fmt.Sprint(f.says))
	}
	for _, t := range slices.Concat(s.tables, s.details) {
		if len(t.rows) == 0 {
			continue
		}
		_ = p.w.Flush() // each table has its own column widths
		p.line()
		_, _ = fmt.Fprintln(p.w, strings.ToUpper(strings.Join(t.heads, "\t")))
		for _, row := range t.rows[:min(len(t.rows), shownTasks)] {
			p.line(row...)
		}
		if more := len(t.rows) - shownTasks; more > 0 {
			p.line(fmt.Sprintf("and %d more (--json has all)", more))
		}
	}
}
