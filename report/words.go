package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/verifiers"
)

// A Leader is a run in a table of several runs.
type Leader struct {
	Run
	Index   int         // in Report.Runs
	Against *Comparison // with the first run; nil for the first run, or if no task can be compared
}

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

// Title returns the heading for a run: its id or, if that is unknown or several runs have it, its directory.
func (r Run) Title() string {
	if r.SameID {
		return r.Dir
	}
	return cmp.Or(r.RunID, r.Dir)
}

// Subtitle returns the run's benchmark, its agents or other harness, and what isolated them; "" if unknown.
func (r Run) Subtitle() string {
	words := r.BenchmarkID
	if r.PackVersion > 0 {
		words += fmt.Sprintf(" version %d", r.PackVersion)
	}
	harness := r.Agents
	if len(harness) == 0 {
		harness = []string{r.Harness.Type}
	}
	words = strings.Trim(words+", "+strings.Join(harness, ", "), ", ")
	if len(r.Isolation) > 0 {
		words += ", isolation: " + strings.Join(r.Isolation, ", ")
	}
	return words
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

// shownNames bounds the problems, and the names of tasks, in warnings.
const shownNames = 20

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
		warn("partial", "%d of %d planned attempts are recorded: the run was interrupted, or is still going on", r.Planned-missing, r.Planned)
	}
	for i, p := range r.Problems {
		if i == shownNames {
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
		warn("judged", "%s judged by a model: %s", Count(r.Judged, "answer"), strings.Join(r.Judges, "; "))
	}
	if len(r.Degraded) > 0 {
		warn("degraded", "the host did not enforce these limits: %s", strings.Join(r.Degraded, ", "))
	}
	if n := r.Assurance[string(verifiers.Executed)]; n > 0 {
		warn("executed", "%d of %d passes show only that the command succeeded, and that it can fail", n, r.Counts.Passed)
	}
	if r.Uncalibrated > 0 {
		warn("uncalibrated", "%d of %d passes are of tasks without a reference solution, which would show the right answers to blind tests", r.Uncalibrated, r.Counts.Passed)
	}
	if r.AfterTimeout > 0 {
		warn("after_timeout", "%s judged although the harness ended badly, for example at its time limit", Count(r.AfterTimeout, "candidate"))
	}
	if n := len(r.Doubtful); n > 0 {
		warn("doubtful", "the candidates of these tasks pass tests that expect something wrong: %s", strings.Join(r.Doubtful[:min(n, shownNames)], ", "))
	}
	if c := r.Counts; c.Errors+c.Pending > 0 {
		warn("unscored", "%s and %d pending are left out of the accuracy", Count(c.Errors, "error"), c.Pending)
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
func (r Run) Missing() int { return max(0, r.Planned-r.Counts.Attempts) }

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
