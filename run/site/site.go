// Package site is what runs and builds of images need of a host with a daemon: an engine for their sandboxes, their
// images, and the facts about the host that records contain.
package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	goruntime "runtime"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/images"
	"github.com/securebench/sbench/runtime/sandbox"
	"github.com/securebench/sbench/runtime/userns"
)

// Open completes s with the fields that need a daemon. The caller ends the engine with the function that it returns, and
// then closes h.
func Open(ctx context.Context, h *host.Host, plan run.Plan, s run.Site) (run.Site, func(context.Context) error, error) {
	t := plan.Tester
	var err error
	if s.Degraded, err = h.Degraded(); err != nil {
		return s, nil, fmt.Errorf("%w: %w", run.ErrInfrastructure, err)
	}
	egress := s.Egress
	egress.Domains = t.Runtime.SetupDomains
	engine, err := h.NewRun(ctx, plan.Isolations()...)
	if err != nil {
		return s, nil, err
	}
	found := &resolver{
		host: h, engine: engine, policy: images.PullPolicy(t.Runtime.Pull), progress: plan.Progress, setup: egress,
		pack: filepath.Dir(plan.Pack.ManifestPath),
	}
	if t.Runtime.AllowCapabilities {
		found.capabilities = environment.PackageCapabilities()
	}
	s.Engine, s.Images, s.Calibrations = engine, found, filepath.Join(h.Root(), "calibrations")
	s.Host, s.Isolation, s.GVisor = facts(h), h.Isolation(), h.GVisor()
	return s, engine.Close, nil
}

// facts returns what records say about a host. Unknown facts are zero.
func facts(c *host.Host) record.Host {
	h := record.Host{OS: goruntime.GOOS, Arch: goruntime.GOARCH, CPUs: goruntime.NumCPU(), Containerd: c.Version()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		h.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		h.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	_, h.Runtime = c.OCIRuntime()
	h.Shim = c.Shim()
	if hierarchies, err := cgroup.Mounted(); err == nil {
		h.Cgroups = fmt.Sprint(hierarchies.Mode())
	}
	h.UserNamespace, h.UserNamespaceReason = c.UserNamespace()
	h.Rootless = userns.Inside()
	return h
}

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
