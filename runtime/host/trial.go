package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/idmap"
	"github.com/securebench/sbench/runtime/owner"
	"github.com/securebench/sbench/runtime/sandbox"
	"github.com/securebench/sbench/runtime/task"
	"github.com/securebench/sbench/runtime/userns"
	"github.com/securebench/sbench/runtime/volume"
)

// The values of [Options.UserNamespace], and the modes that [Host.UserNamespace] returns.
const (
	userNamespaceAuto = "auto" // ownUserNamespace where that is possible
	hostUserNamespace = "host" // sandboxes have the same ids as sbench
	ownUserNamespace  = "own"  // each sandbox has its own range of ids
	// nestedUserNamespace means that sbench itself runs in a user namespace, and each
	// sandbox in a child of it with the same ids, none of which is the host's root.
	nestedUserNamespace = "nested"
)

// idMode is a way in which sandboxes get their ids.
type idMode struct {
	sandbox.IDs
	name string // one of the modes above
	why  string // reason for hostUserNamespace, or what ownUserNamespace lacks
}

// kinds are how this host makes the sandboxes of each isolation: with which OCI runtime, and with which ids.
type kinds struct {
	opts    Options
	conn    *daemon.Conn
	program ociRuntime // unless a sandbox has gVisor

	mu     sync.Mutex
	chosen map[runtime.Isolation]choice // by the runs so far
}

// Isolation returns the least that every sandbox gets.
func (k *kinds) Isolation() runtime.Isolation {
	if k.opts.Isolation == string(runtime.GVisor) {
		return runtime.GVisor
	}
	return runtime.Container
}

// UserNamespace returns the mode in which sandboxes get their ids: "own", "nested" or "host", see above.
// why is the reason for "host", or what "own" lacks on this host; "" if neither applies. Both are "" until
// a run has been made.
func (k *kinds) UserNamespace() (mode, why string) {
	c := k.choice()
	return c.ids.name, c.ids.why
}

// A choice is how this host makes the sandboxes of an isolation.
type choice struct {
	ids     idMode
	program ociRuntime
}

// choice returns how this host makes sandboxes unless a task asks for more; the zero choice until a run
// has been made.
func (k *kinds) choice() choice {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.chosen[k.Isolation()]
}

// GVisor returns the version of gVisor's OCI runtime; "" unless a run has used it.
func (k *kinds) GVisor() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return firstLine(k.chosen[runtime.GVisor].program.version)
}

// choose finds, once per host and isolation, the OCI runtime, and the first way in which sandboxes can get
// their ids. The engine, which owns the claim, uses them.
func (k *kinds) choose(ctx context.Context, e *sandbox.Engine, claim *owner.Claim, i runtime.Isolation) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c, ok := k.chosen[i]; ok {
		driver, err := k.driver(claim, c.program)
		e.Use(i, sandbox.Kind{Driver: driver, IDs: c.ids.IDs})
		return err
	}
	program := k.program
	if i == runtime.GVisor {
		var err error
		if program, err = findGVisor(ctx); err != nil {
			return err
		}
	}
	driver, err := k.driver(claim, program)
	if err != nil {
		return err
	}
	ids, err := k.tryModes(ctx, e, driver, i)
	if err == nil {
		k.chosen[i] = choice{ids, program}
	}
	return err
}

// driver returns what makes the containers of a run with an OCI runtime.
func (k *kinds) driver(claim *owner.Claim, program ociRuntime) (*task.Driver, error) {
	shim, err := k.findShim()
	if err != nil {
		return nil, err
	}
	return task.New(task.Options{Conn: k.conn, Run: claim.ID(), Labels: claim.Labels(), Shim: shim, Program: program.path, Flags: program.flags}), nil
}

// tryModes returns the first way in which sandboxes can get ids with which a trial sandbox works, and makes
// the engine use it with the driver.
func (k *kinds) tryModes(ctx context.Context, e *sandbox.Engine, driver *task.Driver, i runtime.Isolation) (idMode, error) {
	modes, err := k.idModes()
	if err != nil {
		return idMode{}, err
	}
	var whys []string
	for _, m := range modes {
		if m.Mappings && !errors.As(err, new(task.Refusal)) {
			continue // the failure was not due to missing mappings
		}
		if m.name == hostUserNamespace && m.why == "" {
			m.why = strings.Join(whys, "; ")
		}
		e.Use(i, sandbox.Kind{Driver: driver, IDs: m.IDs})
		if err = e.Trial(ctx, sandbox.EmptyImage(), i); err == nil {
			if m.name == hostUserNamespace && k.opts.UserNamespace != hostUserNamespace {
				k.opts.Logger.Warn("root in a sandbox is the host's root, without capabilities: sandboxes cannot have their own ids", "cause", m.why)
			}
			return m, nil
		}
		if ctx.Err() != nil {
			return idMode{}, err
		}
		if !lasting(err) {
			return idMode{}, fmt.Errorf("%w: no sandbox can be started on this host now: %w%s", runtime.ErrUnavailable, err, rootlessCure())
		}
		if !slices.Contains(whys, err.Error()) {
			whys = append(whys, err.Error())
		}
	}
	return idMode{}, fmt.Errorf("%w: this host runs no sandbox: %s%s", runtime.ErrUnavailable, strings.Join(whys, "; "), rootlessCure())
}

// rootlessCure returns the end of a message that no sandbox could be started: an ordinary user who may make
// namespaces mostly lacks what a container's engine has taken.
func rootlessCure() string {
	if !userns.Inside() {
		return ""
	}
	return ": " + userns.ContainerRights
}

// lasting reports whether a trial failed for a permanent reason: the OCI runtime or the
// kernel refused something. A temporary shortage of memory or processes must not lead to a
// weaker mode.
func lasting(err error) bool {
	if errors.Is(err, runtime.ErrUnavailable) {
		return false
	}
	for _, fact := range []error{idmap.ErrCannotShift, unix.EPERM, unix.EACCES, unix.EINVAL, unix.EOVERFLOW, unix.ENOSYS} {
		if errors.Is(err, fact) {
			return true
		}
	}
	return errors.As(err, new(task.Refusal))
}

// idModes lists the modes that Options allow on this host, in the order of the trials.
func (k *kinds) idModes() ([]idMode, error) {
	host := idMode{name: hostUserNamespace}
	switch {
	case userns.Inside(): // without a nested one, an agent would be in sbench's own user namespace
		return []idMode{{name: nestedUserNamespace}, {name: nestedUserNamespace, IDs: sandbox.IDs{Mappings: true}}}, nil
	case k.opts.UserNamespace == hostUserNamespace:
		host.why = "asked for"
	case !userns.HostRoot():
		host.why = "sbench is not the host's root"
	}
	if host.why != "" {
		return []idMode{host}, nil
	}
	own := idMode{name: ownUserNamespace}
	if !k.conn.Inherited.SysResource {
		own.why = "the daemon has no CAP_SYS_RESOURCE: what the kernel counts per user, it counts for the host's root as well"
	}
	var err error
	if own.Pool, err = idmap.NewPool(filepath.Join(k.opts.State, "ids.lock"), !k.conn.Inherited.SysResource); err != nil {
		return nil, fmt.Errorf("user namespaces: %w", err)
	}
	if err := passable(k.opts.State); err != nil {
		host.why = err.Error()
		return []idMode{host}, nil
	}
	inMemory, err := own.Pool.ShiftsTmpfs()
	if err != nil || !inMemory && !volume.Images() {
		host.why = "the ids of file systems in memory cannot be shifted (Linux 6.3), and there are no loop devices"
		if err != nil {
			host.why = err.Error()
		}
		return []idMode{host}, nil
	}
	own.OnDisk = !inMemory
	mapped := own
	mapped.Mappings = true
	return []idMode{own, mapped, own, mapped, host}, nil // own ids are tried twice before they are given up
}

// passable returns an error that names a directory on the way to dir which other users
// cannot pass. The OCI runtime goes there as the root of a sandbox with ids of its own,
// which is such a user.
func passable(dir string) error {
	for ; dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("the directory %s, on the way to --state, cannot be passed by other users (chmod o+x)", dir)
		}
	}
	return nil
}
