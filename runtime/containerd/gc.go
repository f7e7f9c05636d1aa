package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd/mounts"
	"github.com/securebench/sbench/runtime/containerd/volume"
	"github.com/securebench/sbench/runtime/filelock"
	"github.com/securebench/sbench/runtime/remove"
)

// leftovers are what is left of a run. Whoever removes them holds the lock.
type leftovers struct {
	run  string
	dir  string   // the run's directory; it may be gone
	lock *os.File // set by claim; nil if the lock file is gone
	dead bool     // its owner died before removing it
}

// Collected says what [Client.GC] did.
type Collected struct {
	Removed []string // the ids of the runs, sorted
	Left    []error  // what could not be removed; the next collection tries again
}

// GC removes what runs left behind, in the daemon and on this host, if their owner has died.
// It does not touch live runs, whose owners hold a lock. If a run cannot be removed, GC
// continues with the next. The error means that GC could not list the runs or was
// interrupted.
func (c *Client) GC(ctx context.Context) (Collected, error) {
	var done Collected
	if err := c.reapTrials(ctx); err != nil {
		done.Left = append(done.Left, fmt.Errorf("gc: trials: %w", err))
	}
	gate, err := c.gate(ctx, c.opts.State, filelock.Exclusive)
	if err != nil {
		return done, fmt.Errorf("gc: %w", err)
	}
	defer func() { _ = gate.Close() }()
	known, err := c.knownRuns(ctx)
	if err != nil {
		return done, fmt.Errorf("gc: %w", err)
	}
	for _, l := range known {
		if ctx.Err() != nil {
			return done, fmt.Errorf("gc: %w", context.Cause(ctx))
		}
		dead, err := l.claim()
		if err == nil && dead {
			l.dead = true
			if err = c.reap(ctx, l); err == nil {
				done.Removed = append(done.Removed, l.run)
			}
		}
		if err != nil {
			done.Left = append(done.Left, fmt.Errorf("gc: run %s: %w", l.run, err))
		}
	}
	slices.Sort(done.Removed)
	return done, nil
}

// knownRuns returns, by id, the runs with a directory on this host or a container or lease
// in the daemon.
func (c *Client) knownRuns(ctx context.Context) (map[string]leftovers, error) {
	known := map[string]leftovers{}
	runs := filepath.Join(c.opts.State, "runs")
	entries, err := os.ReadDir(runs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		known[e.Name()] = leftovers{run: e.Name(), dir: filepath.Join(runs, e.Name())}
	}
	add := func(labels map[string]string) {
		run, lock := labels[labelRun], labels[labelLock]
		dir := filepath.Dir(lock)
		ours := validRun(run) && filepath.Base(dir) == run && filepath.Base(filepath.Dir(dir)) == "runs"
		if _, ok := known[run]; !ok && ours {
			known[run] = leftovers{run: run, dir: dir}
		}
	}
	filter := fmt.Sprintf("labels.%q", labelRun)
	containers, err := c.c.ContainerService().List(c.ctx(ctx), filter)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", native(err))
	}
	for _, ct := range containers {
		add(ct.Labels)
	}
	held, err := c.c.LeasesService().List(c.ctx(ctx), filter)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", native(err))
	}
	for _, l := range held {
		add(l.Labels)
	}
	return known, nil
}

// validRun reports whether a label's value can be a run's id, so that no label makes GC
// remove anything else.
func validRun(run string) bool {
	return len(run) == 16 && strings.Trim(run, "0123456789abcdef") == ""
}

// claim reports whether the run's owner is dead, and if so takes the run's lock. A run
// without a lock file has no owner, since a live one keeps it.
func (l *leftovers) claim() (dead bool, err error) {
	lock, err := os.OpenFile(filepath.Join(l.dir, "lock"), os.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	switch err := filelock.Try(lock, filelock.Exclusive); {
	case errors.Is(err, filelock.ErrHeld):
		return false, lock.Close()
	case err != nil:
		return false, errors.Join(err, lock.Close())
	}
	l.lock = lock
	return true, nil
}

// reap removes everything of a run, its directory last, so that an interrupted removal is
// found again.
func (c *Client) reap(ctx context.Context, l leftovers) error {
	group := c.newGroup("/"+cgroupPrefix+l.run, runtime.Limits{}, nil)
	errs := []error{
		kill(ctx, group, 0, cleanupTimeout), // first, so that nothing uses the rest
		c.reapContainers(ctx, l.run),
		c.reapShims(ctx, l.run),
		c.reapSnapshots(ctx, l.run),
		c.reapLease(ctx, l),
		mounts.DetachBelow(l.dir),
		group.Remove(),
		remove.Path(volume.Files(c.opts.Root, l.run)),
	}
	points, err := mounts.Below(l.dir)
	if err == nil && len(points) > 0 {
		err = fmt.Errorf("%d mounts remain below %s", len(points), l.dir)
	}
	err = errors.Join(append(errs, err)...)
	if err == nil { // never remove through a mount
		err = remove.Path(l.dir)
	}
	if l.lock != nil {
		err = errors.Join(err, l.lock.Close())
	}
	return err
}

func (c *Client) reapContainers(ctx context.Context, run string) error {
	containers, err := c.c.Containers(c.ctx(ctx), fmt.Sprintf("labels.%q==%s", labelRun, run))
	if err != nil {
		return fmt.Errorf("list containers: %w", native(err))
	}
	errs := make([]error, len(containers))
	var each errgroup.Group // one that hangs must not hold up the others
	each.SetLimit(cap(c.setup))
	for i, ct := range containers {
		each.Go(func() error {
			errs[i] = c.removeContainer(ctx, ct)
			return nil
		})
	}
	return errors.Join(append(errs, each.Wait())...)
}

// removeContainer kills and removes a container and its task. It is no error if they are
// gone.
func (c *Client) removeContainer(ctx context.Context, ct client.Container) error {
	ctx, cancel := c.cleanup(ctx)
	defer cancel()
	task, err := ct.Task(ctx, nil)
	if err == nil {
		err = forceDelete(ctx, task)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("container %s: task: %w", ct.ID(), native(err))
	}
	if err := ct.Delete(ctx); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("container %s: %w", ct.ID(), native(err))
	}
	return nil
}

// forceDelete kills and deletes a task in any state. Killing the first process is enough,
// since the kernel then kills all others of its PID namespace; asking the shim to kill them
// fails without cgroups.
func forceDelete(ctx context.Context, task client.Task) error {
	status, err := task.Status(ctx)
	if err != nil {
		return err
	}
	if status.Status != client.Stopped {
		exited, err := task.Wait(ctx)
		if err != nil {
			return err
		}
		if err := task.Kill(ctx, unix.SIGKILL); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
		select {
		case <-exited:
		case <-ctx.Done():
			return fmt.Errorf("task does not end: %w", context.Cause(ctx))
		}
	}
	_, err = task.Delete(ctx)
	return err
}

func (c *Client) reapSnapshots(ctx context.Context, run string) error {
	ss := c.c.SnapshotService(c.opts.Snapshotter)
	var keys []string
	err := ss.Walk(c.ctx(ctx), func(_ context.Context, info snapshots.Info) error {
		keys = append(keys, info.Name)
		return nil
	}, fmt.Sprintf("labels.%q==%s", labelRun, run))
	if err != nil {
		return fmt.Errorf("list snapshots: %w", native(err))
	}
	var errs []error
	for _, key := range keys {
		if err := ss.Remove(c.ctx(ctx), key); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("snapshot %s: %w", key, native(err)))
		}
	}
	return errors.Join(errs...)
}

// reapLease deletes the run's lease. If the run's owner is dead, it waits until the daemon
// has collected what the lease held, such as half an image: a private daemon might be
// stopped before it does so by itself.
func (c *Client) reapLease(ctx context.Context, l leftovers) error {
	var opts []leases.DeleteOpt
	if l.dead {
		opts = append(opts, leases.SynchronousDelete)
	}
	err := c.c.LeasesService().Delete(c.ctx(ctx), leases.Lease{ID: l.run}, opts...)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("lease: %w", native(err))
	}
	return nil
}
