package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/idmap"
	"github.com/securebench/sbench/runtime/program"
	"github.com/securebench/sbench/runtime/task"
	"github.com/securebench/sbench/runtime/task/viadaemon"
	"github.com/securebench/sbench/runtime/task/viashim"
	"github.com/securebench/sbench/runtime/userns"
	"github.com/securebench/sbench/runtime/volume"
)

// UserNamespace returns the mode in which sandboxes get their ids: "own" if each has its own
// range, "nested" if sbench itself runs in a user namespace and each sandbox in a child of it,
// "host" if they have the same ids as sbench. why is the reason for "host", or what "own" lacks
// on this host; "" if neither applies. Both are "" until a run has been made.
func (c *Client) UserNamespace() (mode, why string) { return c.ids.name, c.ids.why }

// driver returns what makes the containers of a run with a shim.
func (c *Client) driver(r *Run, name string) task.Driver {
	if isOwn(name) {
		return viashim.New(viashim.Config{Conn: c.conn, Run: r.ID(), Labels: r.Labels("shim"), Shim: name, Program: c.program.path})
	}
	return &viadaemon.Driver{Conn: c.conn, Shim: name, Runc: executesProgram(c.opts.Handler), Program: c.program.path}
}

// settle chooses, once per client, the shim, and how sandboxes get their ids: the first of
// both with which a trial sandbox works.
func (c *Client) settle(ctx context.Context, r *Run) error {
	c.settling.Lock()
	defer c.settling.Unlock()
	if c.settled {
		r.tasks = c.driver(r, c.shim)
		return nil
	}
	shims, err := findShims(c.opts.Handler)
	if err != nil {
		return err
	}
	for i, s := range shims {
		c.shim, r.tasks = s, c.driver(r, s)
		last := i == len(shims)-1
		if err = c.settleIDs(ctx, r, last); last || !errors.Is(err, errNoSandbox) {
			break // a runtime that hangs, or a shortage, is not the shim's fault
		}
		c.log.Warn("sbench's own shim does not work here; containerd's is used, which takes longer (runtime.handler: "+RuncHandler+" says so from the start)", "shim", s, "cause", err)
	}
	if err != nil {
		c.ids, c.shim = idMode{}, ""
	}
	return err
}

var errNoSandbox = errors.New("this host runs no sandbox")

// settleIDs chooses how sandboxes get their ids. The host's are only for the last shim: no
// defect of the other must lead to them.
func (c *Client) settleIDs(ctx context.Context, r *Run, last bool) error {
	modes, err := c.idModes()
	if err != nil {
		return err
	}
	if final := len(modes) - 1; !last && final > 0 && modes[final].name == hostUserNamespace {
		modes = modes[:final]
	}
	image := r.emptyImage()
	var whys []string
	for _, m := range modes {
		if m.mappings && !errors.As(err, new(task.Refusal)) {
			continue // the failure was not due to missing mappings
		}
		if m.name == hostUserNamespace && m.why == "" {
			m.why = strings.Join(whys, "; ")
		}
		c.ids = m
		if err = r.Live(ctx, image); err == nil {
			c.settled = true
			if m.name == hostUserNamespace && c.opts.UserNamespace != hostUserNamespace {
				c.log.Warn("root in a sandbox is the host's root, without capabilities: sandboxes cannot have their own ids", "cause", m.why)
			}
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		if !lasting(err) {
			return fmt.Errorf("%w: no sandbox can be started on this host now: %w", runtime.ErrUnavailable, err)
		}
		if !slices.Contains(whys, err.Error()) {
			whys = append(whys, err.Error())
		}
	}
	return fmt.Errorf("%w: %w: %s", runtime.ErrUnavailable, errNoSandbox, strings.Join(whys, "; "))
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
func (c *Client) idModes() ([]idMode, error) {
	host := idMode{name: hostUserNamespace}
	switch {
	case userns.Inside(): // without a nested one, an agent would be in sbench's own user namespace
		return []idMode{{name: nestedUserNamespace}, {name: nestedUserNamespace, mappings: true}}, nil
	case c.opts.UserNamespace == hostUserNamespace:
		host.why = "asked for"
	case !userns.HostRoot():
		host.why = "sbench is not the host's root"
	}
	if host.why != "" {
		return []idMode{host}, nil
	}
	own := idMode{name: ownUserNamespace}
	if !c.conn.Inherited.SysResource {
		own.why = "the daemon has no CAP_SYS_RESOURCE: what the kernel counts per user, it counts for the host's root as well"
	}
	var err error
	if own.pool, err = idmap.NewPool(filepath.Join(c.opts.State, "ids.lock"), !c.conn.Inherited.SysResource); err != nil {
		return nil, fmt.Errorf("user namespaces: %w", err)
	}
	if err := passable(c.opts.State); err != nil {
		host.why = err.Error()
		return []idMode{host}, nil
	}
	inMemory, err := own.pool.ShiftsTmpfs()
	if err != nil || !inMemory && !volume.Images() {
		host.why = "the ids of file systems in memory cannot be shifted (Linux 6.3), and there are no loop devices"
		if err != nil {
			host.why = err.Error()
		}
		return []idMode{host}, nil
	}
	own.onDisk = !inMemory
	mapped := own
	mapped.mappings = true
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

// emptyImage returns an image for processes that need only what is mounted. Its one layer is
// the snapshotter's directory, so that a trial shows whether layers on that file system
// work.
func (r *Run) emptyImage() runtime.Image {
	const chain = "empty"
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bases[chain] = []string{r.c.layers}
	return runtime.Image{Ref: "sbench.local/empty", ChainID: chain}
}

// Live creates a sandbox of the image, runs a program in it that does nothing, and removes
// it, to find out whether the attempts of a run can work. Its error is that of the step that
// failed.
func (r *Run) Live(ctx context.Context, image runtime.Image) error {
	const dest = "/.sbench/true"
	at := filepath.Join(r.Dir(), "trial", "true")
	text, err := program.True(goruntime.GOARCH)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(at), 0o711)
	}
	if err == nil {
		err = os.WriteFile(at, text, 0o555)
	}
	if err != nil {
		return err
	}
	sandbox, err := r.Create(ctx, runtime.Config{
		Name: "trial", Image: image, User: "0:0", Workdir: "/tmp", Persistent: true, Limits: runtime.DefaultLimits(),
		Mounts: []runtime.Mount{{Source: at, Dest: dest}},
	})
	if err != nil {
		return err
	}
	exit, err := sandbox.Exec(ctx, runtime.Process{Args: []string{dest}, Wall: r.c.opts.Timeout})
	if err == nil && !exit.Success() {
		err = fmt.Errorf("%w: sandbox %q: a program that does nothing: %v", runtime.ErrUnavailable, "trial", exit)
	}
	return errors.Join(err, sandbox.Close(ctx))
}
