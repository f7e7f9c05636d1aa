// Package rootless lets an ordinary user run sandboxes. They run in the namespaces of the
// user's own rootless containerd if there is one. Otherwise sbench creates namespaces, and
// starts the private containerd in them.
//
// A program enters them by executing itself again inside. There it is root in a user
// namespace (user_namespaces(7)), keeps its process id, and continues as if it had always
// been root. A Go program has several threads and so cannot change its user namespace
// itself; nsenter(1) does that in between.
//
// The user's concurrent sbench processes share the namespaces that sbench created. A
// separate process, the holder, keeps them alive. Each sbench process holds a shared lock,
// which the kernel releases when the process ends for whatever reason. When no process holds
// it any more, the holder kills what still runs in the namespaces.
//
// The only privileged programs used are newuidmap(1) and newgidmap(1), which map the
// user's subordinate ids (subuid(5)).
package rootless

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/filelock"
	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/userns"
)

// Environment variables that pass state to this program when it is executed again.
const (
	envHolder  = "SBENCH_ROOTLESS_HOLDER" // the stage, if it runs as the holder
	envEntered = "SBENCH_ROOTLESS"        // in which namespaces it runs
	envLock    = "SBENCH_ROOTLESS_LOCK"   // file descriptor of its lock on the namespaces
	envDir     = "SBENCH_ROOTLESS_DIR"    // its working directory
	envScope   = "SBENCH_ROOTLESS_SCOPE"  // set if it runs in a scope that it asked systemd for
	envState   = "SBENCH_ROOTLESS_STATE"  // the holder's state directory
)

// Values of envEntered.
const (
	ownNamespaces  = "own"        // created by sbench
	userNamespaces = "containerd" // created by the user's rootless containerd
)

// Options say where sbench keeps its state and which containerd to use. Root and
// State are required.
type Options struct {
	Root, State string // persistent and volatile directory; absolute paths
	// Address is the socket of a daemon; empty means the user's own rootless one if it runs,
	// otherwise a private one.
	Address string
	// Private means not to look for a running daemon; Address is then ignored.
	Private bool
	Logger  *slog.Logger // nil for none
}

// Init must be called first in main by a program that calls [Enter]. In the process that
// holds the namespaces it does not return. It fails only inside the namespaces, for instance
// if the working directory cannot be reached there.
func Init() error {
	if stage := os.Getenv(envHolder); stage != "" {
		os.Exit(runHolder(stage))
	}
	lock, dir := os.Getenv(envLock), os.Getenv(envDir)
	if !userns.Inside() {
		return nil
	}
	for _, name := range []string{envLock, envDir, envScope} {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	if fd, err := strconv.Atoi(lock); err == nil {
		unix.CloseOnExec(fd) // and never closed, so that the lock is held until this process ends
	}
	if dir == "" {
		return nil
	}
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("rootless: working directory: %w", err)
	}
	return nil
}

// Entered reports whether this process or an ancestor has entered namespaces through
// [Enter].
func Entered() bool { return os.Getenv(envEntered) != "" && userns.Inside() }

// Enter executes this program again, with the same arguments, inside namespaces where it is
// root. If the process is root already, it returns nil at once. Otherwise it returns only on
// failure, with an error that says what is missing and how to fix it.
func Enter(ctx context.Context, o Options) error {
	if os.Geteuid() == 0 {
		return nil
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if err := enter(ctx, o); err != nil {
		return fmt.Errorf("rootless: %w", err)
	}
	return nil
}

func enter(ctx context.Context, o Options) error {
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return errors.New("nsenter is not in PATH: install the package util-linux")
	}
	pid := 0
	if !o.Private {
		if pid, err = runningDaemon(o.Address); err != nil {
			return err
		}
	}
	if pid == 0 {
		for _, dir := range []string{o.Root, o.State} {
			if err := ownDirectory(dir); err != nil {
				return err
			}
		}
	}
	if err := claimGroup(o); err != nil {
		return err
	}
	if pid != 0 {
		o.Logger.Debug("entering the namespaces of a rootless containerd", "pid", pid)
		return execInside(nsenter, pid, o, map[string]string{envEntered: userNamespaces})
	}
	lock, pid, err := ownNamespace(ctx, o)
	if err != nil {
		return err
	}
	if _, err := unix.FcntlInt(lock.Fd(), unix.F_SETFD, 0); err != nil {
		return errors.Join(err, lock.Close())
	}
	err = execInside(nsenter, pid, o, map[string]string{envEntered: ownNamespaces, envLock: strconv.Itoa(int(lock.Fd()))})
	return errors.Join(err, lock.Close())
}

// ownDirectory creates a directory that only its owner can access, or checks that an
// existing one is this user's and restricts its mode.
func ownDirectory(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("directory %q is not absolute: set HOME, or give --root and --state", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w: set HOME to a directory of this user, or give --root and --state", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("directory %s: %w", dir, err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("directory %s is not this user's own: choose another with --root or --state", dir)
	}
	return os.Chmod(dir, 0o700)
}

// execInside executes this program again in the user and mount namespaces of process pid. It
// returns only on failure.
func execInside(nsenter string, pid int, o Options, env map[string]string) error {
	var err error
	if env[envDir], err = os.Getwd(); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	if os.Getenv("TMPDIR") == "" {
		env["TMPDIR"] = filepath.Join(o.Root, "tmp")
		if err := os.MkdirAll(env["TMPDIR"], 0o700); err != nil {
			return err
		}
	}
	through := []string{nsenter, "--user", "--mount", "--preserve-credentials", "--target", strconv.Itoa(pid), "--"}
	return fmt.Errorf("nsenter: %w", execAgain(through, env))
}

// execAgain sets some variables of the environment and executes this program again, with the
// same arguments. If through is not empty, it is the command line of a program that executes this
// one. execAgain returns only on failure.
func execAgain(through []string, env map[string]string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for name, value := range env {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	args := slices.Concat(through, []string{self}, os.Args[1:])
	return unix.Exec(args[0], args, os.Environ())
}

// ownNamespace returns the process that holds sbench's own namespaces, starting it if
// necessary, and a lock that keeps it there.
func ownNamespace(ctx context.Context, o Options) (*os.File, int, error) {
	start, err := filelock.Acquire(ctx, filepath.Join(o.State, "holder-start.lock"), filelock.Exclusive)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = start.Close() }()
	// This waits for a holder without users that is about to end.
	lock, err := filelock.Acquire(ctx, lockFile(o.State), filelock.Shared)
	if err != nil {
		return nil, 0, err
	}
	pid, ok := proc.ReadFile(holderFile(o.State))
	if !ok {
		pid, err = newNamespaces(ctx, o, lock)
	}
	if err != nil {
		return nil, 0, errors.Join(err, lock.Close())
	}
	return lock, pid, nil
}

// newNamespaces creates namespaces and returns the process that holds them. If an earlier
// holder was killed, its namespaces may still contain processes: newNamespaces fails if
// another sbench uses them, and kills whatever else is left.
func newNamespaces(ctx context.Context, o Options, lock *os.File) (int, error) {
	err := filelock.Try(lock, filelock.Exclusive)
	if errors.Is(err, filelock.ErrHeld) {
		return 0, errors.New("the process that held the namespaces was killed while others use them: wait until the other sbench has ended")
	}
	if err != nil {
		return 0, err
	}
	if err := sweep(ctx, o); err != nil {
		return 0, err
	}
	// The start lock, which the caller holds, keeps others out in the meantime.
	if err := filelock.Try(lock, filelock.Shared); err != nil {
		return 0, err
	}
	o.Logger.Debug("making user and mount namespaces")
	return startHolder(ctx, o)
}

// sweep kills what is left in the namespaces of a killed holder, which it finds through the
// private daemon's process. Only a process inside the user namespace can see and kill
// everything in it.
func sweep(ctx context.Context, o Options) error {
	left, err := daemon.Find(filepath.Join(o.State, "containerd"))
	if err != nil || len(left) == 0 {
		return err
	}
	pid := left[0]
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o.Logger.Debug("ending what a killed holder left", "containerd", pid)
	cmd := exec.CommandContext(ctx, "nsenter", "--user", "--preserve-credentials", "--target", strconv.Itoa(pid), "--", self)
	cmd.Env = append(proc.Environment(), envHolder+"="+stageSweep)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("end what a killed holder left: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func lockFile(state string) string { return filepath.Join(state, "holder-users.lock") }
