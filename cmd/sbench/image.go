package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd"
)

type imageCmd struct {
	Ls     imageLsCmd     `cmd:"" help:"List images."`
	Pull   imagePullCmd   `cmd:"" help:"Fetch an image from its registry, with the credentials of the docker configuration."`
	Import imageImportCmd `cmd:"" help:"Import an OCI or docker archive."`
	Build  imageBuildCmd  `cmd:"" help:"Build an image from a Dockerfile with BuildKit, and import it."`
	Tag    imageTagCmd    `cmd:"" help:"Give an image a further name."`
	Rm     imageRmCmd     `cmd:"" help:"Forget a name; its content goes when nothing else holds it."`
}

// withClient runs f with a connection.
func (a *app) withClient(ctx context.Context, f func(*containerd.Client) error) error {
	c, err := a.client(ctx, nil)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close(ctx))
}

type imageLsCmd struct {
	onDaemon `kong:"-"`

	JSON bool `name:"json" help:"Print JSON."`
}

func (cmd *imageLsCmd) Run(ctx context.Context, a *app) error {
	return a.withClient(ctx, func(c *containerd.Client) error {
		list, err := c.Images(ctx)
		if err != nil {
			return err
		}
		if cmd.JSON {
			return a.json(list)
		}
		w := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
		for _, i := range list {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", i.Ref, i.Digest)
		}
		return w.Flush()
	})
}

type imagePullCmd struct {
	onDaemon `kong:"-"`

	Ref  string `arg:"" help:"Image reference."`
	JSON bool   `name:"json" help:"Print JSON."`
}

func (cmd *imagePullCmd) Run(ctx context.Context, a *app) error {
	return a.withClient(ctx, func(c *containerd.Client) error {
		img, err := c.Pull(ctx, cmd.Ref)
		if err != nil {
			return err
		}
		return a.printImages(cmd.JSON, img)
	})
}

func (a *app) printImages(asJSON bool, list ...runtime.Image) error {
	if asJSON {
		return a.json(list)
	}
	for _, i := range list {
		if _, err := fmt.Fprintf(a.stdout, "%s %s %s\n", i.Ref, i.Digest, i.Platform); err != nil {
			return err
		}
	}
	return nil
}

type imageImportCmd struct {
	onDaemon `kong:"-"`

	Archive string `arg:"" help:"Archive file, or - for standard input."`
	As      string `placeholder:"REF" help:"Name for the image of an archive that holds one."`
	JSON    bool   `name:"json" help:"Print JSON."`
}

func (cmd *imageImportCmd) Run(ctx context.Context, a *app) error {
	var archive io.Reader = os.Stdin
	if cmd.Archive != "-" {
		f, err := os.Open(cmd.Archive)
		if err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		defer func() { _ = f.Close() }()
		archive = f
	}
	return a.withClient(ctx, func(c *containerd.Client) error {
		list, err := c.Import(ctx, archive, cmd.As)
		if err != nil {
			return err
		}
		return a.printImages(cmd.JSON, list...)
	})
}

type imageTagCmd struct {
	onDaemon `kong:"-"`

	Source string `arg:"" help:"Image that is here."`
	Target string `arg:"" help:"Further name, such as python:3.11-slim."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

func (cmd *imageTagCmd) Run(ctx context.Context, a *app) error {
	return a.withClient(ctx, func(c *containerd.Client) error {
		img, err := c.Tag(ctx, cmd.Source, cmd.Target)
		if err != nil {
			return err
		}
		return a.printImages(cmd.JSON, img)
	})
}

type imageRmCmd struct {
	onDaemon `kong:"-"`

	Refs []string `arg:"" help:"Image references."`
}

func (cmd *imageRmCmd) Run(ctx context.Context, a *app) error {
	return a.withClient(ctx, func(c *containerd.Client) error {
		var errs []error
		for _, ref := range cmd.Refs {
			errs = append(errs, c.RemoveImage(ctx, ref))
		}
		return errors.Join(errs...)
	})
}
