package text

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run/record"
)

// A section is the text of a report about a run or a comparison. The forms of a report
// differ in how they write it and how they make names harmless.
type section struct {
	warnings []report.Warning
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

func ofRun(r report.Run) section {
	s := section{warnings: r.Warnings()}
	c := r.Counts
	s.say("accuracy", "%s   95 %% interval %s   %d of %d scored", r.Accuracy, report.Between(r.Accuracy.Wilson), c.Passed, c.Scored())
	if c.Passed > 0 {
		s.say("passes", "%s", r.Assurances())
	}
	if r.Accuracy.Clustered != nil {
		s.say("", "over tasks, which have several attempts: 95 %% interval %s", report.Between(r.Accuracy.Clustered))
	}
	s.say("attempts", "%d of %s: %d passed, %d failed, %d pending, %s", c.Attempts, report.Count(c.Tasks, "task"), c.Passed, c.Failed, c.Pending, report.Count(c.Errors, "error"))
	if r.Retries.Attempts > 0 {
		s.say("retried", "%s; %d passed only after a retry", report.Count(r.Retries.Attempts, "attempt"), r.Retries.Passed)
	}
	if t := r.Spent; t.Input+t.Output > 0 {
		s.say("tokens", "%s in (%s cached), %s out (%s reasoning), in all tries", report.Many(float64(t.Input)), report.Many(float64(t.Cached)), report.Many(float64(t.Output)), report.Many(float64(t.Reasoning)))
	}
	if r.SpentUSD > 0 {
		each := ""
		if c.Passed > 0 {
			each = ", " + report.Dollars(r.SpentUSD/float64(c.Passed)) + " for each attempt that passed"
		}
		s.say("cost", "%s in all tries%s", report.Dollars(r.SpentUSD), each)
	}
	failures := slices.DeleteFunc(slices.Clone(r.Outcomes), func(o report.Outcome) bool { return o.Status == record.Passed })
	causes := tableOf([]string{"cause", "status", "phase", "attempts", "example", "message"}, failures, func(o report.Outcome) []any {
		return []any{name(cmp.Or(o.Reason, string(o.Status))), o.Status, name(o.Phase), o.Count, name(o.Task), words(o.Message)}
	})
	passK := table{heads: []string{"k", "pass@k", "pass^k", "tasks", "with errors as failures"}}
	for i, k := range r.PassAtK {
		all := r.PassAllK[i]
		passK.rows = append(passK.rows, []any{k.K, report.Percent(k.Value), report.Percent(all.Value), k.Tasks, report.Percent(k.WithErrors) + ", " + report.Percent(all.WithErrors)})
	}
	s.tables = []table{causes, passK, groupTable("family", r.ByFamily)}
	if len(r.ByCategory) > 1 {
		s.tables = append(s.tables, groupTable("category", r.ByCategory))
	}
	s.details = []table{
		tableOf([]string{"not passed", "attempt", "status", "reason", "message"}, r.NotPassed, func(u report.Unpassed) []any {
			return []any{name(u.TaskID), u.Attempt, u.Status, name(u.Reason), words(u.Message)}
		}),
		{heads: report.MeasureHeads(), rows: r.Distributions.Rows()},
		tableOf([]string{"slowest", "attempt", "time", "producer", "verifier", "status"}, r.Slowest, func(s report.Slow) []any {
			return []any{name(s.TaskID), s.Attempt, report.Seconds(s.Total), report.Seconds(s.Producer), report.Seconds(s.Verifier), s.Status}
		}),
	}
	return s
}

// leaders returns a table of several runs, best first.
func leaders(r report.Report) table {
	return tableOf([]string{"run", "", "accuracy", "passes", "interval", "scored", "against A", "p", "tokens", "producer", "warnings"}, r.Leaders(), func(l report.Leader) []any {
		gap, p := "–", "–"
		if l.Against != nil {
			gap, p = l.Against.Short(), l.Against.Chance()
		}
		return []any{
			report.Letter(l.Index), name(l.Title()), l.Accuracy, l.Assurances(), report.Between(l.Accuracy.Interval()), l.Accuracy.Scored, gap, p,
			report.Many(float64(l.Spent.Total())), report.Seconds(l.Distributions.Producer.P50), strings.Join(l.WarningKinds(), ", "),
		}
	})
}

// versus returns the heading of a comparison. show escapes a run's title for the form.
func versus(r report.Report, c report.Comparison, show func(string) string) string {
	return fmt.Sprintf("%s (%s) against %s (%s)", show(r.Runs[c.B].Title()), report.Letter(c.B), show(r.Runs[c.A].Title()), report.Letter(c.A))
}

func groupTable(what string, list []report.Group) table {
	return tableOf([]string{what, "accuracy", "interval", "passed", "failed", "pending", "errors"}, list, func(g report.Group) []any {
		c := g.Counts
		return []any{name(report.NameOr(g.Name)), g.Accuracy, report.Between(g.Accuracy.Interval()), c.Passed, c.Failed, c.Pending, c.Errors}
	})
}

func ofComparison(c report.Comparison) section {
	var s section
	s.say("tasks compared", "%s", c.Compared())
	if c.Tasks == 0 {
		return s
	}
	a, b := report.Letter(c.A), report.Letter(c.B)
	s.say("accuracy", "%s %s, %s %s; with errors as failures %s %s, %s %s", a, report.Percent(&c.MeanA), b, report.Percent(&c.MeanB), a, report.Percent(&c.WithErrorsA), b, report.Percent(&c.WithErrorsB))
	s.say("difference", "%s", c.Gap())
	s.say("tasks", "%d better in %s, %d worse, %d the same", c.Better, b, c.Worse, c.Same)
	if c.McNemar != nil {
		s.say("McNemar", "%s", c.Test())
	}
	better, worse := c.Apart()
	row := func(d report.Differs) []any { return []any{name(d.TaskID), d.InA(), d.InB()} }
	s.tables = []table{tableOf([]string{"better in " + b, a, b}, better, row), tableOf([]string{"worse in " + b, a, b}, worse, row)}
	return s
}
