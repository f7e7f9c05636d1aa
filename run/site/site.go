// Package site is what runs and builds of images need of a host with a daemon: an engine for their sandboxes, their
// images, and the facts about the host that records contain.
package site

import (
	"context"
	"fmt"
	"path/filepath"
	goruntime "runtime"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/images"
	"github.com/securebench/sbench/runtime/sandbox"
	"github.com/securebench/sbench/runtime/userns"
)

// A Site is a run.Site with an engine on a daemon.
type Site struct {
	run.Site
	engine *sandbox.Engine
}

// Open completes base with the fields that need a daemon. The caller closes the site, and then h.
func Open(ctx context.Context, h *host.Host, plan run.Plan, base run.Site) (*Site, error) {
	s, t := &Site{Site: base}, plan.Tester
	var err error
	if s.Degraded, err = h.Degraded(); err != nil {
		return nil, fmt.Errorf("%w: %w", run.ErrInfrastructure, err)
	}
	egress := base.Egress
	egress.Domains = t.Runtime.SetupDomains
	if s.engine, err = h.NewRun(ctx, plan.Isolations()...); err != nil {
		return nil, err
	}
	found := &resolver{
		host: h, engine: s.engine, policy: images.PullPolicy(t.Runtime.Pull), progress: plan.Progress, setup: egress,
		pack: filepath.Dir(plan.Pack.ManifestPath),
	}
	if t.Runtime.AllowCapabilities {
		found.capabilities = environment.PackageCapabilities()
	}
	s.Engine, s.Images, s.Calibrations = s.engine, found, filepath.Join(h.Root(), "calibrations")
	s.Host, s.Isolation, s.GVisor = facts(h), h.Isolation(), h.GVisor()
	return s, nil
}

// Close ends the engine.
func (s *Site) Close(ctx context.Context) error { return s.engine.Close(ctx) }

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
