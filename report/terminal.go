package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/securebench/sbench/report/stat"
	"github.com/securebench/sbench/run/record"
)

const (
	shownText  = 60 // characters of a name in a table
	shownTasks = 20 // rows of a table of tasks
)

// WriteText writes a summary for a terminal. Control characters in it are escaped.
func WriteText(w io.Writer, r Report) error {
	p := printer{tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)}
	for i, run := range r.Runs {
		if i > 0 {
			p.line()
		}
		p.run(run)
	}
	for _, c := range r.Comparisons {
		p.comparison(r, c)
	}
	return p.w.Flush()
}

// A printer writes lines of cells. Errors are returned by w.Flush.
type printer struct{ w *tabwriter.Writer }

func (p printer) line(cells ...any) {
	words := make([]string, len(cells))
	for i, c := range cells {
		words[i] = Visible(fmt.Sprint(c), 400)
	}
	_, _ = fmt.Fprintln(p.w, strings.Join(words, "\t"))
}

// heads begins a table and ends the one before, so that each has its own column widths.
func (p printer) heads(heads ...any) {
	_ = p.w.Flush()
	p.line()
	p.line(heads...)
}

// printTable prints a table with the first items of a list, unless that is empty.
func printTable[T any](p printer, heads []any, list []T, row func(T) []any) {
	if len(list) == 0 {
		return
	}
	p.heads(heads...)
	for _, item := range list[:min(len(list), shownTasks)] {
		p.line(row(item)...)
	}
	if more := len(list) - shownTasks; more > 0 {
		p.line(fmt.Sprintf("and %d more (--json has all)", more))
	}
}

// Title returns the heading for a run.
func (r Run) Title() string { return cmp.Or(r.RunID, r.Dir) }

// Subtitle returns the run's benchmark, harness and agents, "" if none is known.
func (r Run) Subtitle() string {
	words := r.BenchmarkID
	if r.PackVersion > 0 {
		words += fmt.Sprintf(" version %d", r.PackVersion)
	}
	for _, more := range append([]string{r.Harness.Type}, r.Agents...) {
		if more != "" && !strings.HasPrefix(strings.Join(r.Agents, " "), more+" ") {
			words = strings.TrimPrefix(words+", "+more, ", ")
		}
	}
	return words
}

func (p printer) run(r Run) {
	title := Visible(r.Title(), shownText)
	if words := r.Subtitle(); words != "" {
		title += " (" + Visible(words, 200) + ")"
	}
	p.line(title)
	c := r.Counts
	p.line()
	p.line("accuracy", fmt.Sprintf("%s   95 %% interval %s   %d of %d scored", Percent(r.Accuracy.Value), Between(r.Accuracy.Wilson), c.Passed, c.Scored()))
	if r.Accuracy.Clustered != nil {
		p.line("", "over tasks, which have several attempts: 95 % interval "+Between(r.Accuracy.Clustered))
	}
	p.line("attempts", fmt.Sprintf("%d of %s: %d passed, %d failed, %d pending, %s", c.Attempts, count(c.Tasks, "task"), c.Passed, c.Failed, c.Pending, count(c.Errors, "error")))
	if r.Retries.Attempts > 0 {
		p.line("retried", fmt.Sprintf("%s; %d passed only after a retry", count(r.Retries.Attempts, "attempt"), r.Retries.Passed))
	}
	if r.Spent.Input+r.Spent.Output > 0 {
		p.line("tokens", fmt.Sprintf("%s in (%s cached), %s out (%s reasoning), in all tries", Many(float64(r.Spent.Input)), Many(float64(r.Spent.Cached)), Many(float64(r.Spent.Output)), Many(float64(r.Spent.Reasoning))))
	}
	if len(r.Contrast) > 0 {
		p.line("contrast", fmt.Sprintf("passes borne out by changed tests: %d calibrated, %d uncalibrated, %d without", r.Contrast["calibrated"], r.Contrast["uncalibrated"], r.Contrast["none"]))
	}
	for _, d := range r.Degraded {
		p.line("not enforced", Visible(d, shownText))
	}
	for i, problem := range r.Problems {
		if i == shownTasks {
			p.line("problem", fmt.Sprintf("and %d more", len(r.Problems)-i))
			break
		}
		p.line("problem", problem.String())
	}
	if len(r.PassAtK) > 0 {
		p.heads("K", "PASS@K", "PASS^K", "TASKS")
	}
	for i, k := range r.PassAtK {
		p.line(k.K, Percent(k.Value), Percent(r.PassAllK[i].Value), k.Tasks)
	}
	p.groups("FAMILY", r.ByFamily)
	if len(r.ByCategory) > 1 {
		p.groups("CATEGORY", r.ByCategory)
	}
	printTable(p, []any{"OUTCOME", "REASON", "PHASE", "ATTEMPTS"}, r.Outcomes, func(o Outcome) []any {
		return []any{o.Status, Visible(o.Reason, shownText), Visible(o.Phase, shownText), o.Count}
	})
	printTable(p, []any{"MEASURE", "ATTEMPTS", "MIN", "10 %", "MEDIAN", "90 %", "MAX", "MEAN"}, r.Distributions.Measures(), func(m Measure) []any {
		return []any{m.Name, m.Of.Count, m.Write(m.Of.Min), m.Write(m.Of.P10), m.Write(m.Of.P50), m.Write(m.Of.P90), m.Write(m.Of.Max), m.Write(m.Of.Mean)}
	})
	printTable(p, []any{"SLOWEST", "ATTEMPT", "TIME", "PRODUCER", "VERIFIER", "STATUS"}, r.Slowest, func(s Slow) []any {
		return []any{Visible(s.TaskID, shownText), s.Attempt, Seconds(s.Total), Seconds(s.Producer), Seconds(s.Verifier), s.Status}
	})
}

// String returns the problem with its file and line.
func (p Problem) String() string {
	where := p.File
	if p.Line > 0 {
		where += fmt.Sprintf(":%d", p.Line)
	}
	return where + ": " + p.Message
}

// NameOr returns the name of a group, or a placeholder if it is empty.
func NameOr(name string) string { return cmp.Or(name, "(none)") }

func (p printer) groups(title string, list []Group) {
	printTable(p, []any{title, "ACCURACY", "INTERVAL", "PASSED", "FAILED", "PENDING", "ERRORS"}, list, func(g Group) []any {
		c := g.Counts
		return []any{Visible(NameOr(g.Name), shownText), Percent(g.Accuracy.Value), Between(g.Accuracy.Interval()), c.Passed, c.Failed, c.Pending, c.Errors}
	})
}

// A Measure is a distribution with its name and the format of its values.
type Measure struct {
	Name  string
	Of    stat.Distribution
	Write func(float64) string // formats a value with its unit
}

// Measures returns the distributions that have values, in the order to show them.
func (d Distributions) Measures() []Measure {
	var list []Measure
	for _, m := range []Measure{
		{"time, producer", d.Producer, Seconds}, {"time, verifier", d.Verifier, Seconds}, {"time, total", d.Total, Seconds},
		{"tokens, input", d.Input, Many}, {"tokens, cached", d.Cached, Many}, {"tokens, output", d.Output, Many},
		{"tokens, reasoning", d.Reasoning, Many}, {"peak memory", d.PeakMemory, Bytes},
	} {
		if m.Of.Count > 0 {
			list = append(list, m)
		}
	}
	return list
}

func (p printer) comparison(r Report, c Comparison) {
	p.heads(fmt.Sprintf("%s (B) against %s (A)", Visible(r.Runs[c.B].Title(), shownText), Visible(r.Runs[c.A].Title(), shownText)))
	p.line()
	p.line("tasks compared", c.Compared())
	if c.Tasks == 0 {
		return
	}
	p.line("accuracy", fmt.Sprintf("A %s, B %s", Percent(&c.MeanA), Percent(&c.MeanB)))
	p.line("difference", c.Gap())
	p.line("tasks", fmt.Sprintf("%d better in B, %d worse, %d the same", c.Better, c.Worse, c.Same))
	if c.McNemar != nil {
		p.line("McNemar", c.McNemar.String())
	}
	printTable(p, []any{"DIFFERS", "A", "B"}, c.Differ, func(d Differs) []any { return []any{Visible(d.TaskID, shownText), d.InA(), d.InB()} })
}

// share formats a task's result: the verdict of a single attempt, or "passed/scored" of
// several.
func (Differs) share(share float64, scored int) string {
	switch {
	case scored != 1:
		return fmt.Sprintf("%.0f/%d", share*float64(scored), scored)
	case share == 1:
		return string(record.Passed)
	}
	return string(record.Failed)
}

// InA returns a task's result in the first run.
func (d Differs) InA() string { return d.share(d.A, d.ScoredA) }

// InB returns a task's result in the second run.
func (d Differs) InB() string { return d.share(d.B, d.ScoredB) }

// Compared says how many tasks were compared, and how many were not.
func (c Comparison) Compared() string {
	words := fmt.Sprintf("%d (scored in A alone: %d, in B alone: %d)", c.Tasks, c.OnlyA, c.OnlyB)
	if c.Different > 0 {
		words += fmt.Sprintf("; left out, because their rows are not the same: %d", c.Different)
	}
	return words
}

// Gap returns the difference between the runs with its interval.
func (c Comparison) Gap() string {
	words := Points(c.Difference) + " points"
	if c.Interval != nil {
		words += fmt.Sprintf(", 95 %% interval %s to %s (paired bootstrap over tasks)", Points(c.Interval.Low), Points(c.Interval.High))
	}
	return words
}

// String returns the p-value and the counts.
func (m McNemar) String() string {
	return fmt.Sprintf("p = %s (exact, two-sided): A alone passed %d, B alone %d, both %d, neither %d", Chance(m.P), m.PassedA, m.PassedB, m.BothPassed, m.BothFailed)
}
