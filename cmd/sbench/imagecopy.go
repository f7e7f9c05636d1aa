package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd"
)

// packImagesFlags name a pack whose images are meant.
type packImagesFlags struct {
	Pack string   `arg:"" help:"Directory of the pack."`
	Task []string `short:"t" placeholder:"GLOB" help:"Only images of tasks whose id matches. Can be repeated."`
	jsonFlag
}

// images returns the names of the images that the tasks and their side-cars use, sorted.
func (f packImagesFlags) images() ([]string, error) {
	pack, err := compiler.OpenPack(filepath.Join(f.Pack, "manifest.yaml"), filepath.Join(f.Pack, "tasks.jsonl"))
	if err != nil {
		return nil, err
	}
	matches := selector(f.Task)
	var refs []string
	for task, err := range pack.Tasks() {
		if err != nil {
			return nil, err
		}
		if matches == nil || matches(task.ID()) {
			refs = append(refs, task.Environment().Image)
			for _, s := range task.Environment().Sidecars {
				refs = append(refs, s.Image)
			}
		}
	}
	refs = slices.DeleteFunc(refs, func(ref string) bool { return ref == "" })
	for i := range refs {
		if refs[i], err = containerd.NormalizeRef(refs[i]); err != nil {
			return nil, err
		}
	}
	slices.Sort(refs)
	if refs = slices.Compact(refs); len(refs) == 0 {
		return nil, fmt.Errorf("%w: no task of %s names an image", errUsage, f.Pack)
	}
	return refs, nil
}

type imageCopyCmd struct {
	packImagesFlags
	To string `required:"" placeholder:"PLACE" help:"A directory (beginning with / or a dot), or a registry with a path, such as registry.example.org/mirror."`
}

// copiedImage is an image that was copied.
type copiedImage struct {
	Ref    string `json:"ref"`
	Digest string `json:"digest"`
}

func (cmd *imageCopyCmd) Run(ctx context.Context, a *app) error {
	refs, err := cmd.images()
	if err != nil {
		return err
	}
	return a.withClient(ctx, nil, func(c *containerd.Client) error {
		all, err := forEach(ctx, refs, func(ref string) (copiedImage, error) {
			digest, err := c.Copy(ctx, ref, cmd.To)
			return copiedImage{ref, digest}, err
		})
		return errors.Join(err, printList(a, cmd.JSON, all, func(i copiedImage) string { return i.Ref + "\t" + i.Digest }))
	})
}

type imagePrefetchCmd struct {
	packImagesFlags
	From string `placeholder:"PLACE" help:"The directory or registry that image copy has filled. Default: each image's own registry."`
	Keep size   `placeholder:"SIZE" help:"Before and after, forget the least recently used pulled images, until all images take at most this much, such as 200g."`
}

func (cmd *imagePrefetchCmd) Run(ctx context.Context, a *app) error {
	refs, err := cmd.images()
	if err != nil {
		return err
	}
	return a.withClient(ctx, nil, func(c *containerd.Client) error {
		before := cmd.evict(ctx, c, refs)
		all, err := forEach(ctx, refs, func(ref string) (runtime.Image, error) { return c.Prefetch(ctx, ref, cmd.From) })
		return errors.Join(before, err, cmd.evict(ctx, c, refs), a.printImages(cmd.JSON, nil, all...))
	})
}

// evict forgets pulled images other than refs until all images take at most what --keep says.
func (cmd *imagePrefetchCmd) evict(ctx context.Context, c *containerd.Client, refs []string) error {
	if cmd.Keep == 0 {
		return nil
	}
	list, err := c.Images(ctx)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(i containerd.ImageInfo) bool { return !i.Pulled || slices.Contains(refs, i.Ref) })
	if list, err = c.Evict(ctx, list, int64(cmd.Keep)); err == nil {
		_, err = forget(ctx, c, list)
	}
	return err
}

// size is a number of bytes, written as in a tester file.
type size int64

// UnmarshalText is for the command line.
func (s *size) UnmarshalText(text []byte) error {
	n := compiler.ParseBytes(string(text))
	if n <= 0 {
		return fmt.Errorf("%q is no size: write 200g, 500m or a number of bytes", text)
	}
	*s = size(n)
	return nil
}
