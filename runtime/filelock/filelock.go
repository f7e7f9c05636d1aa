// Package filelock takes flock(2) locks. The kernel releases such a lock when its process ends,
// for whatever reason.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Mode says whether others may hold the lock at the same time.
type Mode int

// The modes. The zero Mode is invalid.
const (
	Shared    Mode = unix.LOCK_SH
	Exclusive Mode = unix.LOCK_EX
)

const pollInterval = 5 * time.Millisecond

// ErrHeld means that another open file holds a lock that excludes this one.
var ErrHeld = errors.New("lock is held")

// Acquire opens the file name, creating it if missing, and waits for a lock on it until ctx
// is done. The caller closes the file, which releases the lock.
func Acquire(ctx context.Context, name string, mode Mode) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := Try(f, mode)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, ErrHeld) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s: %w", name, context.Cause(ctx)), f.Close())
		case <-time.After(pollInterval):
		}
	}
}

// Try locks an open file, or changes the mode of its lock, without waiting. It fails with
// [ErrHeld] if that is not possible at once.
func Try(f *os.File, mode Mode) error {
	for {
		err := unix.Flock(int(f.Fd()), int(mode)|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("%s: %w", f.Name(), ErrHeld)
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}
