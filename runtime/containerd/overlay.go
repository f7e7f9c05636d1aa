package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/filelock"
	"github.com/securebench/sbench/runtime/thread"
	"github.com/securebench/sbench/runtime/userns"
)

// FuseSnapshotter is the value of Options.Snapshotter for hosts whose kernel does not
// let a user mount overlayfs. Directories are then stacked by fuse-overlayfs(1), and
// the daemon's native snapshotter keeps one full copy of the image for each layer.
const FuseSnapshotter = "fuse-overlayfs"

const nativeSnapshotter = "native"

// stacker makes overlays. The zero value uses the kernel's overlayfs.
type stacker struct {
	fuse string // the program; "" for the kernel's overlayfs
	// onDisk means that writes go to a directory on disk, since a user's overlay needs
	// user.* attributes, which tmpfs has from Linux 6.6 on (tmpfs(5)).
	onDisk bool
}

// overlay mounts an overlay of lower directories at target, which writes to directories
// that it makes in layer.
func (s stacker) overlay(lowers []string, layer, target string) error {
	upper, work, err := makeLayer(layer)
	if err != nil {
		return err
	}
	if s.fuse == "" {
		return mountNamed(lowers, layer, target)
	}
	options := "lowerdir=" + strings.Join(lowers, ":") + ",upperdir=" + upper + ",workdir=" + work
	// It goes into the background and ends at the unmount.
	cmd := exec.Command(s.fuse, "-o", options, target)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fuse-overlayfs: %w: %s", err, bytes.TrimSpace(out))
	}
	err = unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV, "")
	if err != nil {
		return errors.Join(fmt.Errorf("fuse-overlayfs: %w", err), unmount(target))
	}
	return nil
}

// mountNamed mounts an overlay whose options name links next to its target instead of the
// directories themselves. A sandbox can read the options of its root mount, which must not
// reveal the paths of the host's user; and the kernel accepts at most one page of options.
func mountNamed(lowers []string, layer, target string) error {
	links := target + "-layers"
	if err := errors.Join(os.Mkdir(links, 0o700), os.Symlink(layer, filepath.Join(links, "layer"))); err != nil {
		return err
	}
	names := make([]string, len(lowers))
	for i, lower := range lowers {
		names[i] = strconv.Itoa(i)
		if err := os.Symlink(lower, filepath.Join(links, names[i])); err != nil {
			return err
		}
	}
	return thread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // a working directory of this thread's own
			return err
		}
		if err := unix.Chdir(links); err != nil {
			return err
		}
		options := strings.Join(layerOptions(names, "layer/upper", "layer/work"), ",")
		if err := unix.Mount("overlay", target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return fmt.Errorf("mount overlay at %s: %w", target, err)
		}
		return nil
	})
}

// trials returns the directory for trial mounts below a directory. Nothing else is made
// there.
func trials(under string) string { return filepath.Join(under, "trials") }

// gateOf returns the path of the lock on what is below a directory. A collection holds it
// exclusively. It is shared by those who are making something that a collection would take
// for left behind.
func gateOf(under string) string { return filepath.Join(under, "gc.lock") }

// reapTrials removes what trials left whose process was killed.
func (c *Client) reapTrials(ctx context.Context) error {
	var errs []error
	for _, under := range []string{c.opts.State, c.opts.Root} {
		gate, err := filelock.Acquire(ctx, gateOf(under), filelock.Exclusive)
		if err != nil {
			return err
		}
		err = unmountBelow(trials(under))
		if points, mountsErr := mountsBelow(trials(under)); len(points) == 0 && mountsErr == nil { // never remove through a mount
			err = os.RemoveAll(trials(under))
		}
		errs = append(errs, err, gate.Close())
	}
	return errors.Join(errs...)
}

// decideStacker chooses the first way of making overlays that works, and the snapshotter
// that goes with it. It must be called before the daemon is asked for a snapshotter.
func (c *Client) decideStacker() error {
	wanted := c.opts.Snapshotter
	if wanted == "" {
		c.opts.Snapshotter = DefaultSnapshotter
	}
	var kernel error
	if wanted != FuseSnapshotter {
		if wanted != "" || !userns.Inside() {
			return nil
		}
		for _, s := range []stacker{{}, {onDisk: true}} {
			err := c.tryOverlay(s)
			if err == nil {
				c.stack = s
				return nil
			}
			kernel = err
		}
	}
	program, err := exec.LookPath("fuse-overlayfs")
	if err == nil {
		c.stack = stacker{fuse: program}
		err = c.tryOverlay(c.stack)
	}
	if err != nil {
		return fmt.Errorf("overlay file systems: the kernel gives this user none (%v), and fuse-overlayfs does not work (%w): "+
			"use Linux 5.11 or later with --root on a file system that has user.* attributes (ext4, xfs, btrfs), or install the package fuse-overlayfs and make /dev/fuse available", kernel, err)
	}
	c.opts.Snapshotter = nativeSnapshotter
	return nil
}

// tryOverlay mounts an overlay where the layers of sandboxes will be, and replaces a
// directory in it, which needs whiteouts and extended attributes.
func (c *Client) tryOverlay(s stacker) (err error) {
	under := c.opts.State
	if s.onDisk {
		under = c.opts.Root
	}
	gate, err := filelock.Acquire(context.Background(), gateOf(under), filelock.Shared)
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
	defer func() { err = errors.Join(err, unmountBelow(dir), os.RemoveAll(dir)) }()
	if !s.onDisk {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m"); err != nil {
			return err
		}
	}
	lower, target := filepath.Join(dir, "lower"), filepath.Join(dir, "target")
	old := filepath.Join(lower, "dir", "old")
	if err := errors.Join(os.MkdirAll(filepath.Dir(old), 0o755), os.WriteFile(old, nil, 0o644), os.Mkdir(target, 0o755)); err != nil {
		return err
	}
	if err := s.overlay([]string{lower}, filepath.Join(dir, "layer"), target); err != nil {
		return err
	}
	replaced := filepath.Join(target, "dir")
	if err := errors.Join(os.RemoveAll(replaced), os.Mkdir(replaced, 0o755)); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(replaced, "old")); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("a folder that was made anew is not empty (%v)", err)
	}
	return nil
}

// snapshotterWorks returns the daemon's own error if the snapshotter could not be
// initialized.
func (c *Client) snapshotterWorks(ctx context.Context) error {
	answer, err := c.c.IntrospectionService().Plugins(c.ctx(ctx), "type==io.containerd.snapshotter.v1,id=="+c.opts.Snapshotter)
	if err != nil {
		return native(err)
	}
	for _, p := range answer.Plugins {
		if p.ID == c.opts.Snapshotter && p.InitErr != nil {
			return fmt.Errorf("containerd's snapshotter %s: %s", c.opts.Snapshotter, p.InitErr.GetMessage())
		}
	}
	return nil
}
