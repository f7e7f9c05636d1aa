package rootless

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/cgroup"
)

// claimGroup makes the control group that is delegated to this user, if there is
// one, usable from inside. Where none is, the user's systemd is asked for a scope
// that is, and the program executes itself again there.
func claimGroup(o Options) error {
	h, err := cgroup.Mounted()
	if err == nil {
		h, err = h.Delegated()
	}
	if err != nil {
		return fmt.Errorf("control groups: %w", err)
	}
	have := h.Controllers()
	if len(have) == 0 && h.Mode() == cgroup.V2 && os.Getenv(envScope) == "" {
		if err := enterScope(); err != nil {
			o.Logger.Debug("no scope of the user's systemd", "error", err)
		}
	}
	if !slices.Contains(have, "memory") || !slices.Contains(have, "pids") {
		o.Logger.Debug("no control group is delegated", "why", h.Lack().Why)
		return nil
	}
	if err := h.Claim(); err != nil {
		return fmt.Errorf("control groups: %w", err)
	}
	return nil
}

// scopeTimeout bounds the wait for the user's systemd.
const scopeTimeout = 10 * time.Second

// enterScope replaces this program by itself in a delegated scope of the user's
// systemd (systemd-run(1), --scope). It returns only with an error.
func enterScope() error {
	run, err := exec.LookPath("systemd-run")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"systemd-run", "--user", "--scope", "--quiet", "--collect", "-p", "Delegate=yes", "--"}
	// Tried first, since nothing is left to return to when the real one fails.
	ctx, cancel := context.WithTimeout(context.Background(), scopeTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, run, append(args[1:], "true")...).CombinedOutput(); err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return unix.Exec(run, append(append(args, self), os.Args[1:]...), environment(map[string]string{envScope: "1"}))
}
