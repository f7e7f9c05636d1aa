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
	"sync"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/securebench/sbench/oci"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/idmap"
	"github.com/securebench/sbench/runtime/netns"
	"github.com/securebench/sbench/runtime/userns"
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
	root     string // the mounted root file system
	lower    []string
	layer    *volume
	userns   *userns.Namespace // nil if the sandbox is in sbench's user namespace
	netns    *netns.Namespace
	user     user
	group    group
	inMemory memoryFiles // tmpfs mounts, whose contents the watchdog counts

	cgroup string // absolute within the hierarchies

	ids    *idmap.Range    // nil if the sandbox has the ids of this process
	mounts []runtime.Mount // all mounts, as the specification names them

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
	id := randomID()
	b := &Box{
		run: r, cfg: cfg, id: r.id + "-" + id, dir: filepath.Join(r.dir, "box-"+id),
		cgroup: "/" + cgroupPrefix + r.id + "/" + id,
	}
	b.group = r.c.newGroup(b.cgroup, watchdog.Limits{Memory: cfg.Limits.Memory, Pids: cfg.Limits.Pids, Held: b.held})
	b.root = filepath.Join(b.dir, "rootfs")
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
	if err := b.mountRoot(ctx); err != nil {
		return err
	}
	var err error
	if b.user, err = lookupUser(b.root, firstOf(b.cfg.User, b.cfg.Image.User)); err != nil {
		return err
	}
	if err := b.checkUser(); err != nil {
		return err
	}
	if err := b.giveMounts(); err != nil {
		return err
	}
	if err := b.nest(); err != nil {
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

// makeNetwork makes the network namespace and hands out the sockets in it.
func (b *Box) makeNetwork() error {
	network := b.cfg.Network
	if network == nil {
		network = &runtime.Network{}
	}
	var err error
	b.netns, err = netns.New(netns.Options{TCP: network.TCP, UDP: network.UDP, Redirect: network.Redirect, Namespace: b.networkNamespace()})
	if err != nil || network.Serve == nil {
		return err
	}
	return network.Serve(runtime.Sockets{
		TCP: b.netns.TCP, UDP: b.netns.UDP, Redirected: b.netns.Redirected, AnyAddress: b.netns.AnyAddress,
	})
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// allMounts returns the caller's mounts and those of the small files that every program
// expects, outermost first.
func (b *Box) allMounts() []runtime.Mount {
	ms := []runtime.Mount{
		{Source: b.file("hosts"), Dest: "/etc/hosts"},
		{Source: b.file("resolv.conf"), Dest: "/etc/resolv.conf"},
	}
	if b.cfg.Persistent {
		ms = append(ms, runtime.Mount{Source: b.file("pause"), Dest: pauseDest})
	}
	ms = append(ms, b.cfg.Mounts...)
	slices.SortStableFunc(ms, func(x, y runtime.Mount) int {
		return strings.Count(x.Dest, "/") - strings.Count(y.Dest, "/")
	})
	return ms
}

// file returns the path of one of the sandbox's small files. They are in its own layer,
// because two sandboxes could communicate through locks and watches on a shared file.
func (b *Box) file(name string) string { return filepath.Join(b.layer.Path(), "files", name) }

func (b *Box) writeFiles() error {
	nameserver := ""
	if n := b.cfg.Network; n != nil && n.Nameserver != "" {
		nameserver = "nameserver " + n.Nameserver + "\n"
	}
	pause, err := pauseProgram(goruntime.GOARCH)
	return errors.Join(err,
		os.Mkdir(b.file(""), 0o755),
		os.WriteFile(b.file("hosts"), []byte("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"), 0o644),
		os.WriteFile(b.file("resolv.conf"), []byte(nameserver), 0o644),
		os.WriteFile(b.file("pause"), pause, 0o555))
}

func (b *Box) workdir() string { return firstOf(b.cfg.Workdir, b.cfg.Image.Workdir, "/") }

// spec builds the specification for a first process.
func (b *Box) spec(args []string, env []string, dir string) (*specs.Spec, error) {
	opts := []oci.Option{
		oci.WithArgs(args...),
		oci.WithEnv(b.environment(env)...),
		oci.WithCwd(firstOf(dir, b.workdir())),
		oci.WithUser(b.user.uid, b.user.gid, b.user.groups...),
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
	opts = append(opts, b.userNamespace()...)
	for _, m := range b.mounts {
		opts = append(opts, oci.WithBind(m.Source, m.Dest, m.Writable))
	}
	limits, err := b.run.c.limitOptions(b.cfg.Limits, b.cgroup)
	if err != nil {
		return nil, err
	}
	return oci.New(b.root, append(opts, limits...)...)
}

const runBytes = 16 << 20

func (b *Box) environment(extra []string) []string {
	env := []string{defaultPath, "HOME=" + b.user.home, "HOSTNAME=" + oci.Hostname}
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
	errs = append(errs, b.detach(), unmountBelow(b.dir), <-deleted)
	if b.layer != nil {
		errs = append(errs, b.layer.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close sandbox %q: %w", b.cfg.Name, err) // Run.Close or Client.GC tries again
	}
	b.closed = true
	return errors.Join(b.releaseIDs(), os.RemoveAll(b.dir), b.group.Remove())
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
