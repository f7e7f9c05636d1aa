package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

const (
	shownText  = 60  // characters of a name in a table
	shownWords = 160 // characters of a message in a table
	shownTasks = 20  // rows of a table
)

// WriteText writes a summary for a terminal. Control characters in it are escaped.
func WriteText(w io.Writer, r Report) error {
	p := printer{tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)}
	if len(r.Runs) > 1 {
		p.table(r.leaders())
		_ = p.w.Flush() // the error comes back below
		p.line()
	}
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
		p.section(r.versus(c, func(s string) string { return Visible(s, shownText) }), c.section())
	}
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
		shown[i] = Visible(fmt.Sprint(c), most)
	}
	_, _ = fmt.Fprintln(p.w, strings.Join(shown, "\t"))
}

func (p printer) section(title string, s section) {
	p.line(title)
	p.line()
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
		p.table(t)
	}
}

// table writes a table's first rows; nothing if it has none.
func (p printer) table(t table) {
	if len(t.rows) == 0 {
		return
	}
	_, _ = fmt.Fprintln(p.w, strings.ToUpper(strings.Join(t.heads, "\t")))
	for _, row := range t.rows[:min(len(t.rows), shownTasks)] {
		p.line(row...)
	}
	if more := len(t.rows) - shownTasks; more > 0 {
		p.line(fmt.Sprintf("and %d more (--json has all)", more))
	}
}
