package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/setup"
	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/images"
	"github.com/securebench/sbench/runtime/sandbox"
)

// A site is a run.Site with an engine on a daemon.
type site struct {
	run.Site
	engine *sandbox.Engine
	client *host.Host // nil if close does not close it
}

// openSite connects to the daemon for a run, and completes base with the fields that need a daemon. The caller
// closes the site.
func (a *app) openSite(ctx context.Context, plan run.Plan, base run.Site) (*site, error) {
	c, err := a.connect(ctx, plan.Tester)
	if err != nil {
		return nil, err
	}
	s, err := siteOn(ctx, c, plan, base)
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	s.client = c
	return s, nil
}

// siteOn is openSite with a client that stays open when the site is closed.
func siteOn(ctx context.Context, c *host.Host, plan run.Plan, base run.Site) (*site, error) {
	s, t := &site{Site: base}, plan.Tester
	var err error
	if s.Degraded, err = c.Degraded(); err != nil {
		return nil, marked(run.ErrInfrastructure, err)
	}
	egress, err := setup.Egress(t)
	if err != nil {
		return nil, err
	}
	egress.Domains, egress.Log = t.Runtime.SetupDomains, proxy.NewLog(io.Discard)
	if s.engine, err = c.NewRun(ctx, plan.Isolations()...); err != nil {
		return nil, err
	}
	found := &resolver{
		c: c, engine: s.engine, policy: images.PullPolicy(t.Runtime.Pull), progress: plan.Progress, setup: egress,
		pack: filepath.Dir(plan.Pack.ManifestPath),
	}
	if t.Runtime.AllowCapabilities {
		found.capabilities = environment.PackageCapabilities()
	}
	s.Engine, s.Images, s.Calibrations = s.engine, found, filepath.Join(c.Root(), "calibrations")
	s.Version, s.Host, s.Isolation, s.GVisor = sbenchVersion(), hostFacts(c), c.Isolation(), c.GVisor()
	return s, nil
}

func (s *site) close(ctx context.Context) error {
	err := s.engine.Close(ctx)
	if s.client != nil {
		err = errors.Join(err, s.client.Close(ctx))
	}
	return err
}

// resolver finds images by a pull policy. It starts a sandbox on the first image: if no sandbox works
// here, that is one error before any task starts.
type resolver struct {
	c        *host.Host
	engine   *sandbox.Engine
	policy   images.PullPolicy
	progress func(run.Event)     // nil for none
	tried    []runtime.Isolation // with which a sandbox has worked
	// setup and capabilities are for the commands of a build or of environment.setup.
	setup        harness.Egress
	capabilities []string
	pack         string // the directory of the pack, which may have Dockerfiles; "" for none
}

func (r *resolver) Resolve(ctx context.Context, env environment.Environment) (runtime.Image, error) {
	img, err := r.find(ctx, env.Image)
	if errors.Is(err, runtime.ErrNotFound) && r.pack != "" {
		built, noRecord := pack.Images(r.pack)
		if noRecord == nil && slices.ContainsFunc(built, func(i pack.BuiltImage) bool { return i.Ref == env.Image }) {
			err = fmt.Errorf("%w; the pack has its Dockerfile: sbench image build --pack %s", err, quoted(r.pack))
		}
	}
	if err != nil {
		return img, err
	}
	least := runtime.Isolation(env.Isolation)
	if !slices.Contains(r.tried, least) {
		if err := r.engine.Trial(ctx, img, least); err != nil {
			return img, fmt.Errorf("%w: no sandbox could be started on the image %s here: %w", runtime.ErrUnavailable, img.Ref, err)
		}
		r.tried = append(r.tried, least)
	}
	if len(env.Setup) == 0 {
		return img, nil
	}
	return r.builder(os.TempDir(), least).Setup(ctx, img, env.Setup)
}

// isolated is an engine. Each of its sandboxes has the isolation least, or a stricter one.
type isolated struct {
	*sandbox.Engine
	least runtime.Isolation
}

// Create implements harness.Engine.
func (e isolated) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	cfg.Isolation = max(cfg.Isolation, e.least)
	return e.Engine.Create(ctx, cfg)
}

func (r *resolver) find(ctx context.Context, ref string) (runtime.Image, error) {
	if r.policy != images.PullAlways {
		img, err := r.c.Images.Get(ctx, ref, images.PullNever)
		if err == nil || r.policy == images.PullNever || images.Local(ref) || !errors.Is(err, runtime.ErrNotFound) {
			return img, err
		}
	}
	tell := func(detail string) {
		if r.progress != nil {
			r.progress(run.Event{Time: time.Now(), Kind: run.ImagePull, Detail: ref + detail})
		}
	}
	tell("")
	img, err := r.c.Images.Get(ctx, ref, r.policy)
	if err == nil {
		tell(": done")
	}
	return img, err
}
