package run

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/workspace"
)

// A Shard names one of several parts of a run, which are made on different machines. To which one an
// attempt belongs depends on nothing but the ids of the selected tasks, the number of their
// attempts, Count and Seconds, so that every machine deals in the same way.
type Shard struct {
	Index, Count int // Index is from 1
	// Seconds are how long an attempt of a task is expected to take. Tasks that it lacks are
	// expected to take as long as the others on average. Nil means that all take the same time.
	Seconds map[string]float64
}

// dealt is an attempt that goes to a shard.
type dealt struct {
	key
	seconds float64
	sum     [sha256.Size]byte // of its name: an order that no author of tasks can choose
}

// deal returns the attempts of the shard, and selects their tasks; nil for a run that is not sharded.
func (c *Config) deal() (*record.Shard, error) {
	if c.Shard == nil {
		return nil, nil
	}
	all, err := c.everyAttempt()
	if err != nil {
		return nil, err
	}
	if len(all) == 0 { // preflight says so
		c.Shard = nil
		return nil, nil
	}
	slices.SortFunc(all, func(a, b dealt) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), bytes.Compare(a.sum[:], b.sum[:]))
	})
	shard := &record.Shard{Index: c.Shard.Index, Count: c.Shard.Count, Whole: len(all), Attempts: map[string][]int{}}
	loads, list := make([]*load, c.Shard.Count), sha256.New()
	for i := range loads {
		loads[i] = &load{shard: i + 1}
	}
	for _, a := range all { // the longest first, each to the shard that has the least to do so far
		to := slices.MinFunc(loads, func(a, b *load) int {
			return cmp.Or(cmp.Compare(a.seconds, b.seconds), cmp.Compare(a.attempts, b.attempts))
		})
		to.seconds, to.attempts = to.seconds+a.seconds, to.attempts+1
		_, _ = fmt.Fprintf(list, "%d %x\n", to.shard, a.sum) // a hash never returns an error
		if to.shard == shard.Index {
			shard.Attempts[a.task] = append(shard.Attempts[a.task], a.attempt)
		}
	}
	for _, numbers := range shard.Attempts {
		slices.Sort(numbers)
	}
	shard.Deal = workspace.DigestOf(list)
	c.Limit, c.Select = nil, func(id string) bool { return shard.Attempts[id] != nil }
	return shard, nil
}

// load is what a shard has to do.
type load struct {
	shard    int // from 1
	seconds  float64
	attempts int
}

// everyAttempt returns the attempts of all shards.
func (c *Config) everyAttempt() (all []dealt, err error) {
	mean := 1.0
	if n := len(c.Shard.Seconds); n > 0 {
		mean = 0
		for _, task := range slices.Sorted(maps.Keys(c.Shard.Seconds)) { // sums of floating-point numbers depend on their order
			mean += c.Shard.Seconds[task] / float64(n)
		}
	}
	var problems compiler.Problems
	for task, err := range c.tasks() {
		var also compiler.Problems
		switch {
		case errors.As(err, &also):
			problems = append(problems, also...)
			continue
		case err != nil:
			return nil, err
		}
		seconds, known := c.Shard.Seconds[task.ID()]
		if !known {
			seconds = mean
		}
		for n := 1; n <= c.Attempts; n++ {
			all = append(all, dealt{key{task.ID(), n}, seconds, sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", task.ID(), n))})
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return all, nil
}

// numbers returns which attempts of a task are planned.
func (p plan) numbers(task string, attempts int) []int {
	if p.shard != nil {
		return p.shard.Attempts[task]
	}
	all := make([]int, attempts)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

// attempts returns how many attempts are planned: each for every task, unless the run is sharded.
func (p plan) attempts(each int) int {
	if p.shard == nil {
		return p.tasks * each
	}
	return p.shard.Planned()
}

// shardName says which part of which run it is.
func shardName(s *record.Shard) string {
	if s == nil {
		return "a run that is not sharded"
	}
	return fmt.Sprintf("shard %d of %d, dealt as %s", s.Index, s.Count, s.Deal)
}

// Durations returns how long an attempt of each task took on average in the run in dir, whose
// records must meet t, for [Shard.Seconds].
func Durations(dir string, t record.Trust) (map[string]float64, error) {
	sums, counts := map[string]float64{}, map[string]float64{}
	_, err := record.Read(dir, t, func(r record.Record) error {
		sums[r.TaskID] += r.Times.Producer + r.Times.Verifier
		counts[r.TaskID]++
		return nil
	})
	for task, n := range counts {
		sums[task] /= n
	}
	return sums, err
}
