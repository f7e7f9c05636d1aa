package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime/containerd"
)

type regradeCmd struct {
	RunDir    string   `arg:"" name:"run-dir" help:"Output directory of a run."`
	Config    string   `required:"" placeholder:"FILE" help:"Tester file of that run."`
	OutputDir string   `required:"" placeholder:"DIR" help:"Directory for the new records."`
	Task      []string `placeholder:"GLOB" help:"Only the tasks whose id matches one of these patterns."`
	Key       string   `placeholder:"FILE" help:"Public key (PKIX, PEM) that must have signed the end of the run's records."`
	Progress  string   `enum:"auto,plain,json,none" default:"auto" help:"Progress on standard error: auto (a live view on a terminal, else plain), plain, json or none."`
	JSON      bool     `name:"json" help:"Print the summary and the changed verdicts as JSON."`

	AcceptUnsigned bool `help:"Take records that are not sealed, or not signed by --key. The new seal says so."`
}

// Run verifies the stored candidates again and prints which verdicts changed.
func (cmd *regradeCmd) Run(ctx context.Context, a *app) error {
	show := progress(a, cmd.Progress, false)
	in, err := loadTester(a, cmd.Config)
	if err != nil {
		return err
	}
	old, err := filepath.Abs(cmd.RunDir)
	if err != nil {
		return err
	}
	key, err := publicKey(cmd.Key)
	if err != nil {
		return err
	}
	options := run.Options{Output: cmd.OutputDir, Select: selector(cmd.Task), Trust: record.Trust{Key: key, AcceptUnsigned: cmd.AcceptUnsigned}}
	options.Progress = show
	return a.withClient(ctx, in.Tester, func(c *containerd.Client) error {
		cfg, engine, err := configure(ctx, c, in, run.Dependencies{}, options)
		if err != nil {
			return err
		}
		summary, changes, err := run.Regrade(ctx, cfg, old)
		return errors.Join(err, cmd.print(a, summary, changes), engine.Close(ctx))
	})
}

func (cmd *regradeCmd) print(a *app, summary run.Summary, changes []run.Change) error {
	if cmd.JSON {
		return a.json(map[string]any{"summary": score(summary), "changes": append([]run.Change{}, changes...)})
	}
	err := printTable(a, changes, func(c run.Change) string { return fmt.Sprintf("changed: %q from %s to %s", c.Task, c.Old, c.New) })
	return errors.Join(err, a.printSummary(summary, false))
}
