package site

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/sandbox"
)

// Spec returns the specification of the sandbox in which the harness of a request would execute its command. It makes
// the sandbox as a run would, and executes nothing in it.
func Spec(ctx context.Context, site run.Site, r harness.Request) (*specs.Spec, error) {
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
