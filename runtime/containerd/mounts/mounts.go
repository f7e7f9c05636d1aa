// Package mounts makes, lists and removes mounts by their paths, in this process's mount
// namespace unless it says otherwise.
package mounts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Bind bind-mounts source at target, which must exist, nosuid and nodev. Mounts below
// source are not included.
func Bind(source, target string, writable bool) error {
	mode := "ro"
	if writable {
		mode = "rw"
	}
	return (&mount.Mount{Type: "bind", Source: source, Options: []string{"bind", mode, "nosuid", "nodev"}}).Mount(target)
}

// Detach unmounts target, even when something still holds a file in it. It is no error
// if nothing is mounted there.
func Detach(target string) error {
	err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // not mounted
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return nil
}

// DetachBelow detaches every mount at or below dir. Detaching an outer mount detaches
// those below it too, which is faster than one by one.
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

// Below lists the mount points at and below dir, parents first. It ignores lines of the
// table that are longer than the library takes, since no mount of sbench's has one.
func Below(dir string) ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	var short []byte
	for line := range bytes.Lines(text) {
		if len(line) < bufio.MaxScanTokenSize {
			short = append(short, line...)
		}
	}
	found, err := mountinfo.GetMountsFromReader(bytes.NewReader(short), mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	var points []string
	for _, m := range found {
		points = append(points, m.Mountpoint)
	}
	return points, nil
}

// Table returns the mounts of a process's mount namespace, parents first.
func Table(pid int) ([]*mountinfo.Info, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return mountinfo.GetMountsFromReader(f, nil)
}
