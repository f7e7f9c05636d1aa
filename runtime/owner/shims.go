package owner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/shim"
)

// reapShims kills the servers of the run's shim that the daemon does not know, and removes their sockets.
// The daemon starts a server before it records it, so a client killed in between leaves one behind.
func (r *Registry) reapShims(run string) error {
	pids, err := proc.All()
	if err != nil {
		return err
	}
	var errs []error
	for _, pid := range pids {
		if r.isShim(pid, run) {
			errs = append(errs, r.reapShim(pid, run))
		}
	}
	return errors.Join(append(errs, r.reapSockets(run))...)
}

// reapSockets removes what is left of the servers' sockets.
func (r *Registry) reapSockets(run string) error {
	prefix := shim.Socket(r.Conn.Address, run+"-")
	entries, err := os.ReadDir(filepath.Dir(prefix))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(prefix)) {
			if err := os.Remove(filepath.Join(filepath.Dir(prefix), e.Name())); !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// isShim reports whether a process's arguments are those of the shim for an anchor of the run, on this
// daemon.
func (r *Registry) isShim(pid int, run string) bool {
	if !proc.Ours(pid) { // another user can make reading its arguments take for ever
		return false
	}
	args := proc.Args(pid)
	if len(args) == 0 || filepath.Base(args[0]) != shim.Program {
		return false
	}
	value := func(flag string) string {
		if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	return strings.HasPrefix(value("-id"), run+"-") && sameFile(value("-address"), r.Conn.Address)
}

// sameFile reports whether two paths are equal, or lead to the same file: the daemon's
// configuration may name /var/run where sbench has /run.
func sameFile(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

func (r *Registry) reapShim(pid int, run string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // gone
	}
	defer func() { _ = unix.Close(fd) }()
	if !r.isShim(pid, run) { // again, now that the pidfd keeps the pid from being reused
		return nil
	}
	bundle, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)) // a shim's working directory is its bundle
	if err != nil {
		return nil
	}
	// The OCI runtimes for which it waits are in the process group that it leads, or get a
	// signal when it dies (PR_SET_PDEATHSIG).
	if group, err := unix.Getpgid(pid); err == nil && group == pid {
		_ = unix.Kill(-pid, unix.SIGKILL) // if it fails, it is gone or the next line says why
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("shim %d: %w", pid, err)
	}
	if !strings.HasPrefix(filepath.Base(bundle), run+"-") {
		return nil
	}
	return os.RemoveAll(bundle)
}
