package run

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/workspace"
)

// A Shard is one of Count parts of a run, each made on a machine of its own. Which shard an attempt
// belongs to depends only on the ids of the selected tasks, the number of their attempts, Count and
// Seconds, so that all machines divide the attempts in the same way.
type Shard struct {
	Index, Count int // Index is from 1
	// Seconds says how long an attempt of a task will probably take. For a task that Seconds lacks, the
	// average of the known tasks is used. Nil means that all tasks take the same time.
	Seconds map[string]float64
}

// dealt is an attempt that goes to a shard.
type dealt struct {
	key
	seconds float64
	sum     [sha256.Size]byte // of its name: an order that no author of tasks can choose
}

// deal removes the attempts of other shards from the plan, and tasks that then have none.
func (p *Plan) deal() {
	if p.Shard == nil || len(p.tasks) == 0 {
		return
	}
	all := p.everyAttempt()
	slices.SortFunc(all, func(a, b dealt) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), bytes.Compare(a.sum[:], b.sum[:]))
	})
	shard := &record.Shard{Index: p.Shard.Index, Count: p.Shard.Count, Whole: len(all), Attempts: map[string][]int{}}
	loads, list := make([]*load, p.Shard.Count), sha256.New()
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
	p.Limit, p.Select, p.shard = nil, func(id string) bool { return shard.Attempts[id] != nil }, shard
	p.tasks = slices.DeleteFunc(p.tasks, func(t plannedTask) bool { return !p.Select(t.id) })
}

// load is what a shard has to do.
type load struct {
	shard    int // from 1
	seconds  float64
	attempts int
}

// everyAttempt returns the attempts of all shards.
func (p *Plan) everyAttempt() (all []dealt) {
	mean := 1.0
	if n := len(p.Shard.Seconds); n > 0 {
		mean = 0
		for _, task := range slices.Sorted(maps.Keys(p.Shard.Seconds)) { // sums of floating-point numbers depend on their order
			mean += p.Shard.Seconds[task] / float64(n)
		}
	}
	for _, task := range p.tasks {
		seconds, known := p.Shard.Seconds[task.id]
		if !known {
			seconds = mean
		}
		for n := 1; n <= p.Attempts; n++ {
			all = append(all, dealt{key{task.id, n}, seconds, sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", task.id, n))})
		}
	}
	return all
}

// attemptNumbers returns the numbers of a task's planned attempts.
func (p Plan) attemptNumbers(task string) []int {
	if p.shard != nil {
		return p.shard.Attempts[task]
	}
	all := make([]int, p.Attempts)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

// attempts returns how many attempts are planned.
func (p Plan) attempts() int {
	if p.shard == nil {
		return len(p.tasks) * p.Attempts
	}
	return p.shard.Planned()
}

// shardName describes a shard in messages.
func shardName(s *record.Shard) string {
	if s == nil {
		return "a run that is not sharded"
	}
	return fmt.Sprintf("shard %d of %d, dealt as %s", s.Index, s.Count, s.Deal)
}

// Durations returns the average seconds of each task's attempts in the run in dir, for
// [Shard.Seconds]. The records must meet t.
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
