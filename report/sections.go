package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/verifiers"
)

// A section is the text of a report about a run or a comparison. The forms of a report
// differ in how they write it and how they make names harmless.
type section struct {
	warnings []Warning
	facts    []fact
	tables   []table
	details  []table // of less interest
}

type fact struct{ what, says string }

type table struct {
	heads []string
	rows  [][]any
}

// A name is a short text from the records in a cell, words are a longer text.
type (
	name  string
	words string
)

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
	s := section{warnings: r.Warnings()}
	c := r.Counts
	s.say("accuracy", "%s   95 %% interval %s   %d of %d scored", r.Accuracy, Between(r.Accuracy.Wilson), c.Passed, c.Scored())
	if c.Passed > 0 {
		s.say("passes", "%s", r.Assurances())
	}
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
	if r.SpentUSD > 0 {
		each := ""
		if c.Passed > 0 {
			each = ", " + dollars(r.SpentUSD/float64(c.Passed)) + " for each attempt that passed"
		}
		s.say("cost", "%s in all tries%s", dollars(r.SpentUSD), each)
	}
	failures := slices.DeleteFunc(slices.Clone(r.Outcomes), func(o Outcome) bool { return o.Status == record.Passed })
	causes := tableOf([]string{"cause", "status", "phase", "attempts", "example", "message"}, failures, func(o Outcome) []any {
		return []any{name(cmp.Or(o.Reason, string(o.Status))), o.Status, name(o.Phase), o.Count, name(o.Task), words(o.Message)}
	})
	passK := table{heads: []string{"k", "pass@k", "pass^k", "tasks", "with errors as failures"}}
	for i, k := range r.PassAtK {
		all := r.PassAllK[i]
		passK.rows = append(passK.rows, []any{k.K, Percent(k.Value), Percent(all.Value), k.Tasks, Percent(k.WithErrors) + ", " + Percent(all.WithErrors)})
	}
	s.tables = []table{causes, passK, groupTable("family", r.ByFamily)}
	if len(r.ByCategory) > 1 {
		s.tables = append(s.tables, groupTable("category", r.ByCategory))
	}
	measures := table{heads: []string{"measure", "attempts", "min", "10 %", "median", "90 %", "max", "mean"}}
	for i, m := range Measures() {
		if d := r.Distributions.all()[i]; d.Count > 0 {
			measures.rows = append(measures.rows, []any{
				m.Name, d.Count, m.Write(d.Min), m.Write(d.P10), m.Write(d.P50), m.Write(d.P90), m.Write(d.Max), m.Write(d.Mean),
			})
		}
	}
	s.details = []table{
		tableOf([]string{"not passed", "attempt", "status", "reason", "message"}, r.NotPassed, func(u Unpassed) []any {
			return []any{name(u.TaskID), u.Attempt, u.Status, name(u.Reason), words(u.Message)}
		}),
		measures,
		tableOf([]string{"slowest", "attempt", "time", "producer", "verifier", "status"}, r.Slowest, func(s Slow) []any {
			return []any{name(s.TaskID), s.Attempt, Seconds(s.Total), Seconds(s.Producer), Seconds(s.Verifier), s.Status}
		}),
	}
	return s
}

// leaders returns a table of several runs, best first.
func (r Report) leaders() table {
	return tableOf([]string{"run", "", "accuracy", "passes", "interval", "scored", "against A", "p", "tokens", "producer", "warnings"}, r.Leaders(), func(l Leader) []any {
		gap, p := "–", "–"
		if l.Against != nil {
			gap, p = l.Against.Short(), l.Against.Chance()
		}
		return []any{
			Letter(l.Index), name(l.Title()), l.Accuracy, l.Assurances(), Between(l.Accuracy.Interval()), l.Accuracy.Scored, gap, p,
			Many(float64(l.Tokens())), Seconds(l.Distributions.Producer.P50), strings.Join(l.WarningKinds(), ", "),
		}
	})
}

// versus returns the heading of a comparison. show escapes a run's title for the form.
func (r Report) versus(c Comparison, show func(string) string) string {
	return fmt.Sprintf("%s (%s) against %s (%s)", show(r.Runs[c.B].Title()), Letter(c.B), show(r.Runs[c.A].Title()), Letter(c.A))
}

// A Leader is a run in a table of several runs.
type Leader struct {
	Run
	Index   int         // in Report.Runs
	Against *Comparison // with the first run; nil for the first run, or if no task can be compared
}

// Tokens returns how many tokens all tries read and wrote.
func (l Leader) Tokens() int64 { return l.Spent.Input + l.Spent.Output }

// Leaders returns all runs by accuracy, highest first and unknown last.
func (r Report) Leaders() []Leader {
	list := make([]Leader, len(r.Runs))
	for i, run := range r.Runs {
		list[i] = Leader{Run: run, Index: i}
	}
	for i, c := range r.Comparisons {
		if c.Tasks > 0 {
			list[c.B].Against = &r.Comparisons[i]
		}
	}
	value := func(l Leader) float64 {
		if l.Accuracy.Value == nil {
			return -1
		}
		return *l.Accuracy.Value
	}
	slices.SortStableFunc(list, func(a, b Leader) int { return cmp.Compare(value(b), value(a)) })
	return list
}

// Letter returns the name of a run in comparisons: A for the first.
func Letter(run int) string {
	if run < 26 {
		return string(rune('A' + run))
	}
	return fmt.Sprint(run + 1)
}

func groupTable(what string, list []Group) table {
	return tableOf([]string{what, "accuracy", "interval", "passed", "failed", "pending", "errors"}, list, func(g Group) []any {
		c := g.Counts
		return []any{name(NameOr(g.Name)), g.Accuracy, Between(g.Accuracy.Interval()), c.Passed, c.Failed, c.Pending, c.Errors}
	})
}

func (c Comparison) section() section {
	var s section
	s.say("tasks compared", "%s", c.Compared())
	if c.Tasks == 0 {
		return s
	}
	a, b := Letter(c.A), Letter(c.B)
	s.say("accuracy", "%s %s, %s %s; with errors as failures %s %s, %s %s", a, Percent(&c.MeanA), b, Percent(&c.MeanB), a, Percent(&c.WithErrorsA), b, Percent(&c.WithErrorsB))
	s.say("difference", "%s", c.Gap())
	s.say("tasks", "%d better in %s, %d worse, %d the same", c.Better, b, c.Worse, c.Same)
	if c.McNemar != nil {
		s.say("McNemar", "%s", c.Test())
	}
	better, worse := c.Apart()
	row := func(d Differs) []any { return []any{name(d.TaskID), d.InA(), d.InB()} }
	s.tables = []table{tableOf([]string{"better in " + b, a, b}, better, row), tableOf([]string{"worse in " + b, a, b}, worse, row)}
	return s
}

// Title returns the heading for a run: its id or, if that is unknown or several runs have it, its directory.
func (r Run) Title() string {
	if r.SameID {
		return r.Dir
	}
	return cmp.Or(r.RunID, r.Dir)
}

// Subtitle returns the run's benchmark and its agents or other harness; "" if unknown.
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

// NameOr returns the name of a group, or a placeholder if it is empty.
func NameOr(name string) string { return cmp.Or(name, "(none)") }

// result formats a task's result: the verdict of a single attempt, or "passed/scored" for several.
func result(share float64, scored int) string {
	switch {
	case scored != 1:
		return fmt.Sprintf("%.0f/%d", share*float64(scored), scored)
	case share == 1:
		return string(record.Passed)
	}
	return string(record.Failed)
}

// InA returns a task's result in the first run.
func (d Differs) InA() string { return result(d.A, d.ScoredA) }

// InB returns a task's result in the second run.
func (d Differs) InB() string { return result(d.B, d.ScoredB) }

// Compared says how many tasks were compared, and how many were not.
func (c Comparison) Compared() string {
	words := fmt.Sprintf("%d (scored in %s alone: %d, in %s alone: %d)", c.Tasks, Letter(c.A), c.OnlyA, Letter(c.B), c.OnlyB)
	if c.Different > 0 {
		words += fmt.Sprintf("; left out, because their rows are not the same: %d", c.Different)
	}
	return words
}

// Short returns the difference between the runs in points, with its interval.
func (c Comparison) Short() string {
	if c.Interval == nil {
		return Points(c.Difference)
	}
	return fmt.Sprintf("%s (%s to %s)", Points(c.Difference), Points(c.Interval.Low), Points(c.Interval.High))
}

// Chance returns the p-value of McNemar's test, "–" if it does not apply.
func (c Comparison) Chance() string {
	if c.McNemar == nil {
		return "–"
	}
	return chance(c.McNemar.P)
}

// Gap returns the difference between the runs with its interval.
func (c Comparison) Gap() string {
	words := Points(c.Difference) + " points"
	if c.Interval != nil {
		words += fmt.Sprintf(", 95 %% interval %s to %s (paired bootstrap over tasks)", Points(c.Interval.Low), Points(c.Interval.High))
	}
	return words
}

// Test returns the p-value and the counts of McNemar's test, "" if it does not apply.
func (c Comparison) Test() string {
	m := c.McNemar
	if m == nil {
		return ""
	}
	return fmt.Sprintf("p = %s (exact, two-sided): %s alone passed %d, %s alone %d, both %d, neither %d", chance(m.P), Letter(c.A), m.PassedA, Letter(c.B), m.PassedB, m.BothPassed, m.BothFailed)
}

// A Warning is a reason why a run's numbers say less than they seem to. Show it above them.
type Warning struct {
	Kind string // partial, unreadable, unverified, judged, degraded, executed, uncalibrated, after_timeout, doubtful or unscored
	Text string // may contain hostile text of the records
}

// Warnings returns the warnings of a run, at most 30.
func (r Run) Warnings() []Warning {
	var list []Warning
	warn := func(kind, format string, args ...any) {
		list = append(list, Warning{kind, fmt.Sprintf(format, args...)})
	}
	if missing := r.Missing(); missing > 0 {
		warn("partial", "%d of %d planned attempts are recorded: the run was interrupted, or is still going on", *r.Planned-missing, *r.Planned)
	}
	for i, p := range r.Problems {
		if i == shownTasks {
			warn("unreadable", "and %d more in --json", len(r.Problems)-i)
			break
		}
		kind := "unreadable"
		if p.Unverified {
			kind = "unverified"
		}
		warn(kind, "%s", p)
	}
	if r.Judged > 0 {
		warn("judged", "%s judged by a model: %s", count(r.Judged, "answer"), strings.Join(r.Judges, "; "))
	}
	if len(r.Degraded) > 0 {
		warn("degraded", "the host did not enforce these limits: %s", strings.Join(r.Degraded, ", "))
	}
	if n := r.Assurance[string(verifiers.Executed)]; n > 0 {
		warn("executed", "of %d of %d passes it is known only that the command succeeded, and can fail", n, r.Counts.Passed)
	}
	if r.Uncalibrated > 0 {
		warn("uncalibrated", "%d of %d passes are by changed tests that no reference solution has calibrated", r.Uncalibrated, r.Counts.Passed)
	}
	if r.AfterTimeout > 0 {
		warn("after_timeout", "%s judged although the harness ended badly, for example at its time limit", count(r.AfterTimeout, "candidate"))
	}
	if n := len(r.Doubtful); n > 0 {
		warn("doubtful", "the candidates of these tasks pass tests that expect something wrong: %s", strings.Join(r.Doubtful[:min(n, shownTasks)], ", "))
	}
	if c := r.Counts; c.Errors+c.Pending > 0 {
		warn("unscored", "%s and %d pending are in no denominator", count(c.Errors, "error"), c.Pending)
	}
	return list
}

// Assurances says how many passes have which assurance: "3 sealed, 1 executed".
func (r Run) Assurances() string {
	var parts []string
	for _, a := range []verifiers.Assurance{verifiers.Sealed, verifiers.Contrasted, verifiers.Executed} {
		if n := r.Assurance[string(a)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, a))
		}
	}
	return strings.Join(parts, ", ")
}

// Missing returns how many planned attempts have no record. It is 0 if the plan is unknown.
func (r Run) Missing() int {
	if r.Planned == nil {
		return 0
	}
	return max(0, *r.Planned-r.Counts.Attempts)
}

// WarningKinds returns the kinds of the run's warnings, each once.
func (r Run) WarningKinds() []string {
	var kinds []string
	for _, w := range r.Warnings() {
		if !slices.Contains(kinds, w.Kind) {
			kinds = append(kinds, w.Kind)
		}
	}
	return kinds
}
