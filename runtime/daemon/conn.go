package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/userns"
)

const dialTimeout = 10 * time.Second

// A Target says to which daemon to connect, and how to use it. All fields are required.
type Target struct {
	Address     string // the socket's absolute path
	Namespace   string // containerd's, which separates images and containers
	Snapshotter string // containerd's name of what keeps the layers of images
	// Timeout bounds every answer of the daemon, except transfers of images.
	Timeout time.Duration
	// Directories have files of sandboxes. The daemon must see the same files there.
	Directories []string
}

// A Conn is a connection to a containerd daemon. Its methods are safe for concurrent use. Make
// one with [Dial].
type Conn struct {
	Target                   // its Address is without symbolic links
	Client    *client.Client // every call of it needs a context of [Conn.Context]
	Version   string         // the daemon's
	Inherited Inherited
}

// Dial connects to a daemon that answers and shares this process's view of the host. The caller
// closes the connection. The error is runtime.ErrUnavailable if the daemon cannot be used, and
// runtime.ErrInvalid if the address is no path.
func Dial(ctx context.Context, to Target) (*Conn, error) {
	if !filepath.IsAbs(to.Address) {
		return nil, fmt.Errorf("containerd address %q %w: it is not an absolute path", to.Address, runtime.ErrInvalid)
	}
	fail := func(err error) (*Conn, error) {
		return nil, fmt.Errorf("%w: containerd at %s: %w", runtime.ErrUnavailable, to.Address, err)
	}
	if real, err := filepath.EvalSymlinks(to.Address); err == nil {
		to.Address = real // beside which a shim's server listens
	}
	inherited, err := inspect(to.Address, to.Directories...)
	if err != nil {
		return fail(err)
	}
	cl, err := client.New(to.Address, client.WithDefaultNamespace(to.Namespace), client.WithTimeout(dialTimeout),
		client.WithExtraDialOpts([]grpc.DialOption{grpc.WithChainUnaryInterceptor(bound(to.Timeout))}))
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	v, err := cl.Version(ctx)
	if err != nil {
		if ctx.Err() != nil || late(err) { // gRPC's attempt to connect may end a moment earlier
			err = fmt.Errorf("no answer within %s: it hangs, or was stopped; restart it, or let sbench start one of its own (--address none)", dialTimeout)
		}
		return fail(errors.Join(err, cl.Close()))
	}
	return &Conn{Target: to, Client: cl, Version: v.Version, Inherited: inherited}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.Client.Close() }

// Context adds the namespace that every call needs.
func (c *Conn) Context(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, c.Namespace)
}

// Cleanup returns a context for removals that outlives the caller's.
func (c *Conn) Cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Context(context.WithoutCancel(ctx)), max(min(CleanupTimeout, c.Timeout), c.Timeout/3))
}

// Ready waits for a restarting daemon. The error is runtime.ErrUnavailable if it stays away
// for longer than ReconnectTimeout.
func (c *Conn) Ready(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(c.Context(ctx), ReconnectTimeout)
	defer cancel()
	if _, err := c.Client.IsServing(bounded); err != nil && ctx.Err() == nil && errors.Is(Native(err), runtime.ErrUnavailable) {
		return fmt.Errorf("%w: containerd at %s has not answered for %s", runtime.ErrUnavailable, c.Address, ReconnectTimeout)
	}
	return nil // other errors come back from later calls
}

// Snapshots returns the service that keeps the layers of images.
func (c *Conn) Snapshots() snapshots.Snapshotter { return c.Client.SnapshotService(c.Snapshotter) }

// LayersDirectory returns the directory in which the snapshotter keeps the layers of images, ""
// if the daemon does not report one. The error is the daemon's own if the snapshotter could not
// be initialized.
func (c *Conn) LayersDirectory(ctx context.Context) (string, error) {
	answer, err := c.Client.IntrospectionService().Plugins(c.Context(ctx), "type==io.containerd.snapshotter.v1,id=="+c.Snapshotter)
	if err != nil {
		return "", Native(err)
	}
	for _, p := range answer.Plugins {
		if p.InitErr != nil {
			return "", fmt.Errorf("containerd's snapshotter %s: %s", c.Snapshotter, p.InitErr.GetMessage())
		}
		if info, err := os.Stat(p.Exports["root"]); err == nil && info.IsDir() {
			return p.Exports["root"], nil
		}
	}
	return "", nil
}

// RemoveContainer kills and removes a container and its task. It is no error if they are
// gone.
func (c *Conn) RemoveContainer(ctx context.Context, ct client.Container) error {
	ctx, cancel := c.Cleanup(ctx)
	defer cancel()
	task, err := ct.Task(ctx, nil)
	if err == nil {
		_, err = task.Delete(ctx, client.WithProcessKill)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("container %s: task: %w", ct.ID(), Native(err))
	}
	if err := ct.Delete(ctx); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("container %s: %w", ct.ID(), Native(err))
	}
	return nil
}

// Native adds the runtime contract's sentinel error to a daemon's error.
func Native(err error) error {
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

// Inherited is what every container inherits from the daemon: limits, which only CAP_SYS_RESOURCE
// can raise, and the mount namespace.
type Inherited struct {
	// Hard are the hard limits of a process that the OCI runtime cannot raise, by names such as
	// RLIMIT_STACK; nil if it can raise them all (setrlimit(2)).
	Hard        map[string]uint64
	OOMScoreAdj int
	SysResource bool // the OCI runtime can have CAP_SYS_RESOURCE
	// Apart means that the daemon is in another mount namespace: it sees only [Target.Directories] as this
	// process does.
	Apart bool
}

// rlimits returns the numbers of all limits of a process (setrlimit(2)).
func rlimits() map[string]int {
	return map[string]int{
		"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_CPU": unix.RLIMIT_CPU, "RLIMIT_DATA": unix.RLIMIT_DATA,
		"RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE,
		"RLIMIT_NICE": unix.RLIMIT_NICE, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_RSS": unix.RLIMIT_RSS,
		"RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO, "RLIMIT_RTTIME": unix.RLIMIT_RTTIME, "RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_STACK": unix.RLIMIT_STACK,
	}
}

// inspect reads the limits of the process behind a socket (unix(7), SO_PEERCRED). It fails if
// that process is in another PID namespace, or in a mount namespace that does not have the same
// files in dirs. If the process ends meanwhile, it inspects the daemon that is started next.
func inspect(address string, dirs ...string) (Inherited, error) {
	for end := time.Now().Add(dialTimeout); ; time.Sleep(pollInterval) {
		pid, err := proc.Listener(address, dialTimeout)
		if err != nil {
			return Inherited{}, err
		}
		l, err := inspectProcess(pid, dirs)
		if err == nil || proc.Alive(pid) || time.Now().After(end) {
			return l, err
		}
	}
}

func inspectProcess(pid int, dirs []string) (Inherited, error) {
	var l Inherited
	l.Apart = !proc.SharesNamespace(pid, 0, "mnt")
	unseen := func(dir string) bool { return !proc.SharesDirectory(pid, dir) }
	if !proc.SharesNamespace(pid, 0, "pid") || l.Apart && slices.ContainsFunc(dirs, unseen) {
		return l, errors.New("it runs in another mount or pid namespace, where it cannot see the sandboxes' files: " +
			"run sbench beside it, or let sbench start one of its own (--address none)")
	}
	var err error
	if l.OOMScoreAdj, err = strconv.Atoi(proc.Text(fmt.Sprintf("/proc/%d/oom_score_adj", pid))); err == nil {
		l.SysResource, err = mayHave(pid, unix.CAP_SYS_RESOURCE)
	}
	if err == nil && !(l.SysResource && userns.HostRoot()) {
		l.Hard, err = hardLimits(pid)
	}
	if err != nil {
		return l, fmt.Errorf("limits of containerd: %w", err)
	}
	return l, nil
}

func hardLimits(pid int) (map[string]uint64, error) {
	hard := map[string]uint64{}
	for name, number := range rlimits() {
		var limit unix.Rlimit
		if err := unix.Prlimit(pid, number, nil, &limit); err != nil {
			return nil, err
		}
		hard[name] = limit.Max
	}
	return hard, nil
}

// mayHave reports whether a capability is in a process's bounding set.
func mayHave(pid int, capability uint) (bool, error) {
	bits, err := strconv.ParseUint(proc.Field(fmt.Sprintf("/proc/%d/status", pid), "CapBnd:"), 16, 64)
	if err != nil {
		return false, fmt.Errorf("bounding set of process %d: %w", pid, err)
	}
	return bits&(1<<capability) != 0, nil
}
