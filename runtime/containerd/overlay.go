package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/containerd/mounts"
	"github.com/securebench/sbench/runtime/containerd/rootfs"
	"github.com/securebench/sbench/runtime/filelock"
	"github.com/securebench/sbench/runtime/userns"
)

// trials returns the directory for trial mounts below a directory. Nothing else is made in
// it.
func trials(under string) string { return filepath.Join(under, "trials") }

// slowGate is after how long a wait at the gate is logged.
const slowGate = 2 * time.Second

// gate locks what is below a directory: exclusively for a collection, and shared for those who
// make something that a collection would take for a leftover. The caller closes the file.
func (c *Client) gate(ctx context.Context, under string, mode filelock.Mode) (*os.File, error) {
	name := filepath.Join(under, "gc.lock")
	slow := time.AfterFunc(slowGate, func() {
		c.log.Warn("waiting for another sbench, which starts a run or removes what runs left behind", "lock", name)
	})
	defer slow.Stop()
	return filelock.Acquire(ctx, name, mode)
}

// reapTrials removes leftovers of trials whose process was killed.
func (c *Client) reapTrials(ctx context.Context) error {
	var errs []error
	for _, under := range []string{c.opts.State, c.opts.Root} {
		gate, err := c.gate(ctx, under, filelock.Exclusive)
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

// decideOverlay finds out where an ordinary user's overlays can write: in memory, or on disk.
func (c *Client) decideOverlay(ctx context.Context) error {
	if !userns.Inside() {
		return nil
	}
	if c.tryOverlay(ctx, false) == nil {
		return nil
	}
	c.onDisk = true
	if err := c.tryOverlay(ctx, true); err != nil {
		return fmt.Errorf("overlay file systems: the kernel gives this user none: %w: use Linux 5.11 or later with --root on a file system that has user.* attributes (ext4, xfs, btrfs)", err)
	}
	return nil
}

// tryOverlay mounts an overlay where the layers of sandboxes will be, and replaces a
// directory in it, which needs whiteouts and extended attributes.
func (c *Client) tryOverlay(ctx context.Context, onDisk bool) (err error) {
	under := c.opts.State
	if onDisk {
		under = c.opts.Root
	}
	gate, err := c.gate(ctx, under, filelock.Shared)
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

// findLayers sets c.layers to the directory in which the snapshotter keeps the layers of
// images. If the daemon reports none, that is Options.Root, which is assumed to be on the
// same file system. The error is the daemon's own if the snapshotter could not be
// initialized.
func (c *Client) findLayers(ctx context.Context) error {
	answer, err := c.c.IntrospectionService().Plugins(c.ctx(ctx), "type==io.containerd.snapshotter.v1,id=="+c.opts.Snapshotter)
	if err != nil {
		return native(err)
	}
	c.layers = c.opts.Root
	for _, p := range answer.Plugins {
		if p.ID != c.opts.Snapshotter {
			continue
		}
		if p.InitErr != nil {
			return fmt.Errorf("containerd's snapshotter %s: %s", c.opts.Snapshotter, p.InitErr.GetMessage())
		}
		if info, err := os.Stat(p.Exports["root"]); err == nil && info.IsDir() {
			c.layers = p.Exports["root"]
		}
	}
	return nil
}
