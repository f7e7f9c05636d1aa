package report

import (
	"cmp"
	"maps"
	"slices"

	"github.com/securebench/sbench/report/stat"
	"github.com/securebench/sbench/run/record"
)

// maxSlowest bounds the list of the slowest attempts.
const maxSlowest = 10

// Summarize sums up runs, and compares each further one with the first.
func Summarize(sources []*Source) Report {
	r := Report{Schema: Schema, Confidence: stat.Confidence, Runs: []Run{}, Comparisons: []Comparison{}}
	for i, s := range sources {
		r.Runs = append(r.Runs, s.run())
		if i > 0 {
			r.Comparisons = append(r.Comparisons, compare(0, i, sources[0], s))
		}
	}
	for i := range r.Runs {
		r.Runs[i].SameID = slices.ContainsFunc(r.Runs, func(other Run) bool { return other.RunID == r.Runs[i].RunID && other.Dir != r.Runs[i].Dir })
	}
	return r
}

func (s *Source) run() Run {
	m := s.Manifest
	r := Run{
		Dir: s.Dir, RunID: cmp.Or(m.RunID, s.runID), BenchmarkID: m.Pack.ID, PackVersion: m.Pack.Version, Sbench: m.Sbench, Harness: m.Harness,
		Jobs: m.Jobs, Planned: s.Planned, Records: s.Records, Problems: append([]Problem{}, s.Problems...), Spent: s.Spent, SpentUSD: s.SpentUSD,
	}
	if s.more > 0 {
		r.Problems = append(r.Problems, Problem{Finding: record.Finding{File: record.RecordsFile, Message: "and more: " + Count(s.more, "problem")}})
	}
	if !m.StartedAt.IsZero() {
		r.StartedAt = &m.StartedAt
	}
	s.describe(&r)
	all := s.Attempts
	r.Tasks = tasksOf(all)
	r.Counts, r.Accuracy = tally(all)
	r.PassAtK, r.PassAllK = passK(r.Tasks, stat.PassAtK), passK(r.Tasks, stat.PassAllK)
	slices.SortStableFunc(r.Tasks, func(a, b Task) int { return Natural(a.TaskID, b.TaskID) })
	r.ByFamily = groups(all, func(a Attempt) string { return a.Family })
	r.ByCategory = groups(all, func(a Attempt) string { return a.Category })
	r.Outcomes, r.NotPassed, r.Distributions, r.Slowest = outcomes(all), unpassed(all), distributions(all), slowest(all)
	return r
}

// describe fills in what only the attempts have, and what a manifest lacks that cannot be read.
func (s *Source) describe(r *Run) {
	agents, isolation, degraded, judges := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, a := range s.Attempts {
		r.BenchmarkID = cmp.Or(r.BenchmarkID, a.Benchmark)
		if a.Agent != "" {
			agents[a.Agent] = true
		}
		if a.Isolation != "" {
			isolation[a.Isolation] = true
		}
		if a.Judge != "" {
			judges[a.Judge] = true
			r.Judged++
		}
		for _, d := range a.Degraded {
			degraded[d] = true
		}
		if !a.Started.IsZero() && (r.StartedAt == nil || a.Started.Before(*r.StartedAt)) {
			r.StartedAt = &a.Started
		}
		if !a.Ended.IsZero() && (r.EndedAt == nil || a.Ended.After(*r.EndedAt)) {
			r.EndedAt = &a.Ended
		}
		if a.Status == record.Passed {
			if r.Assurance == nil {
				r.Assurance = map[string]int{}
			}
			r.Assurance[a.Assurance]++
			if a.Uncalibrated {
				r.Uncalibrated++
			}
			if a.Doubtful && !slices.Contains(r.Doubtful, a.Task) {
				r.Doubtful = append(r.Doubtful, a.Task)
			}
		}
		if a.AfterTimeout {
			r.AfterTimeout++
		}
		if a.Retried {
			r.Retries.Attempts++
			if a.Status == record.Passed {
				r.Retries.Passed++
			}
		}
	}
	if r.Judged > 0 {
		r.Judges = sortedKeys(judges)
	}
	r.Agents, r.Isolation, r.Degraded = sortedKeys(agents), sortedKeys(isolation), sortedKeys(degraded)
}

// sortedKeys returns the sorted keys, never nil.
func sortedKeys[V any](m map[string]V) []string {
	return append([]string{}, slices.Sorted(maps.Keys(m))...)
}

// tasksOf returns the tasks of attempts, in the order of their first records.
func tasksOf(attempts []Attempt) []Task {
	index := map[string]int{}
	tasks := []Task{}
	for _, a := range attempts {
		at, ok := index[a.Task]
		if !ok {
			at = len(tasks)
			index[a.Task] = at
			tasks = append(tasks, Task{TaskID: a.Task, Family: a.Family, Category: a.Category, rows: a.rows})
		}
		t := &tasks[at]
		t.Attempts++
		switch a.Status {
		case record.Passed:
			t.Passed, t.Scored = t.Passed+1, t.Scored+1
		case record.Failed:
			t.Scored++
		case record.Error:
			t.Errors++
		}
	}
	return tasks
}

func tally(attempts []Attempt) (Counts, Accuracy) {
	tasks := tasksOf(attempts)
	c := Counts{Tasks: len(tasks), Attempts: len(attempts)}
	var clusters []stat.Cluster
	for _, t := range tasks {
		c.Passed, c.Failed, c.Errors = c.Passed+t.Passed, c.Failed+t.Scored-t.Passed, c.Errors+t.Errors
		if t.Scored > 0 {
			clusters = append(clusters, stat.Cluster{Sum: float64(t.Passed), N: t.Scored})
		}
	}
	c.Pending = c.Attempts - c.Scored() - c.Errors
	a := Accuracy{Passed: c.Passed, Scored: c.Scored(), Errors: c.Errors}
	if all := a.Scored + a.Errors; all > 0 {
		a.WithErrors = new(float64(a.Passed) / float64(all))
	}
	if i, ok := stat.Wilson(a.Passed, a.Scored); ok {
		a.Value, a.Wilson = new(float64(a.Passed)/float64(a.Scored)), &i
	}
	if a.Scored > len(clusters) { // a task has several
		if i, ok := stat.Bootstrap(clusters); ok {
			a.Clustered = &i
		}
	}
	return c, a
}

// passK returns an estimate for each k up to the largest number of scored attempts of a
// task. The list is empty if no task has more than one: it would only repeat the accuracy.
func passK(tasks []Task, estimate func(n, c, k int) (float64, bool)) []PassK {
	most := 0
	for _, t := range tasks {
		most = max(most, t.Scored)
	}
	list := []PassK{}
	if most < 2 {
		return list
	}
	// All k up to 5, then in growing steps, and the last.
	ks := slices.DeleteFunc([]int{1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100}, func(k int) bool { return k >= most })
	for _, k := range append(ks, most) {
		p := PassK{K: k}
		p.Value, p.Tasks = meanOf(tasks, func(t Task) (float64, bool) { return estimate(t.Scored, t.Passed, k) })
		p.WithErrors, _ = meanOf(tasks, func(t Task) (float64, bool) { return estimate(t.Scored+t.Errors, t.Passed, k) })
		p.LeftOut = len(tasks) - p.Tasks
		list = append(list, p)
	}
	return list
}

// meanOf returns the mean over the tasks that have the value, and their number; nil without such tasks.
func meanOf(tasks []Task, of func(Task) (float64, bool)) (mean *float64, n int) {
	sum := 0.0
	for _, t := range tasks {
		if value, ok := of(t); ok {
			sum += value
			n++
		}
	}
	if n == 0 {
		return nil, 0
	}
	return new(sum / float64(n)), n
}

func groups(attempts []Attempt, name func(Attempt) string) []Group {
	members := map[string][]Attempt{}
	for _, a := range attempts {
		members[name(a)] = append(members[name(a)], a)
	}
	list := []Group{}
	for _, n := range slices.SortedFunc(maps.Keys(members), Natural) {
		c, a := tally(members[n])
		list = append(list, Group{n, c, a})
	}
	return list
}

func outcomes(attempts []Attempt) []Outcome {
	members := map[Outcome][]int{} // indices of attempts
	for i, a := range attempts {
		o := Outcome{Status: a.Status, Reason: a.Reason, Phase: a.Phase}
		if a.Status == record.Error {
			o.Message = record.CauseOf(a.Message)
		}
		members[o] = append(members[o], i)
	}
	list := []Outcome{}
	for o, indices := range members {
		o.Count = len(indices)
		if o.Status != record.Passed {
			times := map[string]int{} // that a message comes
			for _, i := range indices {
				times[attempts[i].Message]++
			}
			o.Index = slices.MaxFunc(indices, func(i, j int) int { // of several, the one that began first
				return cmp.Or(cmp.Compare(times[attempts[i].Message], times[attempts[j].Message]), attempts[j].Started.Compare(attempts[i].Started))
			})
			a := attempts[o.Index]
			o.Task, o.Attempt, o.Message = a.Task, a.Number, a.Message
		}
		list = append(list, o)
	}
	order := []record.Status{record.Passed, record.Failed, record.Pending, record.Error}
	slices.SortFunc(list, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Status), slices.Index(order, b.Status)), cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Message, b.Message))
	})
	return list
}

func slowest(attempts []Attempt) []Slow {
	list := []Slow{}
	for i, a := range attempts {
		if a.Total > 0 {
			list = append(list, Slow{i, a.Task, a.Number, a.Status, a.Total, a.Producer, a.Verifier})
		}
	}
	slices.SortStableFunc(list, func(a, b Slow) int { return cmp.Compare(b.Total, a.Total) })
	return list[:min(len(list), maxSlowest)]
}

// Ordered sorts attempts by their tasks in natural order, then by number.
func Ordered(attempts []Attempt) []Attempt {
	list := slices.Clone(attempts)
	slices.SortStableFunc(list, func(a, b Attempt) int { return cmp.Or(Natural(a.Task, b.Task), cmp.Compare(a.Number, b.Number)) })
	return list
}

func unpassed(attempts []Attempt) []Unpassed {
	list := []Unpassed{}
	for _, a := range Ordered(attempts) {
		if a.Status != record.Passed {
			list = append(list, Unpassed{a.Task, a.Number, a.Status, a.Reason, a.Phase, a.Message})
		}
	}
	return list
}
