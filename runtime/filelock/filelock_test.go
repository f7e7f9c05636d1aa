package filelock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/filelock"
)

func TestLock(t *testing.T) {
	ctx, name := context.Background(), filepath.Join(t.TempDir(), "lock")
	first, err := filelock.Acquire(ctx, name, filelock.Shared)
	must.Do(t, err)
	second, err := filelock.Acquire(ctx, name, filelock.Shared)
	must.Do(t, err)                                                       // two may share
	must.Is(t, filelock.Try(first, filelock.Exclusive), filelock.ErrHeld) // exclusive beside shared
	must.Do(t, second.Close())
	must.Report(t, filelock.Try(first, filelock.Exclusive)) // exclusive alone
	cancelled, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("enough"))
	if f, err := filelock.Acquire(cancelled, name, filelock.Shared); err == nil || f != nil {
		t.Errorf("acquired a held lock: %v", err)
	}
	must.Do(t, first.Close())
	if _, err := filelock.Acquire(ctx, filepath.Join(name, "below-a-file"), filelock.Shared); !errors.Is(err, os.ErrNotExist) && err == nil {
		t.Error("locked below a file")
	}
}
