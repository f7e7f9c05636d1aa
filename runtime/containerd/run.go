package containerd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"golang.org/x/sync/semaphore"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd/mounts"
	"github.com/securebench/sbench/runtime/containerd/rootfs"
	"github.com/securebench/sbench/runtime/containerd/volume"
	"github.com/securebench/sbench/runtime/filelock"
)

// Labels of everything that a run has in the daemon.
const (
	labelRun  = "org.securebench.run"
	labelLock = "org.securebench.lock" // path of the lock file whose holder owns the run
	labelName = "org.securebench.name"
	// labelPulled marks the names that sbench pulled.
	labelPulled = "org.securebench.pulled"
)

const cgroupPrefix = "sbench-"

// A Run owns sandboxes, volumes and views until it is closed. Its methods are safe for
// concurrent use. Make one with [Client.NewRun].
type Run struct {
	c    *Client
	id   string
	dir  string
	lock *os.File
	// volumes are those of sandboxes and of callers.
	volumes *volume.Store

	mu    sync.Mutex
	bases map[string][]string // chain id → lower directories

	serving *semaphore.Weighted // of one, for what follows; starting a server takes time
	server  *server             // of sbench's own shim; nil until a sandbox needs it
	servers int                 // how many there have been
}

// NewRun makes a run, with a lock, a lease and a directory of the same random name. The
// caller closes it; if the process dies instead, the next GC removes what is left. The first
// run of a client finds out how this host can run sandboxes; if it cannot, the error is
// runtime.ErrUnavailable.
func (c *Client) NewRun(ctx context.Context) (*Run, error) {
	r, err := c.claimRun(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.settle(ctx, r); err != nil {
		return nil, errors.Join(err, r.Close(ctx))
	}
	return r, nil
}

func (c *Client) claimRun(ctx context.Context) (*Run, error) {
	r := &Run{c: c, id: randomID(), bases: map[string][]string{}, serving: semaphore.NewWeighted(1)}
	r.dir = filepath.Join(c.opts.State, "runs", r.id)
	r.volumes = volume.NewStore(r.dir, c.opts.Root, r.id)
	if err := r.claim(ctx); err != nil {
		return nil, fmt.Errorf("run %s: %w", r.id, err)
	}
	_, err := c.c.LeasesService().Create(c.ctx(ctx), leases.WithID(r.id), leases.WithLabels(r.labels("")))
	if err != nil {
		return nil, fmt.Errorf("run %s: lease: %w", r.id, errors.Join(native(err), os.RemoveAll(r.dir), r.lock.Close()))
	}
	return r, nil
}

// owned calls f, which makes something in the daemon, with the lease of a temporary run. If
// this process dies, the next GC finds the lease, and the daemon collects what nothing else
// refers to.
func (c *Client) owned(ctx context.Context, f func(ctx context.Context) error) error {
	r, err := c.claimRun(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(r.ctx(ctx)), r.Close(ctx))
}

func randomID() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails, crypto/rand
	return hex.EncodeToString(b)
}

// claim makes the run's directory and locks it. A shared lock on the gate keeps GC from
// seeing the directory before that.
func (r *Run) claim(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(r.dir), 0o711); err != nil {
		return err
	}
	gate, err := r.c.gate(ctx, r.c.opts.State, filelock.Shared)
	if err != nil {
		return err
	}
	defer func() { _ = gate.Close() }()
	if err := os.Mkdir(r.dir, 0o711); err != nil {
		return err
	}
	r.lock, err = filelock.Acquire(ctx, r.lockPath(), filelock.Exclusive)
	if err != nil {
		return errors.Join(err, os.RemoveAll(r.dir))
	}
	return nil
}

func (r *Run) lockPath() string { return filepath.Join(r.dir, "lock") }

func (r *Run) labels(name string) map[string]string {
	l := map[string]string{labelRun: r.id, labelLock: r.lockPath()}
	if name != "" {
		l[labelName] = strings.ToValidUTF8(name[:min(len(name), 200)], "?")
	}
	return l
}

// ctx adds the namespace and the run's lease: the daemon does not collect what is made with
// it while the run lives.
func (r *Run) ctx(ctx context.Context) context.Context {
	return leases.WithLease(r.c.ctx(ctx), r.id)
}

// Close removes the run and everything that belongs to it. Its sandboxes, volumes and
// views must be closed first.
func (r *Run) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // each call has its own deadline; see bound
	return errors.Join(r.volumes.Close(), r.c.ready(ctx), r.c.reap(ctx, leftovers{run: r.id, dir: r.dir, lock: r.lock}))
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
	ss := r.c.c.SnapshotService(r.c.opts.Snapshotter)
	key := r.id + "-" + strings.TrimPrefix(image.ChainID, "sha256:")[:min(16, len(image.ChainID)-7)]
	ms, err := ss.View(r.ctx(ctx), key, image.ChainID, snapshots.WithLabels(r.labels(image.Ref)))
	if errdefs.IsAlreadyExists(err) {
		ms, err = ss.Mounts(r.ctx(ctx), key)
	}
	if err != nil {
		return nil, fmt.Errorf("image %s: snapshot: %w", image.Ref, native(err))
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
	dir := filepath.Join(r.dir, "view-"+randomID())
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
