package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness/setup"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/site"
)

type specCmd struct {
	testerArgs
	Task []string `short:"t" placeholder:"GLOB" help:"Show only the tasks whose id matches. Default: the first task."`
}

// taskSpec is one line of output.
type taskSpec struct {
	Task string `json:"task"`
	Spec any    `json:"spec"`
}

// Run makes the sandbox of each task's harness as a run would, and prints its specification. It executes
// nothing.
func (cmd *specCmd) Run(ctx context.Context, a *app) error {
	source, err := cmd.source()
	if err != nil {
		return err
	}
	in, err := loadTester(a, source)
	if err != nil {
		return err
	}
	egress, err := setup.Egress(in.Tester)
	if err != nil {
		return err
	}
	h, problems := setup.Of(in.Tester)
	if problems != nil {
		return problems
	}
	producer, err := h.Producer(ctx, h.NoKeys(), a.tools)
	if err != nil {
		return err
	}
	options := run.Options{Select: compiler.Selector(nil, cmd.Task)}
	if len(cmd.Task) == 0 {
		options.Limit = new(1)
	}
	plan, err := run.NewPlan(ctx, in, options)
	if err != nil {
		return err
	}
	at, end, err := a.openSite(ctx, plan, run.Site{Producer: producer, Egress: egress})
	if err != nil {
		return err
	}
	return errors.Join(cmd.print(ctx, a, plan, at), end())
}

func (cmd *specCmd) print(ctx context.Context, a *app, plan run.Plan, at run.Site) error {
	for request, err := range run.Requests(ctx, plan, at) {
		if err != nil {
			return err
		}
		spec, err := site.Spec(ctx, at, request)
		if err != nil {
			return fmt.Errorf("task %q: %w", request.Task.ID, err)
		}
		if err := a.json(taskSpec{request.Task.ID, spec}); err != nil {
			return err
		}
	}
	return nil
}
