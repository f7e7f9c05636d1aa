// Package owner holds what belongs to a run, and removes what runs left behind.
//
// Everything that a run makes belongs to the run's [Claim]: in the daemon it has the run's label or
// is referenced by the run's lease, and on the host it is in a directory or control group named
// after the run. The run's owner is the process that holds the lock file in the run's directory.
// [Registry.Collect] removes what belongs to runs without an owner.
//
// The package knows nothing of sandboxes and images: it finds what they are made of by the labels,
// directories and cgroups. It may use the daemon, mounts, volumes and locks.
package owner

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/core/leases"

	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/filelock"
	"github.com/securebench/sbench/runtime/limits"
)

// Labels of everything that a run has in the daemon.
const (
	labelRun  = "org.securebench.run"
	labelLock = "org.securebench.lock" // path of the lock file whose holder owns the run
)

// A Registry knows the runs of one state directory and one daemon. Its methods are safe for
// concurrent use. All fields are required.
type Registry struct {
	Conn        *daemon.Conn
	Limits      *limits.Enforcer
	Root, State string // directories for persistent and for volatile state
	Logger      *slog.Logger
}

// A Claim holds one run until it is closed. Its methods are safe for concurrent use. Make one with
// [Registry.Claim].
type Claim struct {
	registry *Registry
	id       string
	dir      string
	lock     *os.File
}

// Claim makes a run, with a lock, a lease and a directory of the same random name. The caller
// closes it. If the process dies instead, the next Collect removes what is left.
func (r *Registry) Claim(ctx context.Context) (*Claim, error) {
	c := &Claim{registry: r, id: RandomID()}
	c.dir = filepath.Join(r.State, "runs", c.id)
	if err := c.take(ctx); err != nil {
		return nil, fmt.Errorf("run %s: %w", c.id, err)
	}
	_, err := r.Conn.Client.LeasesService().Create(r.Conn.Context(ctx), leases.WithID(c.id), leases.WithLabels(c.Labels()))
	if err != nil {
		return nil, fmt.Errorf("run %s: lease: %w", c.id, errors.Join(daemon.Native(err), os.RemoveAll(c.dir), c.lock.Close()))
	}
	return c, nil
}

// WithClaim calls f, which makes something in the daemon, with the context of a temporary claim. If
// this process dies, the next Collect finds the lease, and the daemon collects what nothing else
// refers to.
func (r *Registry) WithClaim(ctx context.Context, f func(ctx context.Context) error) error {
	c, err := r.Claim(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(c.Context(ctx)), c.Close(ctx))
}

// RandomID returns 16 hexadecimal digits, as the id of a run is.
func RandomID() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails, crypto/rand
	return hex.EncodeToString(b)
}

// take makes the run's directory and locks it. A shared lock on the gate keeps Collect from
// seeing the directory before that.
func (c *Claim) take(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(c.dir), 0o711); err != nil {
		return err
	}
	gate, err := enter(ctx, c.registry.Logger, c.registry.State, filelock.Shared)
	if err != nil {
		return err
	}
	defer func() { _ = gate.Close() }()
	if err := os.Mkdir(c.dir, 0o711); err != nil {
		return err
	}
	c.lock, err = filelock.Acquire(ctx, c.lockPath(), filelock.Exclusive)
	if err != nil {
		return errors.Join(err, os.RemoveAll(c.dir))
	}
	return nil
}

// ID returns the run's random id, which is also the name of its lease and directory.
func (c *Claim) ID() string { return c.id }

// Dir returns the path of the run's directory.
func (c *Claim) Dir() string { return c.dir }

// Group returns the path, within the hierarchies, of the cgroup below which the run's are.
func (c *Claim) Group() string { return groupPath(c.id) }

func groupPath(run string) string { return "/sbench-" + run }

func (c *Claim) lockPath() string { return filepath.Join(c.dir, "lock") }

// Labels returns the labels of something that the run makes in the daemon.
func (c *Claim) Labels() map[string]string {
	return map[string]string{labelRun: c.id, labelLock: c.lockPath()}
}

// Context adds the namespace and the run's lease: the daemon does not collect what is made with
// it while the run lives.
func (c *Claim) Context(ctx context.Context) context.Context {
	return leases.WithLease(c.registry.Conn.Context(ctx), c.id)
}

// Close removes the run and everything that belongs to it, even if ctx is cancelled.
func (c *Claim) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // each call of the daemon has its own deadline
	return errors.Join(c.registry.Conn.Ready(ctx), c.registry.reap(ctx, leftovers{run: c.id, dir: c.dir, lock: c.lock}))
}

// slowGate is after how long a wait at the gate is logged.
const slowGate = 2 * time.Second

// enter locks the gate of a state directory: exclusively for a collection, and shared for those who make
// something that a collection would take for a leftover. The caller closes the file.
func enter(ctx context.Context, log *slog.Logger, state string, mode filelock.Mode) (*os.File, error) {
	name := filepath.Join(state, "gc.lock")
	slow := time.AfterFunc(slowGate, func() {
		log.Warn("waiting for another sbench, which starts a run or removes what runs left behind", "lock", name)
	})
	defer slow.Stop()
	return filelock.Acquire(ctx, name, mode)
}
