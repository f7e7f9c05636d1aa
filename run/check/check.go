// Package check runs candidates on the tasks of a pack that must pass or must fail, and reports the tasks that do not
// measure what they should.
package check

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/standin"
)

// A Report is what a check found. A task is wrong if its reference does not pass, if its empty candidate or a
// hostile one does not fail, or if any of these candidates breaks the driver or the oracle.
type Report struct {
	Reference run.Summary `json:"reference"`
	Empty     run.Summary `json:"empty"`
	Attacks   int         `json:"attacks"` // hostile candidates for split checks
	Wrong     []Wrong     `json:"wrong"`
	// Weak lists test files that cannot be read and so are not changed, and solutions that agents can read.
	Weak []Weak `json:"weak,omitempty"`
}

// Weak is what a task's verifier noted about the task.
type Weak struct {
	Task    string `json:"task"`
	Message string `json:"message"`
}

// Wrong is a result that is not as it must be.
type Wrong struct {
	Task    string        `json:"task"`
	StandIn standin.Kind  `json:"stand_in"`
	Status  record.Status `json:"status"`
	Reason  string        `json:"reason,omitempty"`
}

// Inputs opens the pack that a tester file names. What the check does not use of the tester file is left out.
func Inputs(tester *testerfile.File) (run.Inputs, error) {
	tester.Harness = testerfile.HarnessSection{
		Type: testerfile.HarnessCommand, Config: testerfile.HarnessConfig{TaskFile: "task.json", AllowedDomains: tester.Harness.Config.AllowedDomains},
	}
	pack, err := family.OpenPack(tester.Benchmark.Manifest, tester.Benchmark.Tasks)
	return run.Inputs{Tester: tester, Pack: pack}, err
}

// A Check checks a pack.
type Check struct {
	Inputs  run.Inputs
	Options run.Options // of all runs; each has a directory of its own below Output
	// Run makes a run.
	Run func(ctx context.Context, plan run.Plan) (run.Summary, error)
}

// Pack makes all runs. The results in the report are sorted by their stand-ins, the reference first, then in the order
// of the pack's tasks.
func (c Check) Pack(ctx context.Context) (r Report, err error) {
	r.Wrong = []Wrong{}
	// A pack of SecureBench 2.0 has no solutions.
	if r.Reference, err = c.measure(ctx, &r, standin.Reference, record.Passed, func(t *compiler.Task) bool { return t.Verification() == nil }); err != nil {
		return r, err
	}
	if r.Empty, err = c.measure(ctx, &r, standin.Empty, record.Failed, func(*compiler.Task) bool { return true }); err != nil {
		return r, err
	}
	for _, hostile := range standin.Hostile() {
		summary, err := c.measure(ctx, &r, hostile, record.Failed, standin.Attacked)
		if err != nil {
			return r, err
		}
		r.Attacks += summary.Total
	}
	order := map[string]int{}
	for task, err := range c.Inputs.Pack.Tasks() {
		if err != nil {
			return r, err
		}
		order[task.ID()] = len(order)
	}
	slices.SortStableFunc(r.Weak, func(a, b Weak) int { return order[a.Task] - order[b.Task] })
	slices.SortStableFunc(r.Wrong, func(a, b Wrong) int {
		return cmp.Or(strings.Compare(string(b.StandIn), string(a.StandIn)), order[a.Task]-order[b.Task])
	})
	return r, nil
}

// measure runs a stand-in on the selected tasks that it fits. It reports a task as wrong if the task's status is not
// want, or if the stand-in's candidate broke the driver or the oracle.
func (c Check) measure(ctx context.Context, r *Report, standIn standin.Kind, want record.Status, fits func(*compiler.Task) bool) (summary run.Summary, err error) {
	tasks, err := c.selected(fits)
	if err != nil || len(tasks) == 0 {
		return summary, err
	}
	in, o, tester := c.Inputs, c.Options, *c.Inputs.Tester
	in.Tester = &tester
	name := strings.ReplaceAll(string(standIn), ": ", "-")
	o.Output = filepath.Join(c.Options.Output, name)
	tester.Run = testerfile.RunSection{ID: "check-" + name, OutputDir: o.Output}
	o.Select, o.StandIn = func(id string) bool { return tasks[id] }, standIn
	o.Progress = func(e run.Event) {
		if e.Kind == run.TaskDone && !e.Again && (e.Status != want || strings.HasSuffix(e.Reason, "_broken")) {
			r.Wrong = append(r.Wrong, Wrong{e.Task, standIn, e.Status, e.Reason})
		}
		if e.Kind == run.VerifierDone && standIn == standin.Reference && e.Detail != "" {
			r.Weak = append(r.Weak, Weak{e.Task, e.Detail})
		}
		if c.Options.Progress != nil {
			c.Options.Progress(e)
		}
	}
	plan, err := run.NewPlan(ctx, in, o)
	if err != nil {
		return summary, err
	}
	summary, err = c.Run(ctx, plan)
	if errors.As(err, new(run.PackFault)) { // a check is meant to find it
		err = nil
	}
	return summary, err
}

// selected returns the ids of the selected tasks for which fits returns true. The limit counts the other tasks, too.
func (c Check) selected(fits func(*compiler.Task) bool) (map[string]bool, error) {
	ids, n := map[string]bool{}, 0
	for task, err := range c.Inputs.Pack.Tasks() {
		switch {
		case err != nil:
			return nil, err
		case c.Options.Select != nil && !c.Options.Select(task.ID()):
			continue
		case c.Options.Limit != nil && n == *c.Options.Limit:
			return ids, nil
		}
		if n++; fits(task) {
			ids[task.ID()] = true
		}
	}
	return ids, nil
}
