package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/api/types/runc/options"
	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/securebench/sbench/oci"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd/mounts"
	"github.com/securebench/sbench/runtime/containerd/passwd"
	"github.com/securebench/sbench/runtime/containerd/program"
	"github.com/securebench/sbench/runtime/containerd/rootfs"
	"github.com/securebench/sbench/runtime/containerd/volume"
	"github.com/securebench/sbench/runtime/netns"
	"github.com/securebench/sbench/runtime/watchdog"
)

const (
	defaultPath   = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	inodeBytes    = 16 << 10 // bytes of a layer for each of its inodes
	minInodes     = 256
	tmpInodeBytes = 4 << 10 // the same for /tmp
	oomScoreAdj   = 500     // the kernel kills sandboxes before processes of the host
)

// Box is a sandbox on containerd. It implements runtime.Sandbox, and its methods are
// safe for concurrent use.
type Box struct {
	run      *Run
	cfg      runtime.Config
	id       string
	dir      string
	root     *rootfs.FS
	layer    *volume.Volume
	ids      sandboxIDs
	netns    *netns.Namespace
	user     passwd.User
	cgroup   string // absolute within the hierarchies
	group    group
	inMemory atomic.Pointer[[]*os.File] // the open tmpfs mounts, whose contents the watchdog counts

	mu        sync.Mutex
	container client.Container
	// specDigest is the digest of the first process's specification.
	specDigest string
	task       client.Task // the first process
	init       *process    // the same, of a persistent sandbox
	spent      bool        // a process was run
	closed     bool
}

// Create makes a sandbox, which the caller closes. The first process of a one-shot
// sandbox starts with Exec, that of a persistent one starts now and idles. If Create
// fails it leaves nothing behind.
func (r *Run) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	if err := cfg.Limits.Validate(); err != nil {
		return nil, fmt.Errorf("sandbox %q: %w", cfg.Name, err)
	}
	cfg.Mounts = slices.Clone(cfg.Mounts)
	id := randomID()
	b := &Box{
		run: r, cfg: cfg, id: r.id + "-" + id, dir: filepath.Join(r.dir, "box-"+id),
		cgroup: "/" + cgroupPrefix + r.id + "/" + id,
	}
	b.group = r.c.newGroup(b.cgroup, watchdog.Limits{Memory: cfg.Limits.Memory, Pids: cfg.Limits.Pids, Held: b.held})
	if err := r.c.ready(ctx); err != nil {
		return nil, fmt.Errorf("sandbox %q: %w", cfg.Name, err)
	}
	release, err := r.c.slot(ctx)
	if err != nil {
		return nil, fmt.Errorf("sandbox %q: %w", cfg.Name, err)
	}
	defer release()
	if err := b.create(ctx); err != nil {
		return nil, fmt.Errorf("sandbox %q: %w", cfg.Name, errors.Join(err, b.Close(ctx)))
	}
	return b, nil
}

func (b *Box) create(ctx context.Context) error {
	if err := b.makeRoot(ctx); err != nil {
		return err
	}
	var err error
	if b.user, err = passwd.Lookup(b.root.Root(), cmp.Or(b.cfg.User, b.cfg.Image.User)); err != nil {
		return err
	}
	if err := b.ids.check(b.user); err != nil {
		return err
	}
	if err := b.root.Give(b.user.UID, b.user.GID); err != nil {
		return err
	}
	if err := b.ids.nest(); err != nil {
		return err
	}
	if err := b.makeNetwork(); err != nil {
		return err
	}
	if !b.cfg.Persistent {
		return nil
	}
	return b.startPause(ctx)
}

// makeRoot makes everything that the sandbox's root file system consists of.
func (b *Box) makeRoot(ctx context.Context) error {
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return err
	}
	var err error
	if b.ids, err = b.run.c.ids.take(); err != nil {
		return err
	}
	lower, err := b.base(ctx)
	if err != nil {
		return err
	}
	b.layer, err = b.run.newLayer(ctx, runtime.VolumeConfig{
		Bytes: b.cfg.Limits.LayerBytes, Inodes: max(minInodes, b.cfg.Limits.LayerBytes/inodeBytes),
	})
	if err != nil {
		return err
	}
	files, err := b.files()
	if err != nil {
		return err
	}
	b.root, err = rootfs.New(rootfs.Config{
		Dir: b.dir, Lower: lower, Layer: b.layer, IDs: b.ids.own, Stacker: b.run.c.stack,
		Files: files, Mounts: b.cfg.Mounts, Workdir: b.workdir(), Writable: b.cfg.WritableRoot,
	})
	return err
}

// base returns the directories below the sandbox's own layer.
func (b *Box) base(ctx context.Context) ([]string, error) {
	if b.cfg.From == nil {
		return b.run.lowers(ctx, b.cfg.Image)
	}
	from, ok := b.cfg.From.(*Box)
	if !ok || from.run != b.run {
		return nil, errors.New("base sandbox is not of this run")
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	if from.closed || from.cfg.Persistent || !from.spent {
		return nil, errors.New("base sandbox has not stopped, or is closed")
	}
	return from.root.Layers(), nil
}

// makeNetwork makes the network namespace and hands out the sockets in it.
func (b *Box) makeNetwork() error {
	network := b.cfg.Network
	if network == nil {
		network = &runtime.Network{}
	}
	options := netns.Options{TCP: network.TCP, UDP: network.UDP, Redirect: network.Redirect}
	if b.ids.userns != nil {
		options.Namespace = b.ids.userns.Network() // which the sandbox's user namespace owns
	}
	var err error
	b.netns, err = netns.New(options)
	if err != nil || network.Serve == nil {
		return err
	}
	return network.Serve(runtime.Sockets{
		TCP: b.netns.TCP, UDP: b.netns.UDP, Redirected: b.netns.Redirected, AnyAddress: b.netns.AnyAddress,
	})
}

// pauseDest is the path, inside a persistent sandbox, of the program of its first process.
const pauseDest = "/.sbench/pause"

// files returns the small files that every program expects.
func (b *Box) files() ([]rootfs.File, error) {
	nameserver := ""
	if n := b.cfg.Network; n != nil && n.Nameserver != "" {
		nameserver = "nameserver " + n.Nameserver + "\n"
	}
	files := []rootfs.File{
		{Dest: "/etc/hosts", Text: []byte("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"), Mode: 0o644},
		{Dest: "/etc/resolv.conf", Text: []byte(nameserver), Mode: 0o644},
	}
	if !b.cfg.Persistent {
		return files, nil
	}
	pause, err := program.Pause(goruntime.GOARCH)
	return append(files, rootfs.File{Dest: pauseDest, Text: pause, Mode: 0o555}), err
}

func (b *Box) workdir() string { return cmp.Or(b.cfg.Workdir, b.cfg.Image.Workdir, "/") }

// spec builds the specification for a first process.
func (b *Box) spec(args []string, env []string, dir string) (*specs.Spec, error) {
	opts := []oci.Option{
		oci.WithArgs(args...),
		oci.WithEnv(b.environment(env)...),
		oci.WithCwd(cmp.Or(dir, b.workdir())),
		oci.WithUser(b.user.UID, b.user.GID, b.user.Groups...),
		oci.WithNetworkNamespace(b.netns.Path()),
		oci.WithSharedMemory(b.cfg.Limits.ShmBytes),
		oci.WithTmpfs("/tmp", b.cfg.Limits.TmpBytes, max(minInodes, b.cfg.Limits.TmpBytes/tmpInodeBytes)),
		oci.WithTmpfs("/run", runBytes, minInodes),
		oci.WithCapabilities(b.cfg.Capabilities...),
		oci.WithAnnotation(labelRun, b.run.id),
	}
	if b.run.c.opts.AllowSeccomp {
		opts = append(opts, oci.WithOwnFilters())
	}
	if b.run.c.opts.AllowNetlink {
		opts = append(opts, oci.WithNetlink())
	}
	if b.cfg.Sealed {
		opts = append(opts, oci.WithSealedProcesses())
	}
	opts = append(opts, b.ids.options(b.run.c.ids.mappings, b.root.Devices())...)
	for _, m := range b.root.Shown() {
		opts = append(opts, oci.WithBind(m.Source, m.Dest, m.Writable))
	}
	limits, err := b.run.c.limitOptions(b.cfg.Limits, b.cgroup)
	if err != nil {
		return nil, err
	}
	return oci.New(b.root.Root(), append(opts, limits...)...)
}

const runBytes = 16 << 20

func (b *Box) environment(extra []string) []string {
	env := []string{defaultPath, "HOME=" + b.user.Home, "HOSTNAME=" + oci.Hostname}
	env = append(env, b.cfg.Image.Env...)
	env = append(env, b.cfg.Env...)
	return append(env, extra...)
}

// Spec returns the OCI specification that p would run with, without running p.
func (b *Box) Spec(p runtime.Process) (*specs.Spec, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, runtime.ErrClosed
	}
	return b.spec(p.Args, p.Env, p.Dir)
}

// Close kills what still runs and removes the sandbox; see runtime.Sandbox.
func (b *Box) Close(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	var errs []error
	if b.init != nil {
		errs = append(errs, b.init.close())
	}
	errs = append(errs, kill(ctx, b.group, killTimeout))
	ctx, cancel := b.run.c.cleanup(ctx)
	defer cancel()
	deleted := make(chan error, 1)
	go func() { deleted <- b.deleteContainer(ctx) }() // most of it is waiting for the shim
	if b.netns != nil {
		errs = append(errs, b.netns.Close())
		b.netns = nil
	}
	errs = append(errs, b.detach(), mounts.DetachBelow(b.dir), <-deleted)
	if b.layer != nil {
		errs = append(errs, b.layer.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close sandbox %q: %w", b.cfg.Name, err) // Run.Close or Client.GC tries again
	}
	b.closed = true
	return errors.Join(b.ids.close(), os.RemoveAll(b.dir), b.group.Remove())
}

// kill kills all processes of a group within the given time, even if ctx is cancelled.
func kill(ctx context.Context, g group, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	return g.KillAll(ctx, 0)
}

func (b *Box) deleteContainer(ctx context.Context) error {
	if b.container == nil {
		return nil
	}
	var err error
	if b.task != nil { // it has been killed, so that its status need not be asked for
		if _, err = b.task.Delete(ctx); err == nil || errdefs.IsNotFound(err) {
			err = b.container.Delete(ctx)
		}
	}
	if b.task == nil || err != nil && !errdefs.IsNotFound(err) {
		err = b.run.c.removeContainer(ctx, b.container)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	b.container, b.task = nil, nil
	return nil
}

// shimOptions returns what the shim needs besides the specification.
func (b *Box) shimOptions() any {
	if b.run.c.opts.Handler != DefaultHandler {
		return nil
	}
	o := &options.Options{BinaryName: b.run.c.program.path}
	if b.ids.own != nil {
		// The pipes of standard output must belong to the sandbox's root, or a process
		// could not open /dev/stdout.
		o.IoUid, o.IoGid = b.ids.own.Base(), b.ids.own.Base()
	}
	return o
}
