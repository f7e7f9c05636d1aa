package idmap

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Overlay mounts at target an overlay of directories that [Range.Mount] has shifted.
// The paths in options may be relative to dir, which keeps them short: the kernel
// accepts at most one page of options.
//
// The range's root mounts it, because overlayfs creates files of its own, such as those
// in the work directory, with the credentials of the mounter (overlayfs.rst, "Permission
// model").
func (r *Range) Overlay(dir, target string, options []string) error {
	return As(r.base, func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare the working directory: %w", err)
		}
		if err := unix.Chdir(dir); err != nil {
			return fmt.Errorf("enter %s: %w", dir, err)
		}
		return overlay(target, options)
	})
}

func overlay(target string, options []string) error {
	err := unix.Mount("overlay", target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, strings.Join(options, ","))
	if err != nil {
		return fmt.Errorf("mount overlay at %s: %w", target, err)
	}
	return nil
}
