package containerd

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/thread"
)

// checkRoot makes sure that the root mount that the OCI runtime made for a first process,
// which is not started yet, is nosuid, nodev and, unless it is writable, read-only. runc
// clones the mount that it is given, with its flags; crun (1.8) makes another without them.
func (b *Box) checkRoot(pid uint32) error {
	want := []string{"nosuid", "nodev"}
	if !b.cfg.WritableRoot {
		want = append(want, "ro")
	}
	lacks, err := rootLacks(pid, want)
	if err != nil || !lacks {
		return err
	}
	if err := remountRoot(pid, b.cfg.WritableRoot); err != nil {
		return fmt.Errorf("seal the root that the OCI runtime made: %w", err)
	}
	if lacks, err = rootLacks(pid, want); err == nil && lacks {
		err = fmt.Errorf("the root that the OCI runtime made is not %s", strings.Join(want, ", "))
	}
	return err
}

// rootLacks reports whether the topmost mount at / of a process lacks any of the options
// in want (/proc/PID/mountinfo in proc(5)).
func rootLacks(pid uint32, want []string) (bool, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return false, err
	}
	var options []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 5 && fields[4] == "/" {
			options = strings.Split(fields[5], ",")
		}
	}
	if options == nil {
		return false, fmt.Errorf("process %d has no root mount", pid)
	}
	return slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(options, w) }), nil
}

// remountRoot sets the flags of the root mount in the mount namespace of a process that
// does not run the sandbox's program yet.
func remountRoot(pid uint32, writable bool) error {
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
