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

// startHolder starts the process that holds new namespaces, and returns it once it is ready.
func startHolder(ctx context.Context, o Options) (pid int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = append(proc.Environment(), envState+"="+o.State)
	ready := func() (ok bool) {
		pid, ok = proc.ReadFile(holderFile(o.State))
		return ok
	}
	err = daemon.Launch(ctx, cmd, filepath.Join(o.State, "holder.log"), func() error { return startInside(cmd) }, ready)
	if err == nil {
		return pid, nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0, err
	}
	err = fmt.Errorf("the holder of the namespaces did not start: %w", err)
	if exit.ExitCode() == exitForbidden {
		err = fmt.Errorf("%w: %w", forbidden(), err)
	}
	return 0, err
}

// startInside starts cmd in new namespaces and maps their ids. The error names all that keeps this user from it.
func startInside(cmd *exec.Cmd) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _, _ = read.Close(), write.Close() }()
	cmd.ExtraFiles = []*os.File{read}
	cmd.Env = append(cmd.Env, envHolder+"="+stageUnmapped)
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	maps, lack := mappings()
	if err := cmd.Start(); err != nil {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINVAL) {
			err = fmt.Errorf("%w: %w", err, forbidden())
		}
		return errors.Join(err, lack)
	}
	if lack == nil {
		lack = mapIDs(cmd.Process.Pid, maps)
	}
	if err := lack; err != nil {
		_, _ = cmd.Process.Kill(), cmd.Wait()
		return err
	}
	_, err = write.Write([]byte{1})
	return err
}

// forbidden returns an error that says why this host forbids user namespaces, or capabilities in them, and
// how to change that.
func forbidden() error {
	const what = "this host does not let sbench make user namespaces: "
	if why, cure := userns.Restriction(); why != "" {
		return fmt.Errorf(what+"they are %s: as root, %s", why, cure)
	}
	return errors.New(what + userns.ContainerRights)
}

func holderFile(state string) string { return filepath.Join(state, "holder.pid") }
