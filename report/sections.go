package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/run/record"
)

// A section is the text of a report on a run or a comparison. The forms differ in how
// they write it, and in how they make names harmless.
type section struct {
	facts   []fact
	tables  []table
	details []table // of less interest
}

type fact struct {
	what string
	says any
}

type table struct {
	heads []string
	rows  [][]any
}

// A name is the text of a fact or a cell that is from the records.
type name string

func (s *section) say(what, format string, args ...any) {
	s.facts = append(s.facts, fact{what, fmt.Sprintf(format, args...)})
}

func tableOf[T any](heads []string, list []T, row func(T) []any) table {
	t := table{heads: heads}
	for _, item := range list {
		t.rows = append(t.rows, row(item))
	}
	return t
}

func (r Run) section() section {
	var s section
	c := r.Counts
	s.say("accuracy", "%s   95 %% interval %s   %d of %d scored", Percent(r.Accuracy.Value), Between(r.Accuracy.Wilson), c.Passed, c.Scored())
	if r.Accuracy.Clustered != nil {
		s.say("", "over tasks, which have several attempts: 95 %% interval %s", Between(r.Accuracy.Clustered))
	}
	s.say("attempts", "%d of %s: %d passed, %d failed, %d pending, %s", c.Attempts, count(c.Tasks, "task"), c.Passed, c.Failed, c.Pending, count(c.Errors, "error"))
	if r.Retries.Attempts > 0 {
		s.say("retried", "%s; %d passed only after a retry", count(r.Retries.Attempts, "attempt"), r.Retries.Passed)
	}
	if t := r.Spent; t.Input+t.Output > 0 {
		s.say("tokens", "%s in (%s cached), %s out (%s reasoning), in all tries", Many(float64(t.Input)), Many(float64(t.Cached)), Many(float64(t.Output)), Many(float64(t.Reasoning)))
	}
	if len(r.Contrast) > 0 {
		s.say("contrast", "passes borne out by changed tests: %d calibrated, %d uncalibrated, %d without", r.Contrast["calibrated"], r.Contrast["uncalibrated"], r.Contrast["none"])
	}
	for _, d := range r.Degraded {
		s.facts = append(s.facts, fact{"not enforced", name(d)})
	}
	for i, problem := range r.Problems {
		if i == shownTasks {
			s.say("problem", "and %d more", len(r.Problems)-i)
			break
		}
		s.facts = append(s.facts, fact{"problem", name(problem.String())})
	}
	passK := table{heads: []string{"k", "pass@k", "pass^k", "tasks"}}
	for i, k := range r.PassAtK {
		passK.rows = append(passK.rows, []any{k.K, Percent(k.Value), Percent(r.PassAllK[i].Value), k.Tasks})
	}
	s.tables = []table{passK, groupTable("family", r.ByFamily)}
	if len(r.ByCategory) > 1 {
		s.tables = append(s.tables, groupTable("category", r.ByCategory))
	}
	s.details = []table{
		tableOf([]string{"outcome", "reason", "phase", "attempts"}, r.Outcomes, func(o Outcome) []any {
			return []any{o.Status, name(o.Reason), name(o.Phase), o.Count}
		}),
		tableOf([]string{"measure", "attempts", "min", "10 %", "median", "90 %", "max", "mean"}, r.measures(), func(m Measure) []any {
			d := *m.in(&r.Distributions)
			return []any{m.Name, d.Count, m.Write(d.Min), m.Write(d.P10), m.Write(d.P50), m.Write(d.P90), m.Write(d.Max), m.Write(d.Mean)}
		}),
		tableOf([]string{"slowest", "attempt", "time", "producer", "verifier", "status"}, r.Slowest, func(s Slow) []any {
			return []any{name(s.TaskID), s.Attempt, Seconds(s.Total), Seconds(s.Producer), Seconds(s.Verifier), s.Status}
		}),
	}
	return s
}

// measures returns those that have values.
func (r Run) measures() []Measure {
	return slices.DeleteFunc(Measures(), func(m Measure) bool { return m.in(&r.Distributions).Count == 0 })
}

func groupTable(what string, list []Group) table {
	return tableOf([]string{what, "accuracy", "interval", "passed", "failed", "pending", "errors"}, list, func(g Group) []any {
		c := g.Counts
		return []any{name(NameOr(g.Name)), Percent(g.Accuracy.Value), Between(g.Accuracy.Interval()), c.Passed, c.Failed, c.Pending, c.Errors}
	})
}

func (c Comparison) section() section {
	var s section
	s.say("tasks compared", "%s", c.Compared())
	if c.Tasks == 0 {
		return s
	}
	s.say("accuracy", "A %s, B %s", Percent(&c.MeanA), Percent(&c.MeanB))
	s.say("difference", "%s", c.Gap())
	s.say("tasks", "%d better in B, %d worse, %d the same", c.Better, c.Worse, c.Same)
	if c.McNemar != nil {
		s.say("McNemar", "%s", c.McNemar)
	}
	s.tables = []table{tableOf([]string{"differs", "A", "B"}, c.Differ, func(d Differs) []any { return []any{name(d.TaskID), d.InA(), d.InB()} })}
	return s
}

// Title returns the heading for a run.
func (r Run) Title() string { return cmp.Or(r.RunID, r.Dir) }

// Subtitle returns the run's benchmark, and its agents or its other harness; "" if none
// is known.
func (r Run) Subtitle() string {
	words := r.BenchmarkID
	if r.PackVersion > 0 {
		words += fmt.Sprintf(" version %d", r.PackVersion)
	}
	harness := r.Agents
	if len(harness) == 0 {
		harness = []string{r.Harness.Type}
	}
	return strings.Trim(words+", "+strings.Join(harness, ", "), ", ")
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
	return fmt.Sprintf("p = %s (exact, two-sided): A alone passed %d, B alone %d, both %d, neither %d", chance(m.P), m.PassedA, m.PassedB, m.BothPassed, m.BothFailed)
}
