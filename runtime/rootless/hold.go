package rootless

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/userns"
)

// exitForbidden is the holder's exit code if the kernel denies it an operation although it
// is root in its user namespace.
const exitForbidden = 77

// killTimeout bounds the wait for the end of killed processes.
const killTimeout = 30 * time.Second

// runHolder is the main function of the holder. It returns an exit code.
func runHolder(stage string) int {
	err := runStage(stage)
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintln(os.Stderr, err)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return exitForbidden
	}
	return 1
}

func runStage(stage string) error {
	if !userns.Inside() { // the stages change mounts and kill processes
		return fmt.Errorf("%s is set outside a user namespace: unset it", envHolder)
	}
	switch stage {
	case stageSweep:
		return killRest()
	case stageUnmapped:
		return becomeRoot()
	case stageMapped:
		return holdNamespaces(os.Getenv(envState))
	}
	return fmt.Errorf("unknown stage %q", stage)
}

// becomeRoot waits until the ids are mapped and then executes this program again, since a
// process gets root's capabilities only on execve(2) (user_namespaces(7)).
func becomeRoot() error {
	ready := os.NewFile(goFD, "ready")
	if n, err := ready.Read(make([]byte, 1)); n != 1 {
		return fmt.Errorf("the ids were not mapped: %w", err)
	}
	if err := ready.Close(); err != nil {
		return err
	}
	return execAgain(nil, map[string]string{envHolder: stageMapped})
}

// holdNamespaces prepares the mounts, writes the PID file when it is ready, waits until no
// process holds the lock, and kills every remaining process.
func holdNamespaces(state string) error {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE)
	// Mounts propagate from the host to here, but not from here to the host.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make the mounts our own: %w", err)
	}
	lock, err := os.OpenFile(lockFile(state), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	if err := proc.WriteFile(holderFile(state), os.Getpid()); err != nil {
		return err
	}
	for {
		if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	// This process holds the lock until it ends, and so makes new users wait.
	return errors.Join(err, os.Remove(holderFile(state)), killRest())
}

// killRest kills every other process in this user namespace and those below it: the daemon,
// shims and sandboxes of killed sbench processes.
func killRest() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), killTimeout, errors.New("processes in the namespaces do not end"))
	defer cancel()
	return proc.KillAll(ctx, os.Getpid(), inhabitants, func(_ int, left []int) error {
		return proc.SignalAll(left, 0, unix.SIGKILL, func(pid int) bool { return userns.Below(pid) >= 0 })
	})
}

// inhabitants returns the living processes in this user namespace and those below it.
func inhabitants() ([]int, error) {
	if userns.Below(os.Getpid()) != 0 { // it would find nobody
		return nil, errors.New("the user namespaces of processes cannot be read")
	}
	pids, err := proc.All()
	return slices.DeleteFunc(pids, func(pid int) bool { return !proc.Alive(pid) || userns.Below(pid) < 0 }), err
}
