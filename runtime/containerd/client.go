// Package containerd implements the runtime contract on a containerd daemon, version
// 1.6 or later. It uses only services that both 1.x and 2.x have.
//
// Everything that it makes in the daemon or on the host belongs to a [Run]. In the daemon it
// has the run's label or is referenced by the run's lease; on the host it is in a directory
// or cgroup named after the run. The owner of a run holds the lock file in its directory.
// [Client.GC] removes what belongs to runs whose lock nobody holds.
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/rootless"
	"github.com/securebench/sbench/runtime/userns"
	"github.com/securebench/sbench/runtime/watchdog"
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

const dialTimeout = 10 * time.Second

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
	opts    Options
	address string
	daemon  *daemon.Daemon // nil unless private
	c       *client.Client
	version string
	cgroups cgroup.Hierarchies
	watch   watchdog.Watchdog // used where cgroups cannot bound memory and processes
	limits  daemonLimits
	program ociRuntime
	// onDisk means that what sandboxes write over their root goes to directories on disk: a
	// user's overlay needs user.* attributes, which tmpfs has from Linux 6.6 on (tmpfs(5)).
	onDisk  bool
	layers  string // the directory of the layers of images
	missing struct {
		degraded []string
		refused  error
	} // see Degraded
	setup chan struct{} // bounds concurrent creation and deletion
	log   *slog.Logger

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
	if c.cgroups, err = cgroup.Usable(); err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	if userns.HostRoot() { // an ordinary user's process did so before it entered its user namespace
		if err := c.cgroups.Claim(); err != nil {
			return nil, fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
		}
	}
	c.missing.degraded, c.missing.refused = c.findMissing()
	if err := c.decideOverlay(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	if c.program, err = findOCIRuntime(ctx, c.opts); err != nil {
		return nil, err
	}
	if err := c.connect(ctx); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	if err := c.findLayers(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", runtime.ErrUnavailable, err), c.Close(ctx))
	}
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
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
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

// dial connects to a daemon that answers and shares this process's view of the host.
func (c *Client) dial(ctx context.Context, address string) error {
	if !filepath.IsAbs(address) {
		return fmt.Errorf("containerd address %q %w: it is not an absolute path", address, runtime.ErrInvalid)
	}
	fail := func(err error) error {
		return fmt.Errorf("%w: containerd at %s: %w", runtime.ErrUnavailable, address, err)
	}
	if real, err := filepath.EvalSymlinks(address); err == nil {
		address = real // beside which a shim's server listens
	}
	limits, err := inspectDaemon(address, c.opts.Root, c.opts.State)
	if err != nil {
		return fail(err)
	}
	cl, err := client.New(address, client.WithDefaultNamespace(c.opts.Namespace), client.WithTimeout(dialTimeout),
		client.WithExtraDialOpts([]grpc.DialOption{grpc.WithChainUnaryInterceptor(bound(c.opts.Timeout))}))
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	v, err := cl.Version(ctx)
	if err != nil {
		if ctx.Err() != nil || late(err) { // gRPC's attempt to connect may end a moment earlier
			err = fmt.Errorf("no answer within %s: it hangs, or was stopped", dialTimeout)
		}
		return fail(errors.Join(err, cl.Close()))
	}
	c.c, c.address, c.version, c.limits = cl, address, v.Version, limits
	return nil
}

// Close closes the connection, and stops a private daemon that no other process uses.
func (c *Client) Close(ctx context.Context) error {
	var errs []error
	if c.c != nil {
		errs = append(errs, c.c.Close())
		c.c = nil
	}
	if c.daemon != nil {
		errs = append(errs, c.daemon.Close(ctx))
		c.daemon = nil
	}
	return errors.Join(errs...)
}

// Address returns the path of the socket in use.
func (c *Client) Address() string { return c.address }

// Root returns the directory for state that outlives a run.
func (c *Client) Root() string { return c.opts.Root }

// Version returns the version that the daemon reports.
func (c *Client) Version() string { return c.version }

// Private reports whether sbench itself started the daemon.
func (c *Client) Private() bool { return c.daemon != nil }

// ctx adds the namespace that every call needs.
func (c *Client) ctx(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, c.opts.Namespace)
}

// ready waits for a restarting daemon. The error is runtime.ErrUnavailable if it stays away
// for longer than reconnectTimeout.
func (c *Client) ready(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(c.ctx(ctx), reconnectTimeout)
	defer cancel()
	if _, err := c.c.IsServing(bounded); err != nil && ctx.Err() == nil && errors.Is(native(err), runtime.ErrUnavailable) {
		return fmt.Errorf("%w: containerd at %s has not answered for %s", runtime.ErrUnavailable, c.address, reconnectTimeout)
	}
	return nil // other errors come back from later calls
}

// slot waits until another sandbox may be made or started. The caller releases it.
func (c *Client) slot(ctx context.Context) (release func(), err error) {
	select {
	case c.setup <- struct{}{}:
		return func() { <-c.setup }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
}

// cleanup returns a context for removals that outlives the caller's.
func (c *Client) cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx(context.WithoutCancel(ctx)), max(min(cleanupTimeout, c.opts.Timeout), c.opts.Timeout/3))
}

// daemonLimits are the limits that every container inherits from the daemon. Raising one
// needs CAP_SYS_RESOURCE.
type daemonLimits struct {
	files       uint64 // the hard limit on open files per process
	oomScoreAdj int
	sysResource bool // the OCI runtime can have CAP_SYS_RESOURCE
	lowCores    bool // the OCI runtime cannot set RLIMIT_CORE above 0
}

// inspectDaemon reads the limits of the process behind a socket (unix(7), SO_PEERCRED). It
// fails if that process is in another PID namespace, or in another mount namespace that does not
// share dirs, in which files of sandboxes are.
func inspectDaemon(address string, dirs ...string) (daemonLimits, error) {
	var l daemonLimits
	pid, err := proc.Listener(address, dialTimeout)
	if err != nil {
		return l, err
	}
	apart := func(dir string) bool { return !proc.SharesDirectory(pid, dir) }
	if !proc.SharesNamespace(pid, 0, "pid") || !proc.SharesNamespace(pid, 0, "mnt") && slices.ContainsFunc(dirs, apart) {
		return l, errors.New("it runs in another mount or pid namespace, where it cannot see the sandboxes' files: " +
			"run sbench beside it, or let sbench start one of its own (--address none)")
	}
	var files, cores unix.Rlimit
	err = errors.Join(unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &files), unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &cores))
	if err == nil {
		var text []byte
		text, err = os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if err == nil {
			l.oomScoreAdj, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
	}
	if err != nil {
		return l, fmt.Errorf("limits of containerd: %w", err)
	}
	l.sysResource, err = mayHave(pid, unix.CAP_SYS_RESOURCE)
	l.files, l.lowCores = files.Max, cores.Max == 0 && !(l.sysResource && userns.HostRoot())
	return l, err
}

// native adds the runtime contract's sentinel error to a daemon's error.
func native(err error) error {
	switch {
	case err == nil:
		return nil
	case errdefs.IsUnavailable(err), errdefs.IsDeadlineExceeded(err), strings.Contains(err.Error(), "ttrpc: closed"):
		return fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	case errdefs.IsNotFound(err):
		return fmt.Errorf("%w: %w", runtime.ErrNotFound, err)
	}
	return err
}
