package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/mounts"
	"github.com/securebench/sbench/runtime/owner"
	"github.com/securebench/sbench/runtime/rootfs"
	"github.com/securebench/sbench/runtime/task"
	"github.com/securebench/sbench/runtime/volume"
)

// A Run owns sandboxes, volumes and views until it is closed. Its methods are safe for
// concurrent use. Make one with [Client.NewRun].
type Run struct {
	*owner.Claim
	c *Client
	// volumes are those of sandboxes and of callers.
	volumes *volume.Store

	mu    sync.Mutex
	bases map[string][]string // chain id → lower directories

	tasks task.Driver // chosen by settle
}

// NewRun makes a run, which the caller closes. The first
// run of a client finds out how this host can run sandboxes; if it cannot, the error is
// runtime.ErrUnavailable.
func (c *Client) NewRun(ctx context.Context) (*Run, error) {
	claim, err := c.registry.Claim(ctx)
	if err != nil {
		return nil, err
	}
	r := &Run{Claim: claim, c: c, bases: map[string][]string{}}
	r.volumes = volume.NewStore(r.Dir(), c.opts.Root, r.ID())
	if err := c.settle(ctx, r); err != nil {
		return nil, errors.Join(err, r.Close(ctx))
	}
	return r, nil
}

// Close removes the run and everything that belongs to it. Its sandboxes, volumes and
// views must be closed first.
func (r *Run) Close(ctx context.Context) error {
	return errors.Join(r.volumes.Close(), r.Claim.Close(ctx))
}

// NewVolume makes a volume, which the caller closes. Up to 64 MiB it is usually in memory; a
// larger one is an image on disk if the host has loop devices, otherwise in memory, too. Its
// directory belongs to root and has mode 0755.
func (r *Run) NewVolume(ctx context.Context, cfg runtime.VolumeConfig) (runtime.Volume, error) {
	v, err := r.volumes.New(ctx, cfg, r.c.ids.onDisk)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// newLayer makes the volume for what a sandbox writes over its root and copies.
func (r *Run) newLayer(ctx context.Context, cfg runtime.VolumeConfig) (*volume.Volume, error) {
	if r.c.onDisk {
		return r.volumes.NewDirectory(cfg)
	}
	return r.volumes.New(ctx, cfg, r.c.ids.onDisk)
}

// lowers returns the directories of an image's file system, topmost first. A read-only
// snapshot that belongs to the run keeps them from being removed.
func (r *Run) lowers(ctx context.Context, image runtime.Image) ([]string, error) {
	if over := image.Over; over != "" {
		image.Over = ""
		below, err := r.lowers(ctx, image)
		return append([]string{over}, below...), err
	}
	r.mu.Lock()
	l, ok := r.bases[image.ChainID]
	r.mu.Unlock()
	if ok {
		return l, nil
	}
	ss := r.c.conn.Snapshots()
	key := r.ID() + "-" + strings.TrimPrefix(image.ChainID, "sha256:")[:min(16, len(image.ChainID)-7)]
	ms, err := ss.View(r.Context(ctx), key, image.ChainID, snapshots.WithLabels(r.Labels(image.Ref)))
	if errdefs.IsAlreadyExists(err) {
		ms, err = ss.Mounts(r.Context(ctx), key)
	}
	if err != nil {
		return nil, fmt.Errorf("image %s: snapshot: %w", image.Ref, daemon.Native(err))
	}
	if l, err = lowerDirs(ms); err != nil {
		return nil, fmt.Errorf("image %s: snapshotter %s: %w", image.Ref, r.c.opts.Snapshotter, err)
	}
	r.mu.Lock()
	r.bases[image.ChainID] = l
	r.mu.Unlock()
	return l, nil
}

// lowerDirs returns the directories of a read-only overlay or, for an image of one layer, of
// a bind mount.
func lowerDirs(ms []mount.Mount) ([]string, error) {
	if len(ms) != 1 {
		return nil, fmt.Errorf("gives %d mounts, not one", len(ms))
	}
	switch ms[0].Type {
	case "bind":
		return []string{ms[0].Source}, nil
	case "overlay":
		for _, o := range ms[0].Options {
			if dirs, ok := strings.CutPrefix(o, "lowerdir="); ok {
				return strings.Split(dirs, ":"), nil
			}
		}
	}
	return nil, fmt.Errorf("gives a %s mount without lower directories", ms[0].Type)
}

type view struct {
	root *os.Root
	dir  string
}

func (v *view) Root() *os.Root { return v.root }

func (v *view) Close() error {
	return errors.Join(v.root.Close(), mounts.Detach(v.dir), os.Remove(v.dir))
}

// View opens an image's file system for reading. The caller closes the view before the
// run.
func (r *Run) View(ctx context.Context, image runtime.Image) (runtime.View, error) {
	v, err := r.view(ctx, image)
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (r *Run) view(ctx context.Context, image runtime.Image) (*view, error) {
	lowers, err := r.lowers(ctx, image)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(r.Dir(), "view-"+owner.RandomID())
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if err := rootfs.View(lowers, dir); err != nil {
		return nil, fmt.Errorf("image %s: %w", image.Ref, errors.Join(err, os.Remove(dir)))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errors.Join(err, mounts.Detach(dir), os.Remove(dir))
	}
	return &view{root: root, dir: dir}, nil
}
