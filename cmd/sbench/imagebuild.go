package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd"
)

type imageBuildCmd struct {
	Context string `arg:"" optional:"" help:"Directory with a Dockerfile and the files it copies."`
	As      string `placeholder:"REF" help:"Name for the image."`
	File    string `default:"Dockerfile" help:"Dockerfile, relative to the directory."`
	Pack    string `placeholder:"DIR" help:"Build all images whose Dockerfiles an imported pack holds, instead of one."`
	Addr    string `env:"BUILDKIT_HOST" placeholder:"ADDRESS" help:"Address of BuildKit, as buildctl takes it."`
	JSON    bool   `name:"json" help:"Print JSON."`
}

// buildkitSocket is where buildctl looks for BuildKit if no address is given.
const buildkitSocket = "/run/buildkit/buildkitd.sock"

// noBuilder is the error for missing BuildKit. It names the alternatives.
const noBuilder = `%w: %s: sbench does not build images itself. Start BuildKit and give its address by --addr or BUILDKIT_HOST; ` +
	`or build elsewhere, and import the archive (sbench image import, of "docker save" or "buildctl build --output type=oci"); or pull a published image (sbench image pull) and name it so (sbench image tag)`

// Run builds with buildctl, which streams the image to a file, and imports that.
func (cmd *imageBuildCmd) Run(ctx context.Context, a *app) error {
	images, err := cmd.images()
	if err != nil {
		return err
	}
	buildctl, err := cmd.find()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sbench-build-*")
	if err != nil {
		return err
	}
	var built []runtime.Image
	err = a.withClient(ctx, nil, func(c *containerd.Client) error {
		var errs []error
		for _, image := range images {
			list, err := cmd.build(ctx, a, c, buildctl, image, filepath.Join(dir, "image.tar"))
			if err != nil {
				errs = append(errs, fmt.Errorf("build %s: %w", image.Ref, err))
			}
			if ctx.Err() != nil {
				break
			}
			built = append(built, list...)
		}
		return errors.Join(errs...)
	})
	return errors.Join(err, os.RemoveAll(dir), a.printImages(cmd.JSON, nil, built...))
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
		return nil, fmt.Errorf("%w: --as %s: nobody knows the digest before", errUsage, cmd.As)
	}
	if _, err := os.Stat(filepath.Join(cmd.Context, cmd.File)); err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	return []pack.BuiltImage{{Ref: cmd.As, Context: cmd.Context}}, nil
}

// find returns the path of buildctl, or an error if it or BuildKit is missing.
func (cmd *imageBuildCmd) find() (string, error) {
	buildctl, err := exec.LookPath("buildctl")
	if err != nil {
		return "", fmt.Errorf(noBuilder, runtime.ErrUnavailable, "there is no buildctl in PATH")
	}
	if _, err := os.Stat(buildkitSocket); cmd.Addr == "" && err != nil {
		return "", fmt.Errorf(noBuilder, runtime.ErrUnavailable, "no BuildKit listens on "+buildkitSocket)
	}
	return buildctl, nil
}

// build builds one image and imports it. buildctl's output goes to standard error.
func (cmd *imageBuildCmd) build(ctx context.Context, a *app, c *containerd.Client, buildctl string, image pack.BuiltImage, archive string) ([]runtime.Image, error) {
	ref, err := containerd.NormalizeRef(image.Ref)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	var args []string
	if cmd.Addr != "" {
		args = append(args, "--addr", cmd.Addr)
	}
	file := filepath.Join(image.Context, cmd.File)
	args = append(args, "build", "--progress", "plain", "--frontend", "dockerfile.v0",
		"--local", "context="+image.Context, "--local", "dockerfile="+filepath.Dir(file), "--opt", "filename="+filepath.Base(file),
		"--output", "type=oci,name="+ref+",dest="+archive)
	process := exec.CommandContext(ctx, buildctl, args...)
	process.Stdout, process.Stderr = a.stderr, a.stderr
	if err := process.Run(); err != nil {
		return nil, fmt.Errorf("%w: buildctl: %w", run.ErrInfrastructure, err)
	}
	f, err := os.Open(archive)
	if err != nil {
		return nil, fmt.Errorf("%w: buildctl left no image: %w", run.ErrInfrastructure, err)
	}
	// The archive names the image itself. It cannot be imported under a given name, since
	// BuildKit may have put a provenance document beside the image.
	list, err := c.Import(ctx, f, "")
	list = slices.DeleteFunc(list, func(i runtime.Image) bool { return i.Ref != ref })
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%w: buildctl left an image of another name", run.ErrInfrastructure)
	}
	return list, errors.Join(err, f.Close(), os.Remove(archive))
}
