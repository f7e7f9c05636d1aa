package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run/record"
)

const (
	markdownRows = 10 // of each table
	markdownText = 80 // characters of a name
)

// WriteMarkdown writes a summary for a comment. In it, names are no markup, links or mentions.
func WriteMarkdown(w io.Writer, r report.Report) error {
	var b strings.Builder
	if len(r.Runs) > 1 {
		markdownTable(&b, leaders(r))
		b.WriteByte('\n')
	}
	for _, run := range r.Runs {
		fmt.Fprintf(&b, "### %s: %s\n\n", literal(run.Title(), markdownText), run.Accuracy)
		if words := run.Subtitle(); words != "" {
			b.WriteString(literal(words, 200) + "\n\n")
		}
		markdownSection(&b, ofRun(run))
	}
	for _, c := range r.Comparisons {
		fmt.Fprintf(&b, "### %s\n\n", versus(r, c, func(s string) string { return literal(s, markdownText) }))
		markdownSection(&b, ofComparison(c))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// literal returns a text as a code span, in which nothing is markup, a mention or a link. It
// escapes characters that would end the span or a table's cell.
func literal(s string, most int) string {
	if s == "" {
		return "–"
	}
	return "`" + strings.NewReplacer("`", `\x60`, "|", `\x7c`).Replace(report.Visible(s, most)) + "`"
}

func cell(c any) string {
	switch c := c.(type) {
	case name:
		return literal(string(c), markdownText)
	case words:
		return literal(string(c), shownWords)
	}
	return fmt.Sprint(c)
}

func markdownSection(b *strings.Builder, s section) {
	for _, w := range s.warnings {
		fmt.Fprintf(b, "- **%s**: %s\n", w.Kind, literal(w.Text, 400))
	}
	for _, f := range s.facts {
		b.WriteString("- " + strings.TrimPrefix(f.what+": ", ": ") + f.says + "\n")
	}
	for _, t := range s.tables {
		markdownTable(b, t)
	}
	if len(s.details) > 0 {
		b.WriteString("\n<details><summary>Attempts that did not pass, times, tokens</summary>\n")
		for _, t := range s.details {
			markdownTable(b, t)
		}
		b.WriteString("\n</details>\n")
	}
	b.WriteByte('\n')
}

// markdownTable writes a table with the first rows, unless there are none.
func markdownTable(b *strings.Builder, t table) {
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n| %s |\n|", strings.Join(t.heads, " | "))
	for _, c := range t.rows[0] {
		switch c.(type) {
		case name, words, record.Status:
			b.WriteString("---|")
		default:
			b.WriteString("---:|")
		}
	}
	b.WriteByte('\n')
	for _, row := range t.rows[:min(len(t.rows), markdownRows)] {
		for _, c := range row {
			b.WriteString("| " + cell(c) + " ")
		}
		b.WriteString("|\n")
	}
	if more := len(t.rows) - markdownRows; more > 0 {
		fmt.Fprintf(b, "| and %d more |%s\n", more, strings.Repeat(" |", len(t.heads)-1))
	}
}
