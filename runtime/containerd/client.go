// Package containerd implements the runtime contract on a containerd daemon.
package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/images"
	"github.com/securebench/sbench/runtime/limits"
	"github.com/securebench/sbench/runtime/owner"
	"github.com/securebench/sbench/runtime/rootless"
	"github.com/securebench/sbench/runtime/userns"
)

// Defaults, and special values, of [Options].
const (
	defaultNamespace   = "sbench"
	defaultSnapshotter = "overlayfs"
	HandlerAuto        = "auto" // sbench's own shim if it is installed and works, otherwise RuncHandler
	RuncHandler        = "io.containerd.runc.v2"
	ociRuntimeAuto     = "auto" // runc if it is in PATH, otherwise what the daemon has
	// NoAddress, as an address, asks for a private daemon even if another one runs.
	NoAddress = "none"
)

// Options says which daemon to use and where sbench keeps its own state. Root and State default
// to those of [DefaultDirectories].
type Options struct {
	// Address is the daemon's socket. "" means the system's daemon if it can be used,
	// otherwise a private one, which is started on demand.
	Address     string
	Namespace   string // containerd's, which separates images and containers; "" means "sbench"
	Snapshotter string // "" means "overlayfs"
	Handler     string // the shim: HandlerAuto, the name of a runtime, or a program's path; "" means HandlerAuto
	// OCIRuntime is the program that the shim executes, by path or by name in PATH: runc,
	// crun, or another with the same command line. "" means "auto": runc if it is in PATH,
	// otherwise what the daemon has. It must be one of these two if Handler is neither
	// sbench's shim nor containerd's for runc.
	OCIRuntime  string
	Root, State string // directories for persistent and for volatile state
	HostsDir    string // registry configuration; "" means /etc/containerd/certs.d
	// AllowDegraded names limits that may be missing on this host: memory, swap, pids, cpu. That
	// of the disk may always be missing: a volume in memory is bounded, too.
	AllowDegraded []string
	// Timeout bounds every answer of the daemon and the OCI runtime, except transfers
	// of images, which may take longer; 0 means 30 seconds.
	Timeout time.Duration
	// AllowSeccomp and AllowNetlink permit sandboxes system calls whose memory no limit
	// bounds; see oci.WithOwnFilters and oci.WithNetlink.
	AllowSeccomp, AllowNetlink bool
	// UserNamespace is "host" if sandboxes are to have the same ids as sbench, and "auto" or ""
	// if they are to have their own where that is possible.
	UserNamespace string
	Logger        *slog.Logger
}

// DefaultDirectories returns this user's directories for persistent and for volatile
// state. It makes neither.
func DefaultDirectories() (root, state string) {
	if os.Geteuid() == 0 && !rootless.Entered() {
		return "/var/lib/sbench", "/run/sbench"
	}
	root = filepath.Join(cmp.Or(os.Getenv("XDG_DATA_HOME"), filepath.Join(os.Getenv("HOME"), ".local/share")), "sbench")
	run := os.Getenv("XDG_RUNTIME_DIR")
	if run == "" { // no login session
		return root, filepath.Join(root, "run")
	}
	return root, filepath.Join(run, "sbench")
}

// A Client is a connection to a daemon. Its methods are safe for concurrent use. Make
// one with [Open].
type Client struct {
	Images *images.Store

	opts     Options
	daemon   *daemon.Daemon // nil unless private
	conn     *daemon.Conn
	registry *owner.Registry
	limits   *limits.Enforcer
	program  ociRuntime
	// onDisk means that what sandboxes write over their root goes to directories on disk: a
	// user's overlay needs user.* attributes, which tmpfs has from Linux 6.6 on (tmpfs(5)).
	onDisk bool
	layers string        // the directory of the layers of images
	setup  chan struct{} // bounds concurrent creation and deletion
	log    *slog.Logger

	closed   bool
	settling sync.Mutex
	settled  bool
	ids      idMode // valid once settled
	shim     string // the daemon's name of the shim, valid once settled
}

// Open connects to a daemon, starting a private one if necessary. The caller closes the
// client. The error is runtime.ErrUnavailable if no daemon can be used, and
// runtime.ErrInvalid if one of opts is invalid.
func Open(ctx context.Context, opts Options) (*Client, error) {
	c := &Client{opts: withDefaults(opts), setup: make(chan struct{}, 2*goruntime.NumCPU())}
	c.log = c.opts.Logger
	if mode := c.opts.UserNamespace; mode != "" && mode != userNamespaceAuto && mode != hostUserNamespace {
		return nil, fmt.Errorf("user namespace %q %w: it is neither %s nor %s", mode, runtime.ErrInvalid, userNamespaceAuto, hostUserNamespace)
	}
	var err error
	for _, dir := range []*string{&c.opts.Root, &c.opts.State} {
		if *dir, err = stateDirectory(*dir); err != nil {
			return nil, err
		}
	}
	cgroups, err := cgroup.Usable()
	if err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	if userns.HostRoot() { // an ordinary user's process did so before it entered its user namespace
		if err := cgroups.Claim(); err != nil {
			return nil, fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
		}
	}
	c.limits = limits.New(cgroups, c.opts.AllowDegraded)
	if err := c.decideOverlay(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	if c.program, err = findOCIRuntime(ctx, c.opts); err != nil {
		return nil, err
	}
	if err := c.connect(ctx); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	if c.layers, err = c.conn.LayersDirectory(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", runtime.ErrUnavailable, err), c.Close(ctx))
	}
	c.layers = cmp.Or(c.layers, c.opts.Root) // assumed to be on the same file system
	c.registry = &owner.Registry{Conn: c.conn, Limits: c.limits, Root: c.opts.Root, State: c.opts.State, Logger: c.log}
	c.Images = &images.Store{Conn: c.conn, Registry: c.registry, HostsDir: c.opts.HostsDir, Where: c.store()}
	return c, nil
}

// stateDirectory makes a directory and returns its path without symbolic links, as in the
// mount table.
func stateDirectory(dir string) (string, error) {
	// Overlay's mount options separate paths with some of these.
	if !filepath.IsAbs(dir) || strings.ContainsAny(dir, ":,\\\n\x00") {
		return "", fmt.Errorf("directory %q must be absolute and hold no colon, comma or backslash", dir)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", fmt.Errorf("make the state directory: %w", err)
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", fmt.Errorf("directory %s: %w", dir, err)
	}
	if int(st.Uid) != os.Geteuid() {
		return "", fmt.Errorf("directory %s belongs to another user, who can replace what is in it: choose another with --root or --state", dir)
	}
	return dir, nil
}

func withDefaults(o Options) Options {
	root, state := DefaultDirectories()
	o.Namespace, o.Handler = cmp.Or(o.Namespace, defaultNamespace), cmp.Or(o.Handler, HandlerAuto)
	o.Snapshotter = cmp.Or(o.Snapshotter, defaultSnapshotter)
	o.Root, o.State = cmp.Or(o.Root, root), cmp.Or(o.State, state)
	o.Timeout = cmp.Or(o.Timeout, daemon.DefaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// store says, for error messages, where images are looked for and how to look elsewhere.
func (c *Client) store() string {
	if c.Private() {
		return fmt.Sprintf("namespace %q of sbench's own containerd (%s): import it (sbench image import ARCHIVE), or name the daemon that has it (--address, --namespace)", c.opts.Namespace, c.opts.Root)
	}
	return fmt.Sprintf("namespace %q of containerd at %s: import it there (sbench image import ARCHIVE), or use sbench's own daemon and its images (--address none)", c.opts.Namespace, c.conn.Address)
}

// connect finds the daemon: at the given address, the system's, or a private one. If no
// address was given and the system's cannot be used, it logs that and continues.
func (c *Client) connect(ctx context.Context) error {
	switch {
	case c.opts.Address == NoAddress:
	case c.opts.Address != "":
		return c.dial(ctx, strings.TrimPrefix(c.opts.Address, "unix://"))
	case daemon.Answers(daemon.SystemAddress):
		err := c.dial(ctx, daemon.SystemAddress)
		if err == nil {
			return nil
		}
		c.log.Warn("the system's containerd cannot be used: sbench has one of its own, with its own images (--address none says so from the start)", "cause", err)
	}
	var err error
	c.daemon, err = daemon.Start(ctx, daemon.Config{
		Root: filepath.Join(c.opts.Root, "containerd"), State: filepath.Join(c.opts.State, "containerd"),
		OCIRuntime: c.program.path, Logger: c.log,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	return c.dial(ctx, c.daemon.Address())
}

func (c *Client) dial(ctx context.Context, address string) (err error) {
	c.conn, err = daemon.Dial(ctx, daemon.Target{
		Address: address, Namespace: c.opts.Namespace, Snapshotter: c.opts.Snapshotter,
		Timeout: c.opts.Timeout, Directories: []string{c.opts.Root, c.opts.State},
	})
	return err
}

// Close closes the connection, and stops a private daemon that no other process uses.
func (c *Client) Close(ctx context.Context) error {
	if c.closed {
		return nil
	}
	c.closed = true
	var errs []error
	if c.conn != nil {
		errs = append(errs, c.conn.Close())
	}
	if c.daemon != nil {
		errs = append(errs, c.daemon.Close(ctx))
	}
	return errors.Join(errs...)
}

// GC removes what runs left behind whose owner has died; see [owner.Registry.Collect].
func (c *Client) GC(ctx context.Context) (owner.Collected, error) { return c.registry.Collect(ctx) }

// Degraded lists the limits that this host's kernel cannot enforce for a sandbox and that
// may be missing; see [limits.Enforcer.Degraded].
func (c *Client) Degraded() ([]string, error) { return c.limits.Degraded() }

// Address returns the path of the socket in use.
func (c *Client) Address() string { return c.conn.Address }

// Root returns the directory for state that outlives a run.
func (c *Client) Root() string { return c.opts.Root }

// Version returns the version that the daemon reports.
func (c *Client) Version() string { return c.conn.Version }

// Private reports whether sbench itself started the daemon.
func (c *Client) Private() bool { return c.daemon != nil }

// slot waits until another sandbox may be made or started. The caller releases it.
func (c *Client) slot(ctx context.Context) (release func(), err error) {
	select {
	case c.setup <- struct{}{}:
		return func() { <-c.setup }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
}
