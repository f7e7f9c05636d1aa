package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/build"
	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/proxy/domain"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/images"
	"github.com/securebench/sbench/runtime/sandbox"
)

// resolver finds images by a pull policy. It starts a sandbox on the first image: if no sandbox works
// here, that is one error before any task starts.
type resolver struct {
	host     *host.Host
	engine   *sandbox.Engine
	policy   images.PullPolicy
	progress func(run.Event)     // nil for none
	tried    []runtime.Isolation // the isolations with which a sandbox has worked
	// setup and capabilities are for the commands of a build or of environment.setup.
	setup        harness.Egress
	capabilities []string
	pack         string // the directory of the pack, which may have Dockerfiles; "" for none
}

// Resolve implements run.Images.
func (r *resolver) Resolve(ctx context.Context, env environment.Environment) (runtime.Image, error) {
	img, err := r.find(ctx, env.Image)
	if errors.Is(err, runtime.ErrNotFound) && r.pack != "" {
		built, noRecord := pack.Images(r.pack)
		if noRecord == nil && slices.ContainsFunc(built, func(i pack.BuiltImage) bool { return i.Ref == env.Image }) {
			err = fmt.Errorf("%w; the pack has its Dockerfile: sbench image build --pack %q", err, r.pack)
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

func (r *resolver) find(ctx context.Context, ref string) (runtime.Image, error) {
	if r.policy != images.PullAlways {
		img, err := r.host.Images.Get(ctx, ref, images.PullNever)
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
	img, err := r.host.Images.Get(ctx, ref, r.policy)
	if err == nil {
		tell(": done")
	}
	return img, err
}

// builder returns what runs the steps of a build, or of a task's set-up, in sandboxes.
func (r *resolver) builder(temp string, least runtime.Isolation) build.Builder {
	limits := runtime.Limits{Memory: 2 << 30, CPUs: float64(goruntime.NumCPU()), Pids: 4096, LayerBytes: 8 << 30}
	return build.Builder{
		Engine: r.engine, Isolation: least, Images: buildImages{r.host.Images, r}, Limits: limits.Over(runtime.DefaultLimits()), Wall: time.Hour,
		Egress: r.setup, Capabilities: r.capabilities, Output: io.Discard, Temp: temp,
	}
}

// buildImages are the images of a daemon for a build.
type buildImages struct {
	*images.Store
	resolver *resolver
}

// Resolve implements build.Images.
func (b buildImages) Resolve(ctx context.Context, ref string) (runtime.Image, error) {
	return b.resolver.find(ctx, ref)
}

// A Build makes images from Dockerfiles.
type Build struct {
	File   string          // the Dockerfile, relative to each context
	Allow  []domain.Domain // that commands may reach
	Mirror []domain.Domain // the same, also at private addresses
	Output io.Writer       // for what commands print
}

// Images builds images one after the other, and goes on with the next when one fails. Their contexts are paths of this
// process. It calls done with each result, and returns all errors that done returns.
func (o Build) Images(ctx context.Context, h *host.Host, wanted []pack.BuiltImage, done func(pack.BuiltImage, runtime.Image, error) error) (failed error) {
	dir, err := os.MkdirTemp("", "sbench-build-*")
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, os.RemoveAll(dir)) }()
	engine, err := h.NewRun(ctx)
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, engine.Close(ctx)) }()
	found := &resolver{host: h, engine: engine, policy: images.PullMissing, setup: harness.Egress{Domains: o.Allow, Mirrors: o.Mirror}, capabilities: environment.PackageCapabilities()}
	b := found.builder(dir, "")
	b.Output = o.Output
	for _, image := range wanted {
		var img runtime.Image
		ref, err := images.Normalize(image.Ref)
		if err != nil {
			err = fmt.Errorf("%w: %w", runtime.ErrInvalid, err)
		} else {
			img, err = b.Build(ctx, image.Context, o.File, ref)
		}
		if err != nil {
			err = fmt.Errorf("build %s: %w", image.Ref, err)
		}
		failed = errors.Join(failed, done(image, img, err))
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}
