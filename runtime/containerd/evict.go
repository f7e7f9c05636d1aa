package containerd

import (
	"context"
	"fmt"
	"slices"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Evict returns which of the candidates must go, those first that were not used for longest, so
// that all images of the namespace take at most keep bytes. What images share counts once, and
// goes with the last of them. It removes nothing.
func (c *Client) Evict(ctx context.Context, candidates []ImageInfo, keep int64) ([]ImageInfo, error) {
	all, err := c.c.ImageService().List(c.ctx(ctx))
	if err != nil {
		return nil, fmt.Errorf("list images: %w", native(err))
	}
	parts := map[string]map[string]int64{} // of each name
	users := map[string]int{}              // of each part
	var total int64
	for _, i := range all {
		if parts[i.Name], err = c.parts(c.ctx(ctx), i); err != nil {
			return nil, fmt.Errorf("size of image %s: %w", i.Name, native(err))
		}
		for id, size := range parts[i.Name] {
			if users[id]++; users[id] == 1 {
				total += size
			}
		}
	}
	candidates = slices.SortedStableFunc(slices.Values(candidates), func(a, b ImageInfo) int { return a.Used.Compare(b.Used) })
	for n, i := range candidates {
		if total <= keep {
			return candidates[:n], nil
		}
		for id, size := range parts[i.Ref] {
			if users[id]--; users[id] == 0 {
				total -= size
			}
		}
	}
	return candidates, nil
}

// parts returns the sizes of an image's content and unpacked layers, by digest.
func (c *Client) parts(ctx context.Context, i images.Image) (map[string]int64, error) {
	sizes := map[string]int64{}
	here := platforms.Default()
	children := images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(c.c.ContentStore()), here), here, 1)
	err := images.Walk(ctx, images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		sizes[d.Digest.String()] = d.Size
		return children(ctx, d)
	}), i.Target)
	if errdefs.IsNotFound(err) { // it is for another platform, or not all here
		return sizes, nil
	}
	if err != nil {
		return nil, err
	}
	layers, err := client.NewImage(c.c, i).RootFS(ctx)
	for n := range layers {
		id := identity.ChainID(layers[:n+1]).String()
		usage, err := c.c.SnapshotService(c.opts.Snapshotter).Usage(ctx, id)
		if err != nil && !errdefs.IsNotFound(err) { // it may not be unpacked
			return nil, err
		}
		sizes["unpacked "+id] = usage.Size
	}
	return sizes, err
}
