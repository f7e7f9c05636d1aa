package rootless

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/securebench/sbench/runtime/cgroup"
)

// claimGroup claims the control group delegated to this user, which must happen before the
// user namespace is entered. If there is none, it asks the user's systemd for a delegated
// scope and executes this program again in it. It is no error if neither works.
func claimGroup(o Options) error {
	h, err := cgroup.Usable()
	if err != nil {
		return fmt.Errorf("control groups: %w", err)
	}
	if len(h.Controllers()) == 0 && h.Mode() == cgroup.V2 && os.Getenv(envScope) == "" {
		if err := enterScope(); err != nil {
			o.Logger.Debug("no scope of the user's systemd", "error", err)
		}
	}
	if !h.Bounds() {
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

// enterScope executes this program again in a delegated scope of the user's systemd
// (systemd-run(1), --scope). It returns only on failure.
func enterScope() error {
	run, err := exec.LookPath("systemd-run")
	if err != nil {
		return err
	}
	through := []string{run, "--user", "--scope", "--quiet", "--collect", "-p", "Delegate=yes", "--"}
	// Try another program first: once systemd-run has replaced this process, a failure
	// cannot be handled.
	ctx, cancel := context.WithTimeout(context.Background(), scopeTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, run, append(slices.Clone(through[1:]), "true")...).CombinedOutput(); err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return execAgain(through, map[string]string{envScope: "1"})
}
