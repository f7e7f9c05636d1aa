// Package sandbox implements the runtime contract's sandboxes on containerd.
//
// An [Engine] makes the sandboxes, volumes and views of one run. The life of a sandbox reads in
// this order:
//
//  1. [Engine.Create] makes the sandbox's enclosure (enclosure.go): root file system, ids, network
//     namespace and group of processes. A persistent sandbox gets an idle first process.
//  2. [Sandbox.Exec] (exec.go) runs a process, waits for its end or for a limit (watch.go), proves
//     that no process of it is left, and says how it ended and which limits it reached.
//  3. [Sandbox.Path] and [Sandbox.Changes] show what a sandbox that has stopped left.
//  4. [Sandbox.Close] removes everything.
//
// Processes run through a driver of package task. Images come from outside: the package knows their
// layers as directories, and touches no image. Package host finds out what is possible on this host,
// and makes the engines.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/limits"
	"github.com/securebench/sbench/runtime/mounts"
	"github.com/securebench/sbench/runtime/owner"
	"github.com/securebench/sbench/runtime/rootfs"
	"github.com/securebench/sbench/runtime/volume"
)

// A Platform is what this host and its daemon have for sandboxes.
type Platform struct {
	Conn   *daemon.Conn
	Limits *limits.Enforcer
	Root   string // the directory for volumes on disk
	Layers string // the directory in which the daemon keeps the layers of images
	// LayersOnDisk means that what sandboxes write over their root goes to directories on disk: a
	// user's overlay needs user.* attributes, which tmpfs has from Linux 6.6 on (tmpfs(5)).
	LayersOnDisk bool
	// AllowSeccomp and AllowNetlink permit sandboxes system calls that take memory which no
	// limit bounds; see OwnFilters and Netlink of oci.Config.
	AllowSeccomp, AllowNetlink bool
	// Isolation is the least that sandboxes get; "" means a container.
	Isolation runtime.Isolation
	// Slots bounds how many sandboxes are created and started at a time, by its capacity.
	Slots  chan struct{}
	Logger *slog.Logger
}

// An Engine owns the sandboxes, volumes and views of one run until it is closed. Its methods are
// safe for concurrent use. Make one with [New].
type Engine struct {
	platform Platform
	claim    *owner.Claim
	kinds    map[runtime.Isolation]Kind
	least    runtime.Isolation
	volumes  *volume.Store // for sandboxes, and for callers of NewVolume

	mu    sync.Mutex
	bases map[string][]string // chain id → lower directories
}

// New returns the engine of a run, which then owns the claim. [Engine.Use] must be called before a
// sandbox is created. The caller closes the engine.
func New(claim *owner.Claim, p Platform) *Engine {
	return &Engine{
		platform: p, claim: claim, kinds: map[runtime.Isolation]Kind{}, least: max(p.Isolation, runtime.Container), volumes: volume.NewStore(claim.Dir(), p.Root, claim.ID()),
		// The one layer of the empty image is the directory of layers, so that a trial shows
		// whether layers on that file system work.
		bases: map[string][]string{emptyChain: {p.Layers}},
	}
}

// Use says how sandboxes of an isolation are made from now on. It must not be called while a sandbox is
// open.
func (e *Engine) Use(i runtime.Isolation, k Kind) { e.kinds[i] = k }

// onDisk reports whether every volume is on disk, because a sandbox could not have one in memory.
func (e *Engine) onDisk() bool {
	for _, k := range e.kinds {
		if k.IDs.OnDisk {
			return true
		}
	}
	return false
}

// ID returns the run's random id, which is in the names of all that the engine makes.
func (e *Engine) ID() string { return e.claim.ID() }

// Close removes the run and everything that belongs to it. Its sandboxes, volumes and
// views must be closed first.
func (e *Engine) Close(ctx context.Context) error {
	return errors.Join(e.volumes.Close(), e.claim.Close(ctx))
}

// slot waits until another sandbox may be made or started. The caller releases it.
func (e *Engine) slot(ctx context.Context) (release func(), err error) {
	select {
	case e.platform.Slots <- struct{}{}:
		return func() { <-e.platform.Slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
}

// NewVolume makes a volume, which the caller closes. Up to 64 MiB it is usually in memory; a
// larger one is an image on disk if the host has loop devices, otherwise in memory, too. Its
// directory belongs to root and has mode 0755.
func (e *Engine) NewVolume(ctx context.Context, cfg runtime.VolumeConfig) (runtime.Volume, error) {
	v, err := e.volumes.New(ctx, cfg, e.onDisk())
	if err != nil {
		return nil, err
	}
	return v, nil
}

// newLayer makes the volume for what a sandbox writes over its root and copies.
func (e *Engine) newLayer(ctx context.Context, cfg runtime.VolumeConfig) (*volume.Volume, error) {
	if e.platform.LayersOnDisk {
		return e.volumes.NewDirectory(cfg)
	}
	return e.volumes.New(ctx, cfg, e.onDisk())
}

// lowers returns the directories of an image's file system, topmost first. A read-only
// snapshot that belongs to the run keeps them from being removed.
func (e *Engine) lowers(ctx context.Context, image runtime.Image) ([]string, error) {
	if upper := image.UpperDir; upper != "" {
		image.UpperDir = ""
		below, err := e.lowers(ctx, image)
		return append([]string{upper}, below...), err
	}
	e.mu.Lock()
	l, ok := e.bases[image.ChainID]
	e.mu.Unlock()
	if ok {
		return l, nil
	}
	ss := e.platform.Conn.Snapshots()
	key := e.claim.ID() + "-" + strings.TrimPrefix(image.ChainID, "sha256:")[:min(16, len(image.ChainID)-7)]
	ms, err := ss.View(e.claim.Context(ctx), key, image.ChainID, snapshots.WithLabels(e.claim.Labels()))
	if errdefs.IsAlreadyExists(err) {
		ms, err = ss.Mounts(e.claim.Context(ctx), key)
	}
	if err != nil {
		return nil, fmt.Errorf("image %s: snapshot: %w", image.Ref, daemon.Native(err))
	}
	if l, err = lowerDirs(ms); err != nil {
		return nil, fmt.Errorf("image %s: snapshotter %s: %w", image.Ref, e.platform.Conn.Snapshotter, err)
	}
	e.mu.Lock()
	e.bases[image.ChainID] = l
	e.mu.Unlock()
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

type view struct{ root *os.Root }

func (v view) Root() *os.Root { return v.root }

func (v view) Close() error {
	dir := v.root.Name()
	return errors.Join(v.root.Close(), mounts.Detach(dir), os.Remove(dir))
}

// View opens an image's file system for reading. The caller closes the view before the
// engine.
func (e *Engine) View(ctx context.Context, image runtime.Image) (runtime.View, error) {
	lowers, err := e.lowers(ctx, image)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(e.claim.Dir(), "view-"+owner.RandomID())
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
	return view{root}, nil
}
