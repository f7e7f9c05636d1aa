// Package host opens this host for sandboxes: it connects to the daemon, and finds out what the
// kernel, the daemon, the OCI runtime and the shim can do here.
//
// A [Host] has the images and makes the engines of runs. Its first run tries the ways in which
// sandboxes can have ids of their own, each with a trial sandbox (trial.go), and keeps the first
// that works. [Diagnose] is what `sbench doctor` shows.
//
// The package puts these packages together: daemon, limits, owner, images, task, sandbox.
// Only commands and tests import it.
package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/images"
	"github.com/securebench/sbench/runtime/limits"
	"github.com/securebench/sbench/runtime/owner"
	"github.com/securebench/sbench/runtime/rootless"
	"github.com/securebench/sbench/runtime/sandbox"
	"github.com/securebench/sbench/runtime/shim"
	"github.com/securebench/sbench/runtime/userns"
)

// Shim is the daemon's name of sbench's shim, for records.
const Shim = shim.Runtime

// Defaults, and special values, of [Options].
const (
	defaultNamespace   = "sbench"
	defaultSnapshotter = "overlayfs"
	ociRuntimeAuto     = "auto" // runc if it is in PATH, otherwise what the daemon has
	// IsolationAuto, as an isolation, means containers, and gVisor for tasks that ask for it.
	IsolationAuto = "auto"
	// NoAddress, as an address, asks for a private daemon even if another one runs.
	NoAddress = "none"
)

// Options says which daemon to use and where sbench keeps its own state.
type Options struct {
	Flags
	Snapshotter string // "" means "overlayfs"
	// AllowSeccomp and AllowNetlink permit sandboxes system calls that take memory which no
	// limit bounds; see OwnFilters and Netlink of oci.Config.
	AllowSeccomp, AllowNetlink bool
	// UserNamespace is "host" if sandboxes are to have the same ids as sbench, and "auto" or ""
	// if they are to have their own where that is possible.
	UserNamespace string
	Logger        *slog.Logger
}

// Flags are the options that the command line sets. "" means the default.
type Flags struct {
	Address    string `env:"CONTAINERD_ADDRESS" placeholder:"SOCKET" help:"containerd's socket, or none for a private daemon. Default: the system's if it can be used, else a private one."`
	Namespace  string `env:"CONTAINERD_NAMESPACE" placeholder:"NAME" help:"containerd namespace. Default: sbench."`
	OCIRuntime string `name:"oci-runtime" env:"SBENCH_OCI_RUNTIME" placeholder:"PROGRAM" help:"OCI runtime that the shim executes, by path or by name in PATH: runc, crun. Default: runc."` // also auto: runc if it is in PATH, otherwise what the daemon has

	Isolation string `enum:",auto,container,gvisor" default:"" env:"SBENCH_ISOLATION" placeholder:"KIND" help:"How sandboxes are isolated. container: they share the host's kernel. gvisor: they have a kernel of their own. auto: gvisor for tasks that ask for it, else container. Default: the tester file's runtime.isolation, else auto."`

	// Timeout does not bound transfers of images. 0 means the default.
	Timeout time.Duration `name:"daemon-timeout" env:"SBENCH_DAEMON_TIMEOUT" default:"30s" placeholder:"DURATION" help:"How long containerd or the OCI runtime may take to answer."`

	// Root and State default to what [DefaultDirectories] returns.
	Root  string `env:"SBENCH_ROOT" placeholder:"DIR" help:"Directory for images of the private daemon and for large volumes."`
	State string `env:"SBENCH_STATE" placeholder:"DIR" help:"Directory for locks, mounts and sockets."`

	// The limit on the disk may always be missing: a volume in memory is bounded, too.
	AllowDegraded []string `enum:"memory,swap,pids,cpu" env:"SBENCH_ALLOW_DEGRADED" placeholder:"LIMIT" help:"Run even if the kernel cannot enforce these limits: memory, swap, pids, cpu. Added to the tester file's runtime.allow_degraded."`
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

// A Host is a connection to a daemon, and what is known of this host. Its methods are safe for
// concurrent use. Make one with [Open].
type Host struct {
	Images *images.Store

	kinds
	daemon   *daemon.Daemon // nil unless private
	registry *owner.Registry
	limits   *limits.Enforcer
	platform sandbox.Platform
	closed   bool
}

// Open connects to a daemon, starting a private one if necessary. The caller closes the
// host. The error is runtime.ErrUnavailable if no daemon can be used, and
// runtime.ErrInvalid if one of opts is invalid.
func Open(ctx context.Context, opts Options) (*Host, error) {
	h := &Host{kinds: kinds{opts: withDefaults(opts), chosen: map[runtime.Isolation]choice{}}}
	if mode := h.opts.UserNamespace; mode != "" && mode != userNamespaceAuto && mode != hostUserNamespace {
		return nil, fmt.Errorf("user namespace %q %w: it is neither %s nor %s", mode, runtime.ErrInvalid, userNamespaceAuto, hostUserNamespace)
	}
	if i := h.opts.Isolation; i != "" && i != IsolationAuto && h.Isolation() != runtime.Isolation(i) {
		return nil, fmt.Errorf("isolation %q %w: it is none of %s, %s and %s", i, runtime.ErrInvalid, IsolationAuto, runtime.Container, runtime.GVisor)
	}
	var err error
	for _, dir := range []*string{&h.opts.Root, &h.opts.State} {
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
	h.limits = limits.New(cgroups, h.opts.AllowDegraded)
	onDisk, err := decideOverlay(ctx, h.opts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	if h.program, err = findOCIRuntime(ctx, h.opts); err != nil {
		return nil, err
	}
	if err := h.connect(ctx); err != nil {
		return nil, errors.Join(err, h.Close(ctx))
	}
	layers, err := h.conn.LayersDirectory(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", runtime.ErrUnavailable, err), h.Close(ctx))
	}
	h.registry = &owner.Registry{Conn: h.conn, Limits: h.limits, Root: h.opts.Root, State: h.opts.State, Logger: h.opts.Logger}
	h.Images = &images.Store{Conn: h.conn, Registry: h.registry, Where: h.whereImages()}
	h.platform = sandbox.Platform{
		Conn: h.conn, Limits: h.limits, Root: h.opts.Root, LayersOnDisk: onDisk,
		Layers:       cmp.Or(layers, h.opts.Root), // which is assumed to be on the same file system
		AllowSeccomp: h.opts.AllowSeccomp, AllowNetlink: h.opts.AllowNetlink, Isolation: h.Isolation(),
		Slots: make(chan struct{}, 2*goruntime.NumCPU()), Logger: h.opts.Logger,
	}
	return h, nil
}

// NewRun makes a run and returns its engine, which the caller closes. Sandboxes of the run can have the
// host's isolation, and those that are given. The first run of a host finds out how this host can run
// such sandboxes; if it cannot, the error is runtime.ErrUnavailable.
func (h *Host) NewRun(ctx context.Context, isolations ...runtime.Isolation) (*sandbox.Engine, error) {
	if h.opts.Isolation == string(runtime.Container) && slices.Contains(isolations, runtime.GVisor) {
		return nil, fmt.Errorf("isolation %s %w: a task asks for %s (runtime.isolation or --isolation: auto allows it)", runtime.Container, runtime.ErrInvalid, runtime.GVisor)
	}
	if err := userns.MayMount(); err != nil {
		return nil, fmt.Errorf("%w: this host lets sbench mount nothing: %w: %s", runtime.ErrUnavailable, err, userns.ContainerRights)
	}
	claim, err := h.registry.Claim(ctx)
	if err != nil {
		return nil, err
	}
	e := sandbox.New(claim, h.platform)
	for _, i := range append([]runtime.Isolation{h.Isolation()}, isolations...) {
		if err := h.choose(ctx, e, claim, max(i, h.Isolation())); err != nil {
			return nil, errors.Join(err, e.Close(ctx))
		}
	}
	return e, nil
}

// stateDirectory makes a directory and returns its path without symbolic links, as in the
// mount table.
func stateDirectory(dir string) (string, error) {
	// Overlay's mount options separate paths with some of these.
	if !filepath.IsAbs(dir) || strings.ContainsAny(dir, ":,\\\n\x00") {
		return "", fmt.Errorf("directory %q must be absolute and hold no colon, comma or backslash", dir)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", fmt.Errorf("make the state directory: %w: choose another with --root or --state", err)
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", fmt.Errorf("directory %s: %w", dir, err)
	}
	switch {
	case int(st.Uid) != os.Geteuid():
		return "", fmt.Errorf("directory %s belongs to another user, who can replace what is in it: choose another with --root or --state", dir)
	case st.Mode&0o022 != 0:
		return "", fmt.Errorf("other users can replace what is in directory %s (mode %04o): chmod go-w %[1]s, or choose another with --root or --state", dir, st.Mode&0o7777)
	}
	return dir, nil
}

func withDefaults(o Options) Options {
	root, state := DefaultDirectories()
	o.Namespace = cmp.Or(o.Namespace, defaultNamespace)
	o.Snapshotter = cmp.Or(o.Snapshotter, defaultSnapshotter)
	o.Root, o.State = cmp.Or(o.Root, root), cmp.Or(o.State, state)
	o.Timeout = cmp.Or(o.Timeout, daemon.DefaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// whereImages says, for error messages, where images are looked for and how to look elsewhere.
func (h *Host) whereImages() string {
	if h.Private() {
		return fmt.Sprintf("namespace %q of sbench's own containerd (%s): import it (sbench image import ARCHIVE), or name the daemon that has it (--address, --namespace)", h.opts.Namespace, h.opts.Root)
	}
	return fmt.Sprintf("namespace %q of containerd at %s: import it there (sbench image import ARCHIVE), or use sbench's own daemon and its images (--address none)", h.opts.Namespace, h.conn.Address)
}

// connect finds the daemon: at the given address, the system's, or a private one. If no
// address was given and the system's cannot be used, it logs that and continues.
func (h *Host) connect(ctx context.Context) error {
	switch {
	case h.opts.Address == NoAddress:
	case h.opts.Address != "":
		return h.dial(ctx, strings.TrimPrefix(h.opts.Address, "unix://"))
	case daemon.Answers(daemon.SystemAddress):
		err := h.dial(ctx, daemon.SystemAddress)
		if err == nil {
			return nil
		}
		h.opts.Logger.Warn("the system's containerd cannot be used: sbench has one of its own, with its own images (--address none says so from the start)", "cause", err)
	}
	var err error
	h.daemon, err = daemon.Start(ctx, daemon.Config{
		Root: filepath.Join(h.opts.Root, "containerd"), State: filepath.Join(h.opts.State, "containerd"),
		OCIRuntime: h.program.path, Logger: h.opts.Logger,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	return h.dial(ctx, h.daemon.Address())
}

func (h *Host) dial(ctx context.Context, address string) (err error) {
	h.conn, err = daemon.Dial(ctx, daemon.Target{
		Address: address, Namespace: h.opts.Namespace, Snapshotter: h.opts.Snapshotter,
		Timeout: h.opts.Timeout, Directories: []string{h.opts.Root, h.opts.State},
	})
	return err
}

// Close closes the connection, and stops a private daemon that no other process uses.
func (h *Host) Close(ctx context.Context) error {
	if h.closed {
		return nil
	}
	h.closed = true
	var errs []error
	if h.conn != nil {
		errs = append(errs, h.conn.Close())
	}
	if h.daemon != nil {
		errs = append(errs, h.daemon.Close(ctx))
	}
	return errors.Join(errs...)
}

// GC removes what is left of runs whose owner has died; see [owner.Registry.Collect].
func (h *Host) GC(ctx context.Context) (owner.Collected, error) { return h.registry.Collect(ctx) }

// Degraded lists the limits that this host's kernel cannot enforce for a sandbox and that
// may be missing; see [limits.Enforcer.Degraded].
func (h *Host) Degraded() ([]string, error) { return h.limits.Degraded() }

// Address returns the path of the socket in use.
func (h *Host) Address() string { return h.conn.Address }

// Root returns the directory for state that outlives a run.
func (h *Host) Root() string { return h.opts.Root }

// Version returns the version that the daemon reports.
func (h *Host) Version() string { return h.conn.Version }

// Private reports whether sbench itself started the daemon.
func (h *Host) Private() bool { return h.daemon != nil }
