package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/securebench/sbench/runtime/filelock"
	"github.com/securebench/sbench/runtime/rootfs"
	"github.com/securebench/sbench/runtime/userns"
)

// decideOverlay finds out whether an ordinary user's overlays can write only on disk, and not in
// memory. It tries both where the layers of sandboxes will be.
func decideOverlay(ctx context.Context, opts Options) (onDisk bool, err error) {
	if !userns.Inside() || rootfs.Try(opts.State, true) == nil {
		return false, nil
	}
	lock, err := filelock.Acquire(ctx, filepath.Join(opts.Root, "overlay.lock"), filelock.Exclusive)
	if err == nil {
		err = errors.Join(rootfs.Try(opts.Root, false), lock.Close())
	}
	if err != nil {
		return false, fmt.Errorf("overlay file systems: the kernel gives this user none: %w: use Linux 5.11 or later, with --root on ext4, xfs or btrfs, in a container on a volume", err)
	}
	return true, nil
}
