package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	markdownRows = 10 // of each table
	markdownText = 80 // characters of a name
)

// WriteMarkdown writes a summary that fits into a comment. Names from records have no
// effect in it: no markup, no links, no mentions.
func WriteMarkdown(w io.Writer, r Report) error {
	var b strings.Builder
	for _, run := range r.Runs {
		markdownRun(&b, run)
	}
	for _, c := range r.Comparisons {
		markdownComparison(&b, r, c)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// literal returns a text as a code span, in which nothing is markup, a mention or a
// link. Characters that would end the span or a table's cell are escaped.
func literal(s string) string {
	if s == "" {
		return "–"
	}
	return "`" + strings.NewReplacer("`", `\x60`, "|", `\x7c`).Replace(Visible(s, markdownText)) + "`"
}

func row(b *strings.Builder, cells ...any) {
	for _, c := range cells {
		fmt.Fprintf(b, "| %v ", c)
	}
	b.WriteString("|\n")
}

func head(b *strings.Builder, cells ...any) {
	b.WriteByte('\n')
	row(b, cells...)
	for i := range cells {
		b.WriteString(map[bool]string{true: "|---", false: "|---:"}[i == 0])
	}
	b.WriteString("|\n")
}

// markdownTable writes a table with the first items of a list.
func markdownTable[T any](b *strings.Builder, heads []any, list []T, cells func(T) []any) {
	head(b, heads...)
	for _, item := range list[:min(len(list), markdownRows)] {
		row(b, cells(item)...)
	}
	if more := len(list) - markdownRows; more > 0 {
		row(b, append([]any{fmt.Sprintf("and %d more", more)}, slices.Repeat([]any{""}, len(heads)-1)...)...)
	}
}

func markdownRun(b *strings.Builder, r Run) {
	c := r.Counts
	fmt.Fprintf(b, "### %s: %s\n\n", literal(r.Title()), Percent(r.Accuracy.Value))
	if words := r.Subtitle(); words != "" {
		b.WriteString(literal(words) + ". ")
	}
	fmt.Fprintf(b, "%d of %d scored attempts passed, 95 %% interval %s.", c.Passed, c.Scored(), Between(r.Accuracy.Wilson))
	if r.Accuracy.Clustered != nil {
		fmt.Fprintf(b, " Over tasks, which have several attempts: %s.", Between(r.Accuracy.Clustered))
	}
	if c.Errors+c.Pending > 0 {
		fmt.Fprintf(b, " Not scored: %d pending, %s.", c.Pending, count(c.Errors, "error"))
	}
	if r.Retries.Attempts > 0 {
		fmt.Fprintf(b, " %d passed only after a retry.", r.Retries.Passed)
	}
	if len(r.Problems) > 0 {
		fmt.Fprintf(b, " **%s in the records**, the first: %s.", count(len(r.Problems), "problem"), literal(r.Problems[0].String()))
	}
	b.WriteByte('\n')
	markdownGroups(b, "family", r.ByFamily)
	if len(r.ByCategory) > 1 {
		markdownGroups(b, "category", r.ByCategory)
	}
	if len(r.PassAtK) > 0 {
		head(b, "k", "pass@k", "pass^k")
		for i, k := range r.PassAtK {
			row(b, k.K, Percent(k.Value), Percent(r.PassAllK[i].Value))
		}
	}
	markdownDetails(b, r)
}

func markdownGroups(b *strings.Builder, title string, list []Group) {
	markdownTable(b, []any{title, "accuracy", "95 % interval", "passed", "failed", "pending", "errors"}, list, func(g Group) []any {
		c := g.Counts
		return []any{literal(NameOr(g.Name)), Percent(g.Accuracy.Value), Between(g.Accuracy.Interval()), c.Passed, c.Failed, c.Pending, c.Errors}
	})
}

// markdownDetails writes a folded section.
func markdownDetails(b *strings.Builder, r Run) {
	b.WriteString("\n<details><summary>Outcomes, times, tokens</summary>\n")
	markdownTable(b, []any{"outcome", "reason", "attempts"}, r.Outcomes, func(o Outcome) []any { return []any{o.Status, literal(o.Reason), o.Count} })
	if measures := r.Distributions.Measures(); len(measures) > 0 {
		markdownTable(b, []any{"measure", "attempts", "10 %", "median", "90 %", "max"}, measures, func(m Measure) []any {
			return []any{m.Name, m.Of.Count, m.Write(m.Of.P10), m.Write(m.Of.P50), m.Write(m.Of.P90), m.Write(m.Of.Max)}
		})
	}
	b.WriteString("\n</details>\n\n")
}

func markdownComparison(b *strings.Builder, r Report, c Comparison) {
	fmt.Fprintf(b, "### %s (B) against %s (A)\n\n", literal(r.Runs[c.B].Title()), literal(r.Runs[c.A].Title()))
	fmt.Fprintf(b, "Tasks compared: %s.", c.Compared())
	if c.Tasks == 0 {
		b.WriteByte('\n')
		return
	}
	fmt.Fprintf(b, " A %s, B %s: **%s**. %d better in B, %d worse, %d the same.", Percent(&c.MeanA), Percent(&c.MeanB), c.Gap(), c.Better, c.Worse, c.Same)
	if c.McNemar != nil {
		fmt.Fprintf(b, " McNemar: %s.", c.McNemar)
	}
	b.WriteByte('\n')
	if len(c.Differ) > 0 {
		markdownTable(b, []any{"task", "A", "B"}, c.Differ, func(d Differs) []any { return []any{literal(d.TaskID), d.InA(), d.InB()} })
	}
}
