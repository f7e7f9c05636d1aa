package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/setup"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/standin"
	"github.com/securebench/sbench/runtime/host"
)

type packCheckCmd struct {
	Dir string `arg:"" help:"Directory with a pack's manifest.yaml and tasks.jsonl."`

	testerFlags `set:"config=Tester file whose runtime and verification sections and allowed_domains are used, instead of those of the pack's own tester-command.yaml, if it has one. Its pack and the rest of its harness are ignored."`
	Limit       *int     `short:"n" placeholder:"N" help:"Check only the first N tasks."`
	Task        []string `short:"t" placeholder:"GLOB" help:"Check only the tasks whose id matches one of these patterns."`
	Jobs        int      `short:"j" placeholder:"N" help:"How many tasks to run at a time. Default: the tester file's, else as many as the cores allow."`
	OutputDir   string   `short:"o" placeholder:"DIR" help:"Keep the records of all runs in this directory, each below the name of its candidates, such as reference or empty."`
	progressFlags
	jsonFlag
}

// checkReport is what a check found. A task is wrong if its reference does not pass, if its empty candidate or a
// hostile one does not fail, or if any of these candidates breaks the driver or the oracle.
type checkReport struct {
	Reference run.Summary `json:"reference"`
	Empty     run.Summary `json:"empty"`
	Attacks   int         `json:"attacks"` // hostile candidates for split checks
	Wrong     []wrongTask `json:"wrong"`
	// Weak lists test files that cannot be read and so are not changed, and solutions that agents can read.
	Weak []weakTask `json:"weak,omitempty"`
}

type weakTask struct {
	Task    string `json:"task"`
	Message string `json:"message"`
}

type wrongTask struct {
	Task    string        `json:"task"`
	StandIn standin.Kind  `json:"stand_in"`
	Status  record.Status `json:"status"`
	Reason  string        `json:"reason,omitempty"`
}

// Run makes all runs. The exit code for a pack that does not measure anything is 2, as for an invalid one.
func (cmd *packCheckCmd) Run(ctx context.Context, a *app) (err error) {
	if err := errors.Join(cmd.check(), notNegative("--limit", *cmp.Or(cmd.Limit, new(int))), notNegative("--jobs", cmd.Jobs)); err != nil {
		return err
	}
	show := progress(a, cmd.Progress, cmd.Quiet)
	in, err := cmd.load(a)
	if err != nil {
		return err
	}
	out := cmd.OutputDir
	if out == "" {
		if out, err = os.MkdirTemp("", "sbench-check-*"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
	}
	report := checkReport{Wrong: []wrongTask{}}
	check := packCheck{in: in, out: out, report: &report, show: show}
	check.options = run.Options{Output: out, Limit: cmd.Limit, Select: selector(nil, cmd.Task), Jobs: cmp.Or(cmd.Jobs, in.Tester.Run.Jobs)}
	if check.egress, err = setup.Egress(in.Tester); err != nil {
		return err
	}
	if _, err := run.NewPlan(ctx, in, check.options); err != nil { // before there is a daemon
		return err
	}
	err = a.withClient(ctx, in.Tester, func(c *host.Host) (err error) {
		check.client = c
		// A pack of SecureBench 2.0 has no solutions.
		if report.Reference, err = check.measure(ctx, standin.Reference, record.Passed, func(t *compiler.Task) bool { return t.Verification() == nil }); err != nil {
			return err
		}
		if report.Empty, err = check.measure(ctx, standin.Empty, record.Failed, func(*compiler.Task) bool { return true }); err != nil {
			return err
		}
		for _, hostile := range standin.Hostile() {
			summary, err := check.measure(ctx, hostile, record.Failed, standin.Attacked)
			if err != nil {
				return err
			}
			report.Attacks += summary.Total
		}
		return report.inOrder(in.Pack)
	})
	if err != nil {
		return err
	}
	return cmd.print(a, report)
}

// importedTester is the tester file of a pack that was imported, which allows what its tasks need.
const importedTester = "tester-command.yaml"

// load opens the pack and makes a tester file for it, using what applies of --config.
func (cmd *packCheckCmd) load(a *app) (run.Inputs, error) {
	tester := &testerfile.File{Verification: testerfile.VerificationSection{DisallowDangerousCommands: true}}
	if own := filepath.Join(cmd.Dir, importedTester); cmd.Config == "" && exists(own) {
		cmd.Config = own
	}
	source, err := cmd.source()
	if err == nil && source.path != "" {
		tester, err = readTester(a, source)
	}
	if err != nil {
		return run.Inputs{}, err
	}
	manifest, tasks := filepath.Join(cmd.Dir, "manifest.yaml"), compiler.TasksFile(cmd.Dir)
	tester.Benchmark = testerfile.BenchmarkSection{Manifest: manifest, Tasks: tasks}
	tester.Harness = testerfile.HarnessSection{
		Type: testerfile.HarnessCommand, Config: testerfile.HarnessConfig{TaskFile: "task.json", AllowedDomains: tester.Harness.Config.AllowedDomains},
	}
	pack, err := family.OpenPack(manifest, tasks)
	return run.Inputs{Tester: tester, Pack: pack}, err
}

// packCheck is one check of a pack.
type packCheck struct {
	client  *host.Host
	in      run.Inputs
	options run.Options // of all runs
	egress  harness.Egress
	out     string
	report  *checkReport
	show    func(run.Event) // nil for none
}

// measure runs a stand-in on the selected tasks that it fits. It reports a task as wrong if the task's status is not
// want, or if the stand-in's candidate broke the driver or the oracle.
func (p packCheck) measure(ctx context.Context, standIn standin.Kind, want record.Status, fits func(*compiler.Task) bool) (summary run.Summary, err error) {
	tasks, err := p.selected(fits)
	if err != nil || len(tasks) == 0 {
		return summary, err
	}
	p.options.Select = func(id string) bool { return tasks[id] }
	name := strings.ReplaceAll(string(standIn), ": ", "-")
	out := filepath.Join(p.out, name)
	p.in.Tester.Run = testerfile.RunSection{ID: "check-" + name, OutputDir: out}
	p.options.StandIn, p.options.Output = standIn, out
	faults := 0 // errors that the pack caused: a check is meant to find them
	p.options.Progress = func(e run.Event) {
		if e.Kind == run.TaskDone && !e.Again && (e.Status != want || strings.HasSuffix(e.Reason, "_broken")) {
			p.report.Wrong = append(p.report.Wrong, wrongTask{e.Task, standIn, e.Status, e.Reason})
			if e.Status == record.Error && e.Reason != run.Infrastructure {
				faults++
			}
		}
		if e.Kind == run.VerifierDone && standIn == standin.Reference && e.Detail != "" {
			p.report.Weak = append(p.report.Weak, weakTask{e.Task, e.Detail})
		}
		if p.show != nil {
			p.show(e)
		}
	}
	plan, err := run.NewPlan(ctx, p.in, p.options)
	if err != nil {
		return summary, err
	}
	at, err := siteOn(ctx, p.client, plan, run.Site{Egress: p.egress})
	if err != nil {
		return summary, err
	}
	summary, err = run.Run(ctx, plan, at.Site)
	if errors.Is(err, run.ErrInfrastructure) && summary.Errors == faults {
		err = nil
	}
	return summary, errors.Join(err, at.close(ctx))
}

// selected returns the ids of the selected tasks for which fits returns true. The limit counts the other tasks, too.
func (p packCheck) selected(fits func(*compiler.Task) bool) (map[string]bool, error) {
	ids, n := map[string]bool{}, 0
	for task, err := range p.in.Pack.Tasks() {
		switch {
		case err != nil:
			return nil, err
		case p.options.Select != nil && !p.options.Select(task.ID()):
			continue
		case p.options.Limit != nil && n == *p.options.Limit:
			return ids, nil
		}
		if n++; fits(task) {
			ids[task.ID()] = true
		}
	}
	return ids, nil
}

// inOrder sorts the results, which arrive in any order: by their stand-ins, the reference first, then in the order of
// the pack's tasks.
func (r *checkReport) inOrder(pack *compiler.Pack) error {
	order := map[string]int{}
	for task, err := range pack.Tasks() {
		if err != nil {
			return err
		}
		order[task.ID()] = len(order)
	}
	slices.SortStableFunc(r.Weak, func(a, b weakTask) int { return order[a.Task] - order[b.Task] })
	slices.SortStableFunc(r.Wrong, func(a, b wrongTask) int {
		return cmp.Or(strings.Compare(string(b.StandIn), string(a.StandIn)), order[a.Task]-order[b.Task])
	})
	return nil
}

func (cmd *packCheckCmd) print(a *app, r checkReport) error {
	var err error
	attacks := ""
	if r.Attacks > 0 {
		attacks = fmt.Sprintf(", %d hostile candidate(s) tried", r.Attacks)
	}
	if cmd.JSON {
		err = a.json(r)
	} else {
		err = errors.Join(
			printTable(a, r.Wrong, func(w wrongTask) string { return fmt.Sprintf("%q: %s %s %s", w.Task, w.StandIn, w.Status, w.Reason) }),
			printTable(a, r.Weak, func(w weakTask) string { return fmt.Sprintf("%q: %s", w.Task, w.Message) }),
			a.printf("checked %d task(s): reference passed %d, empty passed %d%s\n", r.Empty.Total, r.Reference.Passed, r.Empty.Passed, attacks),
		)
	}
	if err == nil && len(r.Wrong) > 0 {
		err = problemsPrinted(fmt.Sprintf("the pack does not measure what it should: %d result(s) are not as expected", len(r.Wrong)))
	}
	return err
}
