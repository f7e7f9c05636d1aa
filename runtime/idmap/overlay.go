package idmap

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/thread"
)

// Overlay mounts at target an overlay of directories shifted by [Range.Mount] or, with a nil
// range, of any directories. The paths in options may be relative to dir, which keeps them
// short: the kernel accepts at most one page of options.
//
// The range's root mounts it, since overlayfs creates files of its own, such as those in the
// work directory, with the mounter's credentials (overlayfs.rst, "Permission model").
func (r *Range) Overlay(dir, target string, options []string) error {
	mount := func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // a working directory of this thread's own
			return fmt.Errorf("unshare the working directory: %w", err)
		}
		if err := unix.Chdir(dir); err != nil {
			return fmt.Errorf("enter %s: %w", dir, err)
		}
		err := unix.Mount("overlay", target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, strings.Join(options, ","))
		if err != nil {
			return fmt.Errorf("mount overlay at %s: %w", target, err)
		}
		return nil
	}
	if r == nil {
		return thread.Run(mount)
	}
	return As(r.base, mount)
}
