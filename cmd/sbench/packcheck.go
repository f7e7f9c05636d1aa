package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness/setup"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/check"
	"github.com/securebench/sbench/run/site"
	"github.com/securebench/sbench/runtime/host"
)

type packCheckCmd struct {
	Dir string `arg:"" help:"Directory with a pack's manifest.yaml and tasks.jsonl, or a tester file, which names its pack."`

	testerFlags `set:"config=Tester file. Its runtime and verification sections and its allowed_domains are used; the rest is ignored. Default: tester-command.yaml of the pack, if it has one."`
	Limit       *int     `short:"n" placeholder:"N" help:"Check only the first N tasks."`
	Task        []string `short:"t" placeholder:"GLOB" help:"Check only the tasks whose id matches one of these patterns."`
	Jobs        int      `short:"j" placeholder:"N" help:"How many tasks to run at a time. Default: the tester file's, else as many as the cores allow."`
	OutputDir   string   `short:"o" placeholder:"DIR" help:"Keep the records in this directory. Each run has a subdirectory with the name of its candidates, such as reference or empty."`
	progressFlags
	jsonFlag
}

// Run makes all runs. The exit code for a pack that does not measure anything is 2, as for an invalid one.
func (cmd *packCheckCmd) Run(ctx context.Context, a *app) (err error) {
	if err := errors.Join(notNegative("--limit", *cmp.Or(cmd.Limit, new(int))), notNegative("--jobs", cmd.Jobs)); err != nil {
		return err
	}
	show := a.progress(cmd.Progress)
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
	pack := check.Check{Inputs: in, Options: run.Options{Output: out, Limit: cmd.Limit, Select: compiler.Selector(nil, cmd.Task), Jobs: cmp.Or(cmd.Jobs, in.Tester.Run.Jobs), Progress: show}}
	egress, err := setup.Egress(in.Tester)
	if err != nil {
		return err
	}
	if _, err := run.NewPlan(ctx, in, pack.Options); err != nil { // before there is a daemon
		return err
	}
	var report check.Report
	err = a.withClient(ctx, in.Tester, func(c *host.Host) (err error) {
		pack.Run = func(ctx context.Context, plan run.Plan) (summary run.Summary, err error) {
			at, end, err := site.Open(ctx, c, plan, run.Site{Egress: egress, Version: site.Version(version)})
			if err != nil {
				return summary, err
			}
			summary, err = run.Run(ctx, plan, at)
			return summary, errors.Join(err, end(ctx))
		}
		report, err = pack.Pack(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return cmd.print(a, report)
}

// importedTester is the tester file of a pack that was imported, which allows what its tasks need.
const importedTester = "tester-command.yaml"

// load reads the tester file of the check: --config, the pack's own, or an empty one.
func (cmd *packCheckCmd) load(a *app) (run.Inputs, error) {
	tester := &testerfile.File{Verification: testerfile.VerificationSection{DisallowDangerousCommands: true}}
	info, err := os.Stat(cmd.Dir)
	named := err == nil && !info.IsDir() // a tester file names the pack
	switch own := filepath.Join(cmd.Dir, importedTester); {
	case named && cmd.Config != "":
		return run.Inputs{}, fmt.Errorf("%w: %q is a tester file: leave out --config", errUsage, cmd.Dir)
	case named:
		cmd.Config = cmd.Dir
	case cmd.Config == "" && exists(own):
		cmd.Config = own
	}
	source, err := cmd.source()
	if err == nil && source.path != "" {
		tester, err = readTester(a, source)
	}
	if err != nil {
		return run.Inputs{}, err
	}
	if !named {
		tester.Benchmark = testerfile.BenchmarkSection{Manifest: filepath.Join(cmd.Dir, "manifest.yaml"), Tasks: compiler.TasksFile(cmd.Dir)}
	}
	return check.Inputs(tester)
}

func (cmd *packCheckCmd) print(a *app, r check.Report) error {
	var err error
	attacks := ""
	if r.Attacks > 0 {
		attacks = fmt.Sprintf(", %d hostile candidate(s) tried", r.Attacks)
	}
	if cmd.JSON {
		err = a.json(r)
	} else {
		err = errors.Join(
			printTable(a, r.Wrong, func(w check.Wrong) string {
				return fmt.Sprintf("%q: %s %s %s", w.Task, w.StandIn, w.Status, cmp.Or(w.Reason, "although it solves nothing"))
			}),
			printTable(a, r.Weak, func(w check.Weak) string { return fmt.Sprintf("%q: %s", w.Task, w.Message) }),
			a.printf("checked %d task(s): reference passed %d, empty passed %d%s\n", r.Empty.Total, r.Reference.Passed, r.Empty.Passed, attacks),
		)
	}
	if err == nil && len(r.Wrong) > 0 {
		err = problemsPrinted(fmt.Sprintf("the pack does not measure what it should: %d result(s) are not as expected", len(r.Wrong)))
	}
	return err
}
