package owner

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/securebench/sbench/runtime/filelock"
	"github.com/securebench/sbench/runtime/mounts"
)

// trials returns the directory for trial mounts below a directory. Nothing else is made in
// it.
func trials(under string) string { return filepath.Join(under, "trials") }

// slowGate is after how long a wait at the gate is logged.
const slowGate = 2 * time.Second

// enter locks the gate of what is below a directory: exclusively for a collection, and shared for
// those who make something that a collection would take for a leftover. The caller closes the file.
func enter(ctx context.Context, log *slog.Logger, under string, mode filelock.Mode) (*os.File, error) {
	name := filepath.Join(under, "gc.lock")
	slow := time.AfterFunc(slowGate, func() {
		log.Warn("waiting for another sbench, which starts a run or removes what runs left behind", "lock", name)
	})
	defer slow.Stop()
	return filelock.Acquire(ctx, name, mode)
}

// Trial calls f with a new directory below under, a root or state directory, in which f may mount
// file systems. Trial then unmounts and removes everything in it.
func Trial(ctx context.Context, log *slog.Logger, under string, f func(dir string) error) (err error) {
	gate, err := enter(ctx, log, under, filelock.Shared)
	if err != nil {
		return err
	}
	defer func() { _ = gate.Close() }()
	if err := os.MkdirAll(trials(under), 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(trials(under), "overlay-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mounts.DetachBelow(dir), os.RemoveAll(dir)) }()
	return f(dir)
}

// reapTrials removes leftovers of trials whose process was killed.
func (r *Registry) reapTrials(ctx context.Context) error {
	var errs []error
	for _, under := range []string{r.State, r.Root} {
		gate, err := enter(ctx, r.Logger, under, filelock.Exclusive)
		if err != nil {
			return err
		}
		err = mounts.DetachBelow(trials(under))
		if points, mountsErr := mounts.Below(trials(under)); len(points) == 0 && mountsErr == nil { // never remove through a mount
			err = os.RemoveAll(trials(under))
		}
		errs = append(errs, err, gate.Close())
	}
	return errors.Join(errs...)
}
