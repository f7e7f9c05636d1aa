package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

type regradeCmd struct {
	RunDir      string `arg:"" name:"run-dir" help:"Output directory of a run."`
	testerFlags `set:"config=Tester file of that run. Required."`
	OutputDir   string   `short:"o" required:"" placeholder:"DIR" help:"Directory for the new records."`
	Task        []string `short:"t" placeholder:"GLOB" help:"Only the tasks whose id matches one of these patterns."`
	Jobs        int      `short:"j" placeholder:"N" help:"How many candidates to verify at a time. Default: the tester file's, else as many as the cores allow."`
	Key         string   `placeholder:"FILE" help:"Public key (PKIX, PEM) that must have signed the end of the run's records."`
	progressFlags
	JSON bool `name:"json" help:"Print the summary and the changed verdicts as JSON."`

	AcceptUnsigned bool `help:"Accept records that are not sealed, or not signed by --key. The new seal says so."`
}

// Run verifies the stored candidates again and prints which verdicts changed.
func (cmd *regradeCmd) Run(ctx context.Context, a *app) error {
	show := progress(a, cmd.Progress, cmd.Quiet)
	source, err := cmd.source()
	replaced := map[string]bool{"run.jobs": cmd.Jobs > 0, "run.output_dir": cmd.OutputDir != ""}
	if err = errors.Join(err, source.unlessReplaced(replaced), cmd.check(), notNegative("--jobs", cmd.Jobs)); err != nil {
		return err
	}
	if source.path == "" {
		return fmt.Errorf("%w: name the tester file of that run by --config", errUsage)
	}
	in, err := loadTester(a, source)
	if err != nil {
		return err
	}
	judge, _, err := judgeFor(in.Tester, "")
	if err != nil {
		return err
	}
	old, err := filepath.Abs(cmd.RunDir)
	if err != nil {
		return err
	}
	key, err := keyFrom("--key", cmd.Key, record.LoadPublicKey)
	if err != nil {
		return err
	}
	cfg := run.Config{Inputs: in, Dependencies: run.Dependencies{Judge: judge}, Options: run.Options{
		Output: cmd.OutputDir, Select: selector(cmd.Task), Jobs: cmp.Or(cmd.Jobs, in.Tester.Run.Jobs),
		Trust: record.Trust{Key: key, AcceptUnsigned: cmd.AcceptUnsigned},
	}}
	var sent func()
	if cfg.Progress, sent, err = a.exported(ctx, show); err != nil {
		return err
	}
	defer sent()
	cfg, at, err := a.begin(ctx, cfg)
	if err != nil {
		return err
	}
	summary, changes, err := run.Regrade(ctx, cfg, old)
	return errors.Join(err, cmd.print(a, summary, changes), at.close(ctx))
}

func (cmd *regradeCmd) print(a *app, summary run.Summary, changes []run.Change) error {
	if cmd.JSON {
		return a.json(map[string]any{"summary": score(summary), "changes": append([]run.Change{}, changes...)})
	}
	err := printTable(a, changes, func(c run.Change) string { return fmt.Sprintf("changed: %q from %s to %s", c.Task, c.Old, c.New) })
	return errors.Join(err, a.printSummary(summary, false))
}
