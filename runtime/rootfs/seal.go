package rootfs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/thread"
)

// seal makes the mount at target read-only and keeps its other flags. The OCI runtime's
// root.readonly would drop nosuid and nodev.
func seal(target string) error {
	err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
	if err != nil {
		return fmt.Errorf("make %s read-only: %w", target, err)
	}
	return nil
}

// Check checks the mounts that the OCI runtime made for a first process, before the process starts,
// and seals the mounts that are not as sbench asked for:
//
//	the root                                      nosuid, nodev, and read-only unless it is writable
//	what hides a directory of /proc or /sys       nosuid, nodev, read-only
//	the device null, which hides a file there     left alone: it must stay a device
//
// runc clones the root that it is given, with its flags. crun (1.8) makes another root without them, and
// hides directories with writable file systems of any size.
func (f *FS) Check(pid int) error {
	loose, err := looseMounts(pid, f.Writable)
	if err != nil || len(loose) == 0 {
		return err
	}
	if err := remount(pid, loose); err != nil {
		return fmt.Errorf("seal what the OCI runtime mounted: %w", err)
	}
	loose, err = looseMounts(pid, f.Writable)
	for target := range loose {
		err = errors.Join(err, fmt.Errorf("what the OCI runtime mounted at %s cannot be sealed", target))
	}
	return err
}

// looseMounts returns the flags that mounts of a process should have and lack, by their targets
// (/proc/PID/mountinfo in proc(5)). Of several mounts at a target the topmost counts. The root may
// be writable.
func looseMounts(pid int, writable bool) (map[string]uintptr, error) {
	table, err := proc.Mounts(fmt.Sprintf("/proc/%d/mountinfo", pid), nil)
	if err != nil {
		return nil, err
	}
	loose, seen := map[string]uintptr{}, map[string]bool{}
	for _, m := range slices.Backward(table) {
		if seen[m.Mountpoint] {
			continue
		}
		seen[m.Mountpoint] = true
		options := strings.Split(m.Options, ",")
		has := func(option string) bool { return slices.Contains(options, option) }
		flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
		switch hides := m.FSType == "tmpfs" && m.Root == "/" && (strings.HasPrefix(m.Mountpoint, "/proc/") || strings.HasPrefix(m.Mountpoint, "/sys/")); {
		case m.Mountpoint == "/" && (!has("nosuid") || !has("nodev") || !writable && !has("ro")):
			if !writable {
				flags |= unix.MS_RDONLY
			}
			loose[m.Mountpoint] = flags
		case hides && !has("ro"):
			loose[m.Mountpoint] = flags | unix.MS_RDONLY | unix.MS_NOEXEC
		}
	}
	if !seen["/"] {
		return nil, fmt.Errorf("process %d has no root mount", pid)
	}
	return loose, nil
}

// remount sets the flags of mounts in the mount namespace of a process that does not run the
// sandbox's program yet.
func remount(pid int, flags map[string]uintptr) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	return thread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // setns(2), "mount namespace"
			return err
		}
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
			return err
		}
		var errs []error
		for target, flags := range flags {
			if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", target, err))
			}
		}
		return errors.Join(errs...)
	})
}
