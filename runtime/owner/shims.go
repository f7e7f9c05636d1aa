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

// reapShims kills the processes of the run's shim, and removes the bundles in which they work, and the sockets. The
// daemon starts a server before it records it, so a client killed in between leaves one behind. A daemon whose action
// "delete" is killed leaves the bundle. The OCI runtimes for which a shim waits end with it (PR_SET_PDEATHSIG).
func (r *Registry) reapShims(run string) error {
	pids, err := proc.All()
	if err != nil {
		return err
	}
	var errs []error
	for _, pid := range pids {
		if !r.isShim(pid, run) {
			continue
		}
		bundle, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)) // it may have ended
		err := proc.SignalAll([]int{pid}, 0, unix.SIGKILL, func(pid int) bool { return r.isShim(pid, run) })
		if err == nil && strings.HasPrefix(filepath.Base(bundle), run+"-") {
			err = os.RemoveAll(bundle)
		}
		errs = append(errs, err)
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
