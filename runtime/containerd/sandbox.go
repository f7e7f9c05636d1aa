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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/oci"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/limits"
	"github.com/securebench/sbench/runtime/mounts"
	"github.com/securebench/sbench/runtime/netns"
	"github.com/securebench/sbench/runtime/owner"
	"github.com/securebench/sbench/runtime/passwd"
	"github.com/securebench/sbench/runtime/program"
	"github.com/securebench/sbench/runtime/rootfs"
	"github.com/securebench/sbench/runtime/task"
	"github.com/securebench/sbench/runtime/volume"
)

const (
	defaultPath   = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	inodeBytes    = 16 << 10 // bytes of a layer for each of its inodes
	minInodes     = 256
	tmpInodeBytes = 4 << 10 // the same for /tmp
	oomScoreAdj   = 500     // the kernel kills sandboxes before processes of the host
)

// A Sandbox implements runtime.Sandbox on containerd. Its methods are safe for
// concurrent use.
type Sandbox struct {
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
	group    limits.Group
	inMemory atomic.Pointer[[]*os.File] // the open tmpfs mounts, whose contents the watchdog counts

	mu        sync.Mutex
	container task.Container // nil before the first process
	// specDigest is the digest of the first process's specification.
	specDigest string
	init       *process // the first process of a persistent sandbox
	spent      bool     // a process was run
	dead       bool     // all processes have ended, and none can be started
	closed     bool
}

// Create makes a sandbox, which the caller closes. The first process of a one-shot sandbox
// starts with Exec; that of a persistent one starts now and idles. If Create fails, it
// leaves nothing behind.
func (r *Run) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	if err := cfg.Limits.Validate(); err != nil {
		return nil, fmt.Errorf("sandbox %q: %w", cfg.Name, err)
	}
	cfg.Mounts = slices.Clone(cfg.Mounts)
	id := owner.RandomID()
	s := &Sandbox{
		run: r, cfg: cfg, id: r.ID() + "-" + id, dir: filepath.Join(r.Dir(), "sandbox-"+id),
		cgroup: r.Group() + "/" + id,
	}
	s.group = r.c.limits.Group(s.cgroup, cfg.Limits, s.held)
	if err := r.tasks.Ready(r.Context(ctx)); err != nil {
		return nil, fmt.Errorf("sandbox %q: %w", cfg.Name, err)
	}
	err := s.create(ctx)
	if err == nil && cfg.Persistent {
		s.init, err = s.startFirst(ctx, runtime.Process{Args: []string{pauseDest}}, &task.Streams{})
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox %q: %w", cfg.Name, errors.Join(err, s.Close(ctx)))
	}
	return s, nil
}

// create makes everything but a process.
func (s *Sandbox) create(ctx context.Context) error {
	release, err := s.run.c.slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := s.makeRoot(ctx); err != nil {
		return err
	}
	if s.user, err = s.lookup(ctx); err != nil {
		return err
	}
	if err := s.ids.check(s.user); err != nil {
		return err
	}
	if err := s.root.Give(s.user.UID, s.user.GID); err != nil {
		return err
	}
	if s.cfg.Beside == nil {
		if err := s.ids.nest(); err != nil {
			return err
		}
	}
	return s.makeNetwork()
}

// lookup finds the sandbox's user, in the image's files whatever lies over them.
func (s *Sandbox) lookup(ctx context.Context) (user passwd.User, err error) {
	at := s.root.Root()
	if image := s.cfg.Image; image.Over != "" {
		image.Over = ""
		v, err := s.run.view(ctx, image)
		if err != nil {
			return user, err
		}
		defer func() { err = errors.Join(err, v.Close()) }()
		at = v.dir
	}
	return passwd.Lookup(at, cmp.Or(s.cfg.User, s.cfg.Image.User))
}

// makeRoot makes everything in the sandbox's root file system.
func (s *Sandbox) makeRoot(ctx context.Context) error {
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return err
	}
	var err error
	if s.cfg.Beside != nil {
		err = s.share()
	} else {
		s.ids, err = s.run.c.ids.take()
	}
	if err != nil {
		return err
	}
	lower, err := s.base(ctx)
	if err != nil {
		return err
	}
	s.layer, err = s.run.newLayer(ctx, runtime.VolumeConfig{
		Bytes: s.cfg.Limits.LayerBytes, Inodes: max(minInodes, s.cfg.Limits.LayerBytes/inodeBytes),
	})
	if err != nil {
		return err
	}
	files, err := s.files()
	if err != nil {
		return err
	}
	s.root, err = rootfs.New(rootfs.Config{
		Dir: s.dir, Lower: lower, Layer: s.layer, IDs: s.ids.own,
		Files: files, Mounts: s.cfg.Mounts, Workdir: s.workdir(), Writable: s.cfg.WritableRoot || s.cfg.Machine, Untrusted: s.cfg.Image.Over != "",
	})
	return err
}

// share takes the ids and the network namespace of the sandbox beside this one, which
// still belong to that sandbox.
func (s *Sandbox) share() error {
	main, ok := s.cfg.Beside.(*Sandbox)
	if !ok || main.run != s.run || s.cfg.Network != nil {
		return errors.New("the sandbox beside is not of this run, or this one has a network of its own")
	}
	main.mu.Lock()
	defer main.mu.Unlock()
	if main.closed || main.netns == nil {
		return errors.New("the sandbox beside is closed")
	}
	s.ids, s.netns = main.ids, main.netns
	return nil
}

// base returns the directories below the sandbox's own layer.
func (s *Sandbox) base(ctx context.Context) ([]string, error) {
	if s.cfg.From == nil {
		return s.run.lowers(ctx, s.cfg.Image)
	}
	from, ok := s.cfg.From.(*Sandbox)
	if !ok || from.run != s.run {
		return nil, errors.New("base sandbox is not of this run")
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	if err := from.left(); err != nil {
		return nil, fmt.Errorf("base %w", err)
	}
	return from.root.Layers(), nil
}

// makeNetwork makes the network namespace and hands out the sockets in it.
func (s *Sandbox) makeNetwork() error {
	if s.cfg.Beside != nil {
		return nil
	}
	network := cmp.Or(s.cfg.Network, &runtime.Network{})
	options := netns.Options{TCP: network.TCP, UDP: network.UDP, Redirect: network.Redirect}
	if s.ids.userns != nil {
		options.Namespace = s.ids.userns.Network() // which the sandbox's user namespace owns
	}
	var err error
	s.netns, err = netns.New(options)
	if err != nil || network.Serve == nil {
		return err
	}
	return network.Serve(runtime.Sockets{
		TCP: s.netns.TCP, UDP: s.netns.UDP, Redirected: s.netns.Redirected, AnyAddress: s.netns.AnyAddress,
	})
}

// pauseDest is the path, inside a persistent sandbox, of the program of its first process.
const pauseDest = "/.sbench/pause"

// files returns the small files that every program expects.
func (s *Sandbox) files() ([]rootfs.File, error) {
	nameserver := ""
	if n := s.cfg.Network; n != nil && n.Nameserver != "" {
		nameserver = "nameserver " + n.Nameserver + "\n"
	}
	files := []rootfs.File{
		{Dest: "/etc/hosts", Text: []byte("127.0.0.1\t" + strings.Join(append([]string{"localhost"}, s.cfg.Hosts...), " ") + "\n::1\tlocalhost ip6-localhost ip6-loopback\n"), Mode: 0o644},
		{Dest: "/etc/resolv.conf", Text: []byte(nameserver), Mode: 0o644},
	}
	if !s.cfg.Persistent {
		return files, nil
	}
	pause, err := program.Pause(goruntime.GOARCH)
	// A process that may not read its program cannot be traced by others of its user, nor have its
	// descriptors opened (ptrace(2), PR_SET_DUMPABLE). They could go on in it after their end.
	return append(files, rootfs.File{Dest: pauseDest, Text: pause, Mode: 0o111}), err
}

func (s *Sandbox) workdir() string { return cmp.Or(s.cfg.Workdir, s.cfg.Image.Workdir, "/") }

// spec builds the specification for p as the first process.
func (s *Sandbox) spec(p runtime.Process) (*specs.Spec, error) {
	opts := []oci.Option{
		oci.WithArgs(p.Args...),
		oci.WithEnv(s.environment(p.Env)...),
		oci.WithCwd(cmp.Or(p.Dir, s.workdir())),
		oci.WithUser(s.user.UID, s.user.GID, s.user.Groups...),
		oci.WithNetworkNamespace(s.netns.Path()),
		oci.WithSharedMemory(s.cfg.Limits.ShmBytes),
		oci.WithAnnotation(owner.LabelRun, s.run.ID()),
	}
	if !s.cfg.Machine {
		opts = append(opts, oci.WithTmpfs("/tmp", s.cfg.Limits.TmpBytes, max(minInodes, s.cfg.Limits.TmpBytes/tmpInodeBytes)), oci.WithTmpfs("/run", runBytes, minInodes))
	}
	if s.run.c.opts.AllowSeccomp {
		opts = append(opts, oci.WithOwnFilters())
	}
	if s.run.c.opts.AllowNetlink {
		opts = append(opts, oci.WithNetlink())
	}
	opts = append(opts, oci.WithReadOnlyPaths(s.cfg.ReadOnly...))
	if s.cfg.Sealed {
		opts = append(opts, oci.WithSealedProcesses())
	}
	opts = append(opts, s.ids.options(s.run.c.ids.mappings, s.root.Devices())...)
	opts = append(opts, oci.WithCapabilities(s.cfg.Capabilities...)) // some only in a user namespace
	for _, m := range s.root.Shown() {
		opts = append(opts, oci.WithBind(m.Source, m.Dest, m.Writable))
	}
	inherited := s.run.c.conn.Inherited
	opts = append(opts,
		oci.WithNoFile(min(s.cfg.Limits.Files, inherited.Files)),
		// Not below the daemon's: lowering it needs CAP_SYS_RESOURCE.
		oci.WithOOMScoreAdj(max(oomScoreAdj, inherited.OOMScoreAdj)),
	)
	if inherited.LowCores {
		opts = append(opts, oci.WithLowCoreLimit())
	}
	bounds, err := s.run.c.limits.Options(s.cfg.Limits, s.cgroup)
	if err != nil {
		return nil, err
	}
	return oci.New(s.root.Root(), append(opts, bounds...)...)
}

const runBytes = 16 << 20

func (s *Sandbox) environment(extra []string) []string {
	return slices.Concat([]string{defaultPath, "HOME=" + s.user.Home, "HOSTNAME=" + oci.Hostname}, s.cfg.Image.Env, s.cfg.Env, extra)
}

// Spec returns the OCI specification that p would run with, without running p.
func (s *Sandbox) Spec(p runtime.Process) (*specs.Spec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, runtime.ErrClosed
	}
	return s.spec(p)
}

// Close kills what still runs and removes the sandbox; see runtime.Sandbox.
func (s *Sandbox) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	var errs []error
	if s.init != nil {
		errs = append(errs, s.init.close())
	}
	if !s.dead {
		errs = append(errs, kill(ctx, s.group, 0, killTimeout))
	}
	ctx, cancel := s.run.c.conn.Cleanup(ctx)
	defer cancel()
	deleted := make(chan error, 1)
	go func() { deleted <- s.deleteContainer(ctx) }() // most of it is waiting for the shim
	if s.netns != nil && s.cfg.Beside == nil {
		errs = append(errs, s.netns.Close())
	}
	s.netns = nil
	errs = append(errs, s.detach(), s.unmount(), <-deleted)
	if s.layer != nil {
		errs = append(errs, s.layer.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close sandbox %q: %w", s.cfg.Name, err) // Run.Close or Client.GC tries again
	}
	s.closed = true
	if s.cfg.Beside != nil {
		s.ids = sandboxIDs{} // the other sandbox's
	}
	err := os.RemoveAll(s.dir)
	if errors.Is(err, unix.ENOTEMPTY) { // after a server's death, the shim's delete may be at work there
		err = os.RemoveAll(s.dir)
	}
	return errors.Join(s.ids.close(), err, s.group.Remove())
}

// unmount removes all mounts below the sandbox's directory.
func (s *Sandbox) unmount() error {
	if s.root != nil {
		return s.root.Unmount()
	}
	return mounts.DetachBelow(s.dir)
}

// kill kills all processes of a group but spare (0 spares none) within the given time, even if ctx
// is cancelled.
func kill(ctx context.Context, g limits.Group, spare int, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	return g.KillAll(ctx, spare)
}

func (s *Sandbox) deleteContainer(ctx context.Context) error {
	if s.container == nil {
		return nil
	}
	first, _ := s.container.First()
	if err := first.Delete(ctx); err != nil {
		return err
	}
	s.container = nil
	return nil
}
