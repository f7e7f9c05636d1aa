package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/securebench/sbench/examples"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/images"
)

type initCmd struct {
	Dir   string `arg:"" default:"." help:"Directory to create, or to add the files to. Default: the current one."`
	Split bool   `help:"Write a pack with split checks, the surest form: a driver runs beside the candidate, and an oracle judges in another sandbox (docs/authoring.md)."`
	Image string `placeholder:"REF" help:"Image of the tasks. It needs bash, and whatever your agent needs. Default: sbench.local/base:bookworm (make image) if it is here, else docker.io/library/debian:12-slim."`
	jsonFlag
}

// The images of a new pack: the one that make image builds, and one of a registry.
const baseImage, publicImage = "sbench.local/base:bookworm", "docker.io/library/debian:12-slim"

// Run writes a tester file and a pack. If one of the files exists, it writes nothing.
func (cmd *initCmd) Run(ctx context.Context, a *app) error {
	if _, err := images.Normalize(cmp.Or(cmd.Image, publicImage)); err != nil {
		return fmt.Errorf("%w: --image: %w", errUsage, err)
	}
	pack, err := examples.Starter(cmd.Split)
	if err != nil {
		return err
	}
	if err := pack.Fits(cmd.Dir); err != nil {
		return marked(errUsage, err)
	}
	from := "which has to be here or is pulled; without a network, --image " + baseImage + " (make image)"
	if images.Local(cmd.Image) {
		from = "which has to be here: images of sbench.local are built or imported, not pulled (make image builds base:bookworm)"
	}
	if cmd.Image == "" {
		cmd.Image = publicImage
		_ = a.withClient(ctx, nil, func(c *host.Host) error { // without a daemon, no image is here
			_, err := c.Images.Get(ctx, baseImage, images.PullNever)
			if err == nil {
				cmd.Image, from = baseImage, "which is here"
			}
			return err
		})
	}
	if err := pack.Write(cmd.Dir, cmd.Image); err != nil {
		return marked(errUsage, err)
	}
	if cmd.JSON {
		return a.json(map[string]any{"directory": cmd.Dir, "files": pack.Files})
	}
	return a.printf("wrote %s in %s\nnext: sbench validate %[2]s\n      sbench run %s\n      sbench pack check %[2]s\nimage: %[4]s, %s\n", strings.Join(pack.Files, ", "), cmd.Dir, filepath.Join(cmd.Dir, "tester.yaml"), cmd.Image, from)
}
