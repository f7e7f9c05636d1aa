package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/setup"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/sandbox"
)

type specCmd struct {
	testerArgs
	Task []string `short:"t" placeholder:"GLOB" help:"Show only the tasks whose id matches. Default: the first task."`
}

// taskSpec is one line of output.
type taskSpec struct {
	Task string      `json:"task"`
	Spec *specs.Spec `json:"spec"`
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
	options := run.Options{Select: selector(nil, cmd.Task)}
	if len(cmd.Task) == 0 {
		options.Limit = new(1)
	}
	plan, err := run.NewPlan(ctx, in, options)
	if err != nil {
		return err
	}
	at, err := a.openSite(ctx, plan, run.Site{Producer: producer, Egress: egress})
	if err != nil {
		return err
	}
	return errors.Join(cmd.print(ctx, a, plan, at.Site), at.close(ctx))
}

func (cmd *specCmd) print(ctx context.Context, a *app, plan run.Plan, site run.Site) error {
	for request, err := range run.Requests(ctx, plan, site) {
		if err != nil {
			return err
		}
		spec, err := specOf(ctx, site, request)
		if err != nil {
			return fmt.Errorf("task %q: %w", request.Task.ID(), err)
		}
		if err := a.json(taskSpec{request.Task.ID(), spec}); err != nil {
			return err
		}
	}
	return nil
}

// specOf returns the specification of the sandbox in which the harness is about to execute its command.
func specOf(ctx context.Context, site run.Site, r harness.Request) (*specs.Spec, error) {
	r.Egress.Log = proxy.NewLog(io.Discard) // nothing runs that could use the network
	_, err := site.Producer.Produce(ctx, dryEngine{site.Engine}, r)
	var s shownSpec
	if !errors.As(err, &s) {
		return nil, fmt.Errorf("no sandbox was created: %w", err)
	}
	return s.spec, nil
}

// shownSpec is the error that ends a harness which is about to execute its command.
type shownSpec struct{ spec *specs.Spec }

func (shownSpec) Error() string { return "specification shown" }

// dryEngine makes sandboxes that show their specification instead of executing the harness.
type dryEngine struct{ harness.Engine }

func (e dryEngine) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	sandbox, err := e.Engine.Create(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return drySandbox{sandbox, cfg.Name}, nil
}

type drySandbox struct {
	runtime.Sandbox
	name string
}

func (s drySandbox) Exec(_ context.Context, p runtime.Process) (runtime.Exit, error) {
	if s.name != harness.SandboxName { // an agent's preflight
		return runtime.Exit{Reason: runtime.Exited}, nil
	}
	spec, err := s.Sandbox.(*sandbox.Sandbox).Spec(p)
	if err == nil {
		err = shownSpec{spec}
	}
	return runtime.Exit{}, err
}
