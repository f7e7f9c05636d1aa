package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/owner"
	"github.com/securebench/sbench/runtime/rootfs"
	"github.com/securebench/sbench/runtime/userns"
)

// decideOverlay finds out whether an ordinary user's overlays can write only on disk, and not in
// memory.
func (h *Host) decideOverlay(ctx context.Context) (onDisk bool, err error) {
	if !userns.Inside() || h.tryOverlay(ctx, false) == nil {
		return false, nil
	}
	if err := h.tryOverlay(ctx, true); err != nil {
		return false, fmt.Errorf("overlay file systems: the kernel gives this user none: %w: use Linux 5.11 or later with --root on a file system that has user.* attributes (ext4, xfs, btrfs)", err)
	}
	return true, nil
}

// tryOverlay mounts an overlay where the layers of sandboxes will be, and replaces a
// directory in it, which needs whiteouts and extended attributes.
func (h *Host) tryOverlay(ctx context.Context, onDisk bool) error {
	under := h.opts.State
	if onDisk {
		under = h.opts.Root
	}
	return owner.Trial(ctx, h.log, under, func(dir string) error { return replaceDirectory(dir, onDisk) })
}

// replaceDirectory mounts an overlay in dir, and replaces a directory in the overlay.
func replaceDirectory(dir string, onDisk bool) error {
	if !onDisk {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m"); err != nil {
			return err
		}
	}
	lower, target := filepath.Join(dir, "lower"), filepath.Join(dir, "target")
	old := filepath.Join(lower, "dir", "old")
	if err := errors.Join(os.MkdirAll(filepath.Dir(old), 0o755), os.WriteFile(old, nil, 0o644), os.Mkdir(target, 0o755)); err != nil {
		return err
	}
	if err := rootfs.Overlay([]string{lower}, filepath.Join(dir, "layer"), target); err != nil {
		return err
	}
	replaced := filepath.Join(target, "dir")
	if err := errors.Join(os.RemoveAll(replaced), os.Mkdir(replaced, 0o755)); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(replaced, "old")); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("a directory that was made anew is not empty (%v)", err)
	}
	return nil
}
