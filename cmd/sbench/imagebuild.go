package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/build"
	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/domain"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/images"
)

type imageBuildCmd struct {
	Context string   `arg:"" optional:"" help:"Directory with a Dockerfile and the files it copies."`
	As      string   `placeholder:"REF" help:"Name for the image."`
	File    string   `default:"Dockerfile" help:"Dockerfile, relative to the directory."`
	Pack    string   `placeholder:"DIR" help:"Build the images of all Dockerfiles in an imported pack, instead of one."`
	With    string   `enum:"auto,buildkit,buildah,podman,sbench" default:"auto" help:"Builder: buildkit, buildah, podman, or sbench itself, in its own sandboxes. auto takes the first that this host has, or sbench for Dockerfiles whose base is an image of sbench.local."`
	Addr    string   `env:"BUILDKIT_HOST" placeholder:"ADDRESS" help:"Address of BuildKit, as buildctl takes it."`
	Allow   []string `placeholder:"DOMAIN" help:"Domain that commands may reach where sbench itself builds, with its subdomains; can be repeated. Default: none."`
	jsonFlag
}

// buildkitSocket is where buildctl looks for BuildKit if no address is given.
const buildkitSocket = "/run/buildkit/buildkitd.sock"

// The values of --with.
const (
	withBuildkit = "buildkit"
	withBuildah  = "buildah"
	withPodman   = "podman"
	withSbench   = "sbench"
)

// builder builds an image under the name ref.
type builder func(ctx context.Context, image pack.BuiltImage, ref string) (runtime.Image, error)

// Run builds the images one after the other, and goes on with the next when one fails.
func (cmd *imageBuildCmd) Run(ctx context.Context, a *app) error {
	wanted, err := cmd.images()
	if err != nil {
		return err
	}
	with, err := cmd.find(wanted)
	if err != nil {
		return err
	}
	var built []runtime.Image
	err = a.withClient(ctx, nil, func(c *host.Host) error {
		return cmd.each(ctx, a, c, with, wanted, func(_ pack.BuiltImage, img runtime.Image, err error) error {
			if err == nil {
				built = append(built, img)
			}
			return err
		})
	})
	return errors.Join(err, a.printImages(cmd.JSON, nil, built...))
}

// each builds the images one after the other and calls do with each. It returns what do returned.
func (cmd *imageBuildCmd) each(ctx context.Context, a *app, c *host.Host, with string, wanted []pack.BuiltImage, do func(pack.BuiltImage, runtime.Image, error) error) (err error) {
	domains, err := domain.ParseAll(cmd.Allow)
	if err != nil {
		return fmt.Errorf("%w: --allow: %w", errUsage, err)
	}
	if len(domains) > 0 && with != withSbench {
		return fmt.Errorf("%w: --allow is for builds by sbench itself (--with sbench): %s has its own network", errUsage, with)
	}
	dir, err := os.MkdirTemp("", "sbench-build-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	build := cmd.archived(a, c, with, filepath.Join(dir, "image.tar"))
	if with == withSbench {
		engine, newErr := c.NewRun(ctx)
		if newErr != nil {
			return newErr
		}
		defer func() { err = errors.Join(err, engine.Close(ctx)) }()
		egress := harness.Egress{Domains: domains, Log: proxy.NewLog(io.Discard)}
		found := &resolver{c: c, engine: engine, policy: images.PullMissing, setup: egress, capabilities: compiler.PackageCapabilities()}
		build = cmd.own(a, found, dir)
	}
	_, err = forEach(ctx, wanted, func(image pack.BuiltImage) (img runtime.Image, err error) {
		ref, err := images.Normalize(image.Ref)
		if err = marked(errUsage, err); err == nil {
			img, err = build(ctx, image, ref)
		}
		if err != nil {
			err = fmt.Errorf("build %s: %w", image.Ref, err)
		}
		return img, do(image, img, err)
	})
	return err
}

// images returns what to build. The contexts are paths that this process can open.
func (cmd *imageBuildCmd) images() ([]pack.BuiltImage, error) {
	switch {
	case (cmd.Context == "") == (cmd.Pack == ""):
		return nil, fmt.Errorf("%w: give a directory with a Dockerfile, or --pack", errUsage)
	case cmd.Pack != "":
		images, err := pack.Images(cmd.Pack)
		if err == nil && len(images) == 0 {
			return nil, fmt.Errorf("%w: the pack in %s has no Dockerfile", errUsage, cmd.Pack)
		}
		for i := range images {
			images[i].Context = filepath.Join(cmd.Pack, images[i].Context)
		}
		return images, err
	case cmd.As == "":
		return nil, fmt.Errorf("%w: --as names the image", errUsage)
	case strings.Contains(cmd.As, "@"):
		return nil, fmt.Errorf("%w: --as %s: the digest is not known before the build", errUsage, cmd.As)
	}
	if _, err := os.Stat(filepath.Join(cmd.Context, cmd.File)); err != nil {
		return nil, marked(errUsage, err)
	}
	return []pack.BuiltImage{{Ref: cmd.As, Context: cmd.Context}}, nil
}

// ownBase matches a Dockerfile that is built on an image of sbench's daemon; see images.Local.
var ownBase = regexp.MustCompile(`(?im)^\s*FROM\s+(--\S+\s+)*sbench\.local/`)

// find returns what builds. A choice that this host does not have is an error.
func (cmd *imageBuildCmd) find(images []pack.BuiltImage) (string, error) {
	if cmd.With == "auto" && cmd.Addr == "" && slices.ContainsFunc(images, func(i pack.BuiltImage) bool {
		text, err := os.ReadFile(filepath.Join(i.Context, cmd.File))
		return err == nil && ownBase.Match(text)
	}) {
		return withSbench, nil
	}
	_, noProgram := exec.LookPath("buildctl")
	_, noSocket := os.Stat(buildkitSocket)
	switch {
	case noProgram == nil && (cmd.Addr != "" || noSocket == nil) && (cmd.With == "auto" || cmd.With == withBuildkit):
		return withBuildkit, nil
	case cmd.With == withBuildkit && noProgram != nil:
		return "", fmt.Errorf("%w: there is no buildctl in PATH", runtime.ErrUnavailable)
	case cmd.With == withBuildkit:
		return "", fmt.Errorf("%w: no BuildKit listens on %s: start it, or give its address by --addr or BUILDKIT_HOST", runtime.ErrUnavailable, buildkitSocket)
	case cmd.Addr != "":
		return "", fmt.Errorf("%w: --addr is BuildKit's address, and there is no buildctl in PATH, or --with names another builder", errUsage)
	}
	for _, program := range []string{withBuildah, withPodman} {
		_, err := exec.LookPath(program)
		switch {
		case err == nil && (cmd.With == "auto" || cmd.With == program):
			return program, nil
		case cmd.With == program:
			return "", fmt.Errorf("%w: there is no %s in PATH", runtime.ErrUnavailable, program)
		}
	}
	return withSbench, nil
}

// builder returns what runs the steps of a build, or of a task's set-up, in sandboxes.
func (r *resolver) builder(temp string, least runtime.Isolation) build.Builder {
	limits := runtime.Limits{Memory: 2 << 30, CPUs: float64(goruntime.NumCPU()), Pids: 4096, LayerBytes: 8 << 30}
	return build.Builder{
		Engine: isolated{r.engine, least}, Images: buildImages{r.c.Images, r}, Limits: limits.Over(runtime.DefaultLimits()), Wall: time.Hour,
		Egress: r.setup, Capabilities: r.capabilities, Temp: temp,
	}
}

// own returns the builder that runs commands in sbench's sandboxes.
func (cmd *imageBuildCmd) own(a *app, images *resolver, temp string) builder {
	b := images.builder(temp, "")
	b.Output = a.stderr
	return func(ctx context.Context, image pack.BuiltImage, ref string) (runtime.Image, error) {
		img, err := b.Build(ctx, image.Context, cmd.File, ref)
		fault := build.Fault{}
		switch {
		case errors.As(err, &fault):
			err = marked(errUsage, err)
		case errors.Is(err, harness.ErrPreparation): // as with the other builders
			err = marked(run.ErrInfrastructure, err)
		}
		return img, err
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

// archived returns the builder that imports an archive which a program writes; a.stderr gets its output.
func (cmd *imageBuildCmd) archived(a *app, c *host.Host, with, archive string) builder {
	return func(ctx context.Context, image pack.BuiltImage, ref string) (runtime.Image, error) {
		for _, args := range cmd.commands(with, image, ref, archive) {
			process := exec.CommandContext(ctx, args[0], args[1:]...)
			process.Stdout, process.Stderr = a.stderr, a.stderr
			if err := process.Run(); err != nil {
				return runtime.Image{}, fmt.Errorf("%w: %s: %w", run.ErrInfrastructure, args[0], err)
			}
		}
		f, err := os.Open(archive)
		if err != nil {
			return runtime.Image{}, fmt.Errorf("%w: %s built no image: %w", run.ErrInfrastructure, with, err)
		}
		// The archive names the image itself. It cannot be imported under a given name, since
		// BuildKit may have put a provenance document beside the image.
		list, err := c.Images.Import(ctx, f, "")
		list = slices.DeleteFunc(list, func(i runtime.Image) bool { return i.Ref != ref })
		if err == nil && len(list) != 1 {
			err = fmt.Errorf("%w: %s built an image with another name", run.ErrInfrastructure, with)
		}
		if err = errors.Join(err, f.Close(), os.Remove(archive)); err != nil {
			return runtime.Image{}, err
		}
		return list[0], nil
	}
}

// commands returns the command lines that build an image and write its archive.
func (cmd *imageBuildCmd) commands(with string, image pack.BuiltImage, ref, archive string) [][]string {
	file := filepath.Join(image.Context, cmd.File)
	switch with {
	case withBuildah:
		return [][]string{{"buildah", "build", "--tag", ref, "--file", file, image.Context}, {"buildah", "push", ref, "oci-archive:" + archive + ":" + ref}}
	case withPodman:
		return [][]string{{"podman", "build", "--tag", ref, "--file", file, image.Context}, {"podman", "save", "--format", "oci-archive", "--output", archive, ref}}
	}
	args := []string{"buildctl"}
	if cmd.Addr != "" {
		args = append(args, "--addr", cmd.Addr)
	}
	return [][]string{append(args, "build", "--progress", "plain", "--frontend", "dockerfile.v0",
		"--local", "context="+image.Context, "--local", "dockerfile="+filepath.Dir(file), "--opt", "filename="+filepath.Base(file),
		"--output", "type=oci,name="+ref+",dest="+archive)}
}
