package rootless

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/userns"
)

// runningDaemon returns a process in the namespaces of this user's rootless containerd at address. An
// empty address is the usual place; if no containerd is there, runningDaemon returns 0.
func runningDaemon(address string) (int, error) {
	if address != "" {
		return namedDaemon(strings.TrimPrefix(address, "unix://"))
	}
	pid, ok := kitChild()
	if !ok || !socketIn(pid, daemon.SystemAddress) {
		return 0, nil
	}
	return pid, nil
}

// namedDaemon finds the daemon behind a socket that can be reached from this process's
// mount namespace or from rootlesskit's.
func namedDaemon(address string) (int, error) {
	pid, err := proc.Listener(address, time.Second)
	if err != nil {
		child, ok := kitChild()
		if ok && socketIn(child, address) {
			return child, nil
		}
		return 0, fmt.Errorf("containerd at %s: %w (unset the address to let sbench find or start one)", address, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d", pid), &st); err != nil || int(st.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("containerd at %s is another user's: run sbench as that user, or unset the address to let sbench find or start one", address)
	}
	if !childNamespace(pid) {
		return 0, fmt.Errorf("containerd at %s is not in a user namespace of this user's: unset the address to let sbench find or start one", address)
	}
	return pid, nil
}

// kitChild returns the process in rootlesskit's namespaces named by the state directory of
// containerd-rootless.sh.
func kitChild() (int, bool) {
	dir := os.Getenv("ROOTLESSKIT_STATE_DIR")
	if dir == "" {
		if os.Getenv("XDG_RUNTIME_DIR") == "" {
			return 0, false
		}
		dir = filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "containerd-rootless")
	}
	pid, err := strconv.Atoi(proc.Text(filepath.Join(dir, "child_pid")))
	return pid, err == nil && childNamespace(pid)
}

// childNamespace reports whether a process is in a user namespace directly below ours, as
// rootlesskit's child is and no sandbox is. A stale file may name an unrelated process that
// reuses the id, such as one in a sandbox.
func childNamespace(pid int) bool { return userns.Below(pid) == 1 }

// socketIn reports whether a process listens on a socket whose path is relative to the root
// directory of the process pid.
func socketIn(pid int, socket string) bool {
	return daemon.Answers(fmt.Sprintf("/proc/%d/root%s", pid, socket))
}
