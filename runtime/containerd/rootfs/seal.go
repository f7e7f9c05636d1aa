package rootfs

import (
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

// Check checks that the root mount that the OCI runtime made for a first process, before
// that starts, is nosuid, nodev and, unless it is writable, read-only. runc clones the mount
// that it is given, with its flags; crun (1.8) makes another without them.
func (f *FS) Check(pid int) error {
	want := []string{"nosuid", "nodev"}
	if !f.Writable {
		want = append(want, "ro")
	}
	lacks, err := rootLacks(pid, want)
	if err != nil || !lacks {
		return err
	}
	if err := remountRoot(pid, f.Writable); err != nil {
		return fmt.Errorf("seal the root that the OCI runtime made: %w", err)
	}
	if lacks, err = rootLacks(pid, want); err == nil && lacks {
		err = fmt.Errorf("the root that the OCI runtime made is not %s", strings.Join(want, ", "))
	}
	return err
}

// rootLacks reports whether the topmost mount at / of a process lacks any of the options in
// want (/proc/PID/mountinfo in proc(5)).
func rootLacks(pid int, want []string) (bool, error) {
	table, err := proc.Mounts(fmt.Sprintf("/proc/%d/mountinfo", pid), nil)
	if err != nil {
		return false, err
	}
	for _, m := range slices.Backward(table) {
		if m.Mountpoint == "/" {
			options := strings.Split(m.Options, ",")
			return slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(options, w) }), nil
		}
	}
	return false, fmt.Errorf("process %d has no root mount", pid)
}

// remountRoot sets the flags of the root mount in the mount namespace of a process that does
// not run the sandbox's program yet.
func remountRoot(pid int, writable bool) error {
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV)
	if !writable {
		flags |= unix.MS_RDONLY
	}
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
		return unix.Mount("", "/", "", flags, "")
	})
}
