// Package mounts makes, lists and removes mounts by their paths, in this process's mount
// namespace.
package mounts

import (
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
)

// Bind bind-mounts source at target, which must exist, read-only, nosuid and nodev. Mounts below source
// are not included.
func Bind(source, target string) error {
	return (&mount.Mount{Type: "bind", Source: source, Options: []string{"bind", "ro", "nosuid", "nodev"}}).Mount(target)
}

// Detach unmounts target, even if a file in it is in use. It is no error if nothing is
// mounted there.
func Detach(target string) error {
	err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // not mounted
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return nil
}

// DetachBelow detaches every mount at or below dir. Detaching an outer mount detaches those
// below it, too, which is faster than one by one.
func DetachBelow(dir string) error {
	points, err := Below(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range points {
		errs = append(errs, Detach(point))
	}
	return errors.Join(errs...)
}

// Below lists the mount points at and below dir, parents first; see [proc.Mounts].
func Below(dir string) ([]string, error) {
	found, err := proc.Mounts("/proc/self/mountinfo", mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, err
	}
	var points []string
	for _, m := range found {
		points = append(points, m.Mountpoint)
	}
	return points, nil
}
