package rootless

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/userns"
)

// Stages of the holder.
const (
	stageUnmapped = "unmapped" // in the new namespaces, where no ids are mapped yet
	stageMapped   = "mapped"   // root in the new namespaces
	stageSweep    = "sweep"    // not the holder, but the process that kills what the holder left
)

const goFD = 3 // where the holder reads a byte as soon as its ids are mapped

// startHolder creates the namespaces and returns the process that holds them. If the host
// forbids that to sbench, rootlesskit, if installed, creates them: a host may permit only
// that program.
func startHolder(ctx context.Context, o Options) (int, error) {
	pid, err := launch(ctx, o, direct)
	if err == nil || !errors.Is(err, errForbidden) {
		return pid, err
	}
	if _, lookErr := exec.LookPath("rootlesskit"); lookErr != nil {
		return 0, err
	}
	o.Logger.Debug("namespaces are forbidden to sbench, trying rootlesskit", "error", err)
	pid, kitErr := launch(ctx, o, rootlesskit)
	if kitErr != nil {
		return 0, errors.Join(err, kitErr)
	}
	return pid, nil
}

// errForbidden means that this host forbids user namespaces, or capabilities in them.
var errForbidden = errors.New("this host does not let sbench make user namespaces")

// launch starts a holder with the function start and waits until it is ready.
func launch(ctx context.Context, o Options, start func(Options, *exec.Cmd) error) (pid int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = append(proc.Environment(), envDirectories+"="+o.Root+":"+o.State)
	ready := func() (ok bool) {
		pid, ok = proc.ReadFile(holderFile(o.State))
		return ok
	}
	err = daemon.Launch(ctx, cmd, filepath.Join(o.State, "holder.log"), func() error { return start(o, cmd) }, ready)
	if err == nil {
		return pid, nil
	}
	err = fmt.Errorf("the holder of the namespaces did not start: %w", err)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitForbidden {
		err = fmt.Errorf("%w: %w", forbidden(), err)
	}
	return 0, err
}

// direct starts cmd in new namespaces and maps their ids.
func direct(_ Options, cmd *exec.Cmd) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _, _ = read.Close(), write.Close() }()
	cmd.ExtraFiles = []*os.File{read}
	cmd.Env = append(cmd.Env, envHolder+"="+stageUnmapped)
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	if err := cmd.Start(); err != nil {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("%w: %w", forbidden(), err)
		}
		return err
	}
	if err := mapIDs(cmd.Process.Pid); err != nil {
		_, _ = cmd.Process.Kill(), cmd.Wait()
		return err
	}
	_, err = write.Write([]byte{1})
	return err
}

// rootlesskit starts cmd through rootlesskit, which creates the namespaces and maps the ids.
// The network namespace remains the host's.
func rootlesskit(o Options, cmd *exec.Cmd) error {
	program, err := exec.LookPath("rootlesskit")
	if err != nil {
		return err
	}
	cmd.Env = append(cmd.Env, envHolder+"="+stageMapped)
	self := cmd.Path
	cmd.Path = program
	cmd.Args = []string{program, "--net=host", "--propagation=rslave", "--state-dir=" + filepath.Join(o.State, "rootlesskit"), self}
	return cmd.Start()
}

// forbidden returns an error that says why user namespaces are forbidden and how to change
// that.
func forbidden() error {
	if why, cure := userns.Restriction(); why != "" {
		return fmt.Errorf("%w: they are %s: as root, %s", errForbidden, why, cure)
	}
	return fmt.Errorf("%w: a container's seccomp profile or the kernel forbids them, see docs/install.md", errForbidden)
}

func holderFile(state string) string { return filepath.Join(state, "holder.pid") }
