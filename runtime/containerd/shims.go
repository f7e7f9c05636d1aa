package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// reapShims ends shims that the daemon does not know: it starts them before it
// writes down that they exist, so that a client killed in between leaves one.
func (c *Client) reapShims(ctx context.Context, run string) error {
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range found {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil && c.isShim(pid, run) {
			errs = append(errs, c.reapShim(ctx, pid, run))
		}
	}
	return errors.Join(errs...)
}

// isShim reads a process's arguments: the shim of a container of this run, on
// this daemon.
func (c *Client) isShim(pid int, run string) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00")
	if err != nil || !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") {
		return false
	}
	value := func(flag string) string {
		if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	return strings.HasPrefix(value("-id"), run+"-") && value("-address") == c.address
}

func (c *Client) reapShim(ctx context.Context, pid int, run string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // gone
	}
	defer func() { _ = unix.Close(fd) }()
	if !c.isShim(pid, run) { // looked at again now that it is held
		return nil
	}
	bundle, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)) // a shim works in its bundle
	if err != nil {
		return nil
	}
	// The OCI runtimes that it waits for are in its process group, which it leads, or
	// have its death for a signal of theirs.
	if group, err := unix.Getpgid(pid); err == nil && group == pid {
		_ = unix.Kill(-pid, unix.SIGKILL) // gone meanwhile, or the next line says why not
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("shim %d: %w", pid, err)
	}
	if !strings.HasPrefix(filepath.Base(bundle), run+"-") {
		return nil
	}
	if err := unmountBelow(bundle); err != nil {
		return err
	}
	return os.RemoveAll(bundle)
}
