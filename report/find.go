package report

import (
	"fmt"
	"slices"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/run/record"
)

// Find returns the index of an attempt, and the number of its task's attempts. The task is an id, or a pattern that only
// one task matches. Attempt 0 means the first attempt that did not pass, or the first if all passed.
func (s *Source) Find(task string, attempt int) (at, of int, err error) {
	var ids []string // of matching tasks
	indices := map[string][]int{}
	for i, a := range s.Attempts {
		if a.Task != task && !compiler.MatchTask(task, a.Task) {
			continue
		}
		if indices[a.Task] == nil {
			ids = append(ids, a.Task)
		}
		indices[a.Task] = append(indices[a.Task], i)
	}
	if indices[task] != nil {
		ids = []string{task}
	}
	switch {
	case len(ids) == 0:
		return 0, 0, fmt.Errorf("no attempt of %q is recorded", task)
	case len(ids) > 1:
		return 0, 0, fmt.Errorf("%q matches %d tasks: name one, such as %q", task, len(ids), ids[0])
	}
	all := indices[ids[0]]
	slices.SortStableFunc(all, func(i, j int) int { return s.Attempts[i].Number - s.Attempts[j].Number })
	i := slices.IndexFunc(all, func(i int) bool {
		if attempt > 0 {
			return s.Attempts[i].Number == attempt
		}
		return s.Attempts[i].Status != record.Passed
	})
	if i < 0 && attempt > 0 {
		return 0, 0, fmt.Errorf("attempt %d of %q is not recorded", attempt, task)
	}
	return all[max(i, 0)], len(all), nil
}
