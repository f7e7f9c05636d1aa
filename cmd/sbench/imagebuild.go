package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/proxy/domain"
	"github.com/securebench/sbench/run/site"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
)

type imageBuildCmd struct {
	Context string          `arg:"" optional:"" help:"Directory with a Dockerfile and the files it copies."`
	As      string          `placeholder:"REF" help:"Name for the image."`
	File    string          `default:"Dockerfile" help:"Dockerfile, relative to the directory."`
	Pack    string          `placeholder:"DIR" help:"Build the images of all Dockerfiles in an imported pack, instead of one."`
	Allow   []domain.Domain `placeholder:"DOMAIN" help:"Domain that commands may reach, with its subdomains; can be repeated. Default: none."`
	jsonFlag
}

// Run builds the images one after the other, and goes on with the next when one fails.
func (cmd *imageBuildCmd) Run(ctx context.Context, a *app) error {
	wanted, err := cmd.images()
	if err != nil {
		return err
	}
	var built []runtime.Image
	err = a.withClient(ctx, nil, func(c *host.Host) error {
		return site.Build{File: cmd.File, Allow: cmd.Allow, Output: a.stderr}.Images(ctx, c, wanted, func(_ pack.BuiltImage, img runtime.Image, err error) error {
			if err == nil {
				built = append(built, img)
			}
			return err
		})
	})
	return errors.Join(err, a.printImages(cmd.JSON, nil, built...))
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
