package owner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/filelock"
	"github.com/securebench/sbench/runtime/limits"
	"github.com/securebench/sbench/runtime/mounts"
	"github.com/securebench/sbench/runtime/remove"
	"github.com/securebench/sbench/runtime/volume"
)

// leftovers are what is left of a run. Whoever removes them holds the lock.
type leftovers struct {
	run  string
	dir  string   // the run's directory; it may be gone
	lock *os.File // set by claim; nil if the lock file is gone
	dead bool     // its owner died before removing it
}

// Collected says what [Registry.Collect] did.
type Collected struct {
	Removed []string // the ids of the runs, sorted
	Left    []error  // what could not be removed; the next collection tries again
}

// Collect removes what runs left behind, in the daemon and on this host, if their owner has died.
// It does not touch live runs, whose owners hold a lock. If a run cannot be removed, Collect
// continues with the next. The error means that Collect could not list the runs or was
// interrupted.
func (r *Registry) Collect(ctx context.Context) (Collected, error) {
	var done Collected
	gate, err := enter(ctx, r.Logger, r.State, filelock.Exclusive)
	if err != nil {
		return done, fmt.Errorf("gc: %w", err)
	}
	defer func() { _ = gate.Close() }()
	known, err := r.knownRuns(ctx)
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
			if err = r.reap(ctx, l); err == nil {
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
func (r *Registry) knownRuns(ctx context.Context) (map[string]leftovers, error) {
	known := map[string]leftovers{}
	runs := filepath.Join(r.State, "runs")
	entries, err := os.ReadDir(runs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if validRun(e.Name()) {
			known[e.Name()] = leftovers{run: e.Name(), dir: filepath.Join(runs, e.Name())}
		}
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
	containers, err := r.Conn.Client.ContainerService().List(r.Conn.Context(ctx), filter)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", daemon.Native(err))
	}
	for _, ct := range containers {
		add(ct.Labels)
	}
	held, err := r.Conn.Client.LeasesService().List(r.Conn.Context(ctx), filter)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", daemon.Native(err))
	}
	for _, l := range held {
		add(l.Labels)
	}
	return known, nil
}

// validRun reports whether a name can be a run's id, so that no label and no state directory that holds other files
// makes Collect remove anything else.
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
func (r *Registry) reap(ctx context.Context, l leftovers) error {
	group := r.Limits.Group(groupPath(l.run), runtime.Limits{}, nil)
	errs := []error{
		limits.Kill(ctx, group, 0, daemon.CleanupTimeout), // first, so that nothing uses the rest
		r.reapContainers(ctx, l.run),
		r.reapShims(l.run),
		r.reapSnapshots(ctx, l.run),
		r.reapLease(ctx, l),
		mounts.DetachBelow(l.dir),
		group.Remove(),
		remove.Path(volume.Files(r.Root, l.run)),
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

func (r *Registry) reapContainers(ctx context.Context, run string) error {
	containers, err := r.Conn.Client.Containers(r.Conn.Context(ctx), fmt.Sprintf("labels.%q==%s", labelRun, run))
	if err != nil {
		return fmt.Errorf("list containers: %w", daemon.Native(err))
	}
	errs := make([]error, len(containers))
	var each errgroup.Group // a container that hangs must not delay the rest
	each.SetLimit(2 * goruntime.NumCPU())
	for i, ct := range containers {
		each.Go(func() error {
			errs[i] = r.Conn.RemoveContainer(ctx, ct)
			return nil
		})
	}
	return errors.Join(append(errs, each.Wait())...)
}

func (r *Registry) reapSnapshots(ctx context.Context, run string) error {
	ss := r.Conn.Snapshots()
	var keys []string
	err := ss.Walk(r.Conn.Context(ctx), func(_ context.Context, info snapshots.Info) error {
		keys = append(keys, info.Name)
		return nil
	}, fmt.Sprintf("labels.%q==%s", labelRun, run))
	if err != nil {
		return fmt.Errorf("list snapshots: %w", daemon.Native(err))
	}
	var errs []error
	for _, key := range keys {
		if err := ss.Remove(r.Conn.Context(ctx), key); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("snapshot %s: %w", key, daemon.Native(err)))
		}
	}
	return errors.Join(errs...)
}

// reapLease deletes the run's lease. If the run's owner is dead, it waits until the daemon
// has collected what the lease held, such as half an image: a private daemon might be
// stopped before it does so by itself.
func (r *Registry) reapLease(ctx context.Context, l leftovers) error {
	var opts []leases.DeleteOpt
	if l.dead {
		opts = append(opts, leases.SynchronousDelete)
	}
	err := r.Conn.Client.LeasesService().Delete(r.Conn.Context(ctx), leases.Lease{ID: l.run}, opts...)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("lease: %w", daemon.Native(err))
	}
	return nil
}
