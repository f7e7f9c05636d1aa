package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness/build"
	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/proxy/domain"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run/site"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/images"
)

type imageCmd struct {
	Ls     imageLsCmd     `cmd:"" help:"List images."`
	Pull   imagePullCmd   `cmd:"" help:"Fetch an image from its registry, with the credentials of the docker configuration."`
	Import imageImportCmd `cmd:"" help:"Import an OCI or docker archive."`
	Build  imageBuildCmd  `cmd:"" help:"Build images from Dockerfiles."`
	Tag    imageTagCmd    `cmd:"" help:"Give an image another name."`
	Prune  imagePruneCmd  `cmd:"" help:"Forget the names of images that sbench pulled. Content is deleted once nothing uses it."`
}

type imageLsCmd struct {
	All bool `help:"Also list the images of build steps."`
	jsonFlag
}

func (cmd *imageLsCmd) Run(ctx context.Context, a *app) error {
	return a.withClient(ctx, nil, func(c *host.Host) error {
		list, err := c.Images.List(ctx)
		if err != nil {
			return err
		}
		if !cmd.All {
			list = slices.DeleteFunc(list, func(i images.Info) bool { return strings.HasPrefix(i.Ref, build.StepName) })
		}
		return printImageList(a, cmd.JSON, list)
	})
}

func printImageList(a *app, asJSON bool, list []images.Info) error {
	return printList(a, asJSON, list, func(i images.Info) string {
		return i.Ref + "\t" + i.Digest + "\t" + report.Bytes(float64(i.Bytes))
	})
}

type imagePullCmd struct {
	Ref string `arg:"" help:"Image reference."`
	jsonFlag
}

func (cmd *imagePullCmd) Run(ctx context.Context, a *app) error {
	return a.withClient(ctx, nil, func(c *host.Host) error {
		img, err := c.Images.Pull(ctx, cmd.Ref)
		return a.printImages(cmd.JSON, err, img)
	})
}

// printImages prints the list unless err is not nil.
func (a *app) printImages(asJSON bool, err error, list ...runtime.Image) error {
	if err != nil {
		return err
	}
	return printList(a, asJSON, list, func(i runtime.Image) string { return fmt.Sprintf("%s %s %s", i.Ref, i.Digest, i.Platform) })
}

type imageImportCmd struct {
	Archive string `arg:"" help:"Archive file, or - for standard input."`
	As      string `placeholder:"REF" help:"Name for the image, if the archive holds only one."`
	jsonFlag
}

func (cmd *imageImportCmd) Run(ctx context.Context, a *app) error {
	var archive io.Reader = os.Stdin
	if cmd.Archive != "-" {
		f, err := os.Open(cmd.Archive)
		if err != nil {
			return marked(errUsage, err)
		}
		defer func() { _ = f.Close() }()
		archive = f
	}
	return a.withClient(ctx, nil, func(c *host.Host) error {
		list, err := c.Images.Import(ctx, archive, cmd.As)
		if err != nil && ctx.Err() == nil && !errors.Is(err, runtime.ErrUnavailable) {
			err = fmt.Errorf("%w: %s: %w", errUsage, cmd.Archive, err)
		}
		return a.printImages(cmd.JSON, err, list...)
	})
}

type imageTagCmd struct {
	Source string `arg:"" help:"Local image."`
	Target string `arg:"" help:"Other name, such as python:3.11-slim."`
	jsonFlag
}

func (cmd *imageTagCmd) Run(ctx context.Context, a *app) error {
	return a.withClient(ctx, nil, func(c *host.Host) error {
		img, err := c.Images.Tag(ctx, cmd.Source, cmd.Target)
		return a.printImages(cmd.JSON, err, img)
	})
}

type imagePruneCmd struct {
	Refs []string `arg:"" optional:"" name:"glob" help:"Only names that match one of these patterns."`
	All  bool     `help:"Also the names of images that were built, imported or tagged, and of other programs' images. They may be in no registry."`
	jsonFlag
}

// Run prints the images whose names it removed, with their former sizes.
func (cmd *imagePruneCmd) Run(ctx context.Context, a *app) error {
	return a.withClient(ctx, nil, func(c *host.Host) error {
		list, err := c.Images.List(ctx)
		if err != nil {
			return err
		}
		matches := compiler.Selector(nil, cmd.Refs)
		list = slices.DeleteFunc(list, func(i images.Info) bool {
			return matches != nil && !matches(i.Ref) || !cmd.All && !i.Pulled
		})
		var gone []images.Info
		for _, i := range list {
			if ctx.Err() != nil {
				break
			}
			if failed := c.Images.Remove(ctx, i.Ref); failed != nil {
				err = errors.Join(err, failed)
				continue
			}
			gone = append(gone, i)
		}
		return errors.Join(err, context.Cause(ctx), printImageList(a, cmd.JSON, gone))
	})
}

type imageBuildCmd struct {
	Context string          `arg:"" optional:"" help:"Directory with a Dockerfile and the files it copies."`
	As      string          `placeholder:"REF" help:"Name for the image."`
	File    string          `default:"Dockerfile" help:"Dockerfile, relative to the directory."`
	Pack    string          `placeholder:"DIR" help:"Build the images of all Dockerfiles in an imported pack, instead of one."`
	Allow   []domain.Domain `placeholder:"DOMAIN" help:"Domain that commands may reach, with its subdomains; can be repeated. Default: none."`
	Mirror  []domain.Domain `placeholder:"DOMAIN" help:"Like --allow, for a host in a private network (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16), such as a mirror."`
	jsonFlag
}

// Run builds the images one after the other, and goes on with the next when one fails.
func (cmd *imageBuildCmd) Run(ctx context.Context, a *app) error {
	wanted, err := cmd.images()
	if err != nil {
		return err
	}
	var built []runtime.Image
	output := &report.VisibleLines{To: a.stderr}
	err = a.withClient(ctx, nil, func(c *host.Host) error {
		return site.Build{File: cmd.File, Allow: cmd.Allow, Mirror: cmd.Mirror, Output: output}.Images(ctx, c, wanted, func(_ pack.BuiltImage, img runtime.Image, err error) error {
			if err == nil {
				built = append(built, img)
			}
			return err
		})
	})
	return errors.Join(err, output.Close(), a.printImages(cmd.JSON, nil, built...))
}

// images returns what to build. The contexts are paths that this process can open.
func (cmd *imageBuildCmd) images() ([]pack.BuiltImage, error) {
	switch {
	case (cmd.Context == "") == (cmd.Pack == ""):
		return nil, fmt.Errorf("%w: give a directory with a Dockerfile, or --pack", errUsage)
	case cmd.Pack != "" && cmd.As != "":
		return nil, fmt.Errorf("%w: --as names one image, not those of a pack", errUsage)
	case cmd.Pack != "":
		images, err := pack.Images(cmd.Pack)
		if err == nil && len(images) == 0 {
			return nil, fmt.Errorf("%w: the pack in %s has no Dockerfile", errUsage, cmd.Pack)
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
