package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/oci"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/netns"
)

const (
	defaultPath   = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	inodeBytes    = 16 << 10 // one inode for so many bytes of a volume
	minInodes     = 256
	tmpInodeBytes = 4 << 10
	oomScoreAdj   = 500 // the sandbox goes before anything of the host's
)

// Box is a sandbox on containerd. It implements runtime.Sandbox.
type Box struct {
	run   *Run
	cfg   runtime.Config
	id    string
	dir   string
	root  string // the mounted root file system
	lower []string
	layer runtime.Volume
	netns *netns.Namespace
	user  user
	group cgroup.Group

	cgroup string // absolute within the hierarchies

	mu        sync.Mutex
	container client.Container
	task      client.Task // the first process
	init      *process    // of a persistent sandbox
	spent     bool
	closed    bool
}

// Create makes a sandbox; its first process starts with the first Exec if it is
// one-shot, and idles from now on if it is persistent. Nothing is left when it
// fails.
func (r *Run) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	if err := cfg.Limits.Validate(); err != nil {
		return nil, fmt.Errorf("sandbox %q: %w", cfg.Name, err)
	}
	id := randomID()
	b := &Box{
		run: r, cfg: cfg, id: r.id + "-" + id, dir: filepath.Join(r.dir, "box-"+id),
		cgroup: "/" + cgroupPrefix + r.id + "/" + id,
	}
	b.group = r.c.cgroups.Group(b.cgroup)
	b.root = filepath.Join(b.dir, "rootfs")
	r.c.setup <- struct{}{}
	defer func() { <-r.c.setup }()
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
	if err := b.giveMounts(); err != nil {
		return err
	}
	if b.netns, err = netns.New(); err != nil {
		return err
	}
	if !b.cfg.Persistent {
		return nil
	}
	return b.startPause(ctx)
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// mountRoot stacks the sandbox's own layer over its base, makes all mount
// points, and then seals the root unless it may be written.
func (b *Box) mountRoot(ctx context.Context) error {
	if err := os.MkdirAll(b.root, 0o711); err != nil {
		return err
	}
	var err error
	if b.lower, err = b.base(ctx); err != nil {
		return err
	}
	b.layer, err = b.run.NewVolume(ctx, runtime.VolumeConfig{
		Bytes: b.cfg.Limits.LayerBytes, Inodes: max(minInodes, b.cfg.Limits.LayerBytes/inodeBytes),
	})
	if err != nil {
		return err
	}
	if err := mountOverlay(b.lower, filepath.Join(b.layer.Path(), "root"), b.root); err != nil {
		return fmt.Errorf("root file system: %w", err)
	}
	if err := b.mountCopies(); err != nil {
		return err
	}
	if err := b.makeMountPoints(); err != nil {
		return err
	}
	if b.cfg.WritableRoot {
		return nil
	}
	return sealMount(b.root)
}

// base returns the directories below the sandbox's own layer.
func (b *Box) base(ctx context.Context) ([]string, error) {
	if b.cfg.From == nil {
		return b.run.lowers(ctx, b.cfg.Image)
	}
	base := b.cfg.From
	if wrapped, ok := base.(interface{ Unwrap() runtime.Sandbox }); ok {
		base = wrapped.Unwrap()
	}
	from, ok := base.(*Box)
	if !ok || from.run != b.run {
		return nil, errors.New("base sandbox is not of this run")
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	if from.closed || from.cfg.Persistent || !from.spent {
		return nil, errors.New("base sandbox has not stopped, or is closed")
	}
	return append([]string{filepath.Join(from.layer.Path(), "root", "upper")}, from.lower...), nil
}

// mountCopies puts a copy-on-write view over each mount that asks for one, and
// lets the mount show that instead.
func (b *Box) mountCopies() error {
	b.cfg.Mounts = slices.Clone(b.cfg.Mounts)
	for i, m := range b.cfg.Mounts {
		if !m.Copy {
			continue
		}
		name := fmt.Sprintf("copy-%d", i)
		lower, merged := filepath.Join(b.dir, name+"-lower"), filepath.Join(b.dir, name)
		for _, dir := range []string{lower, merged} {
			if err := os.Mkdir(dir, 0o711); err != nil {
				return err
			}
		}
		// Through a bind mount, because overlay cannot take every path as it is.
		if err := bindMount(m.Source, lower, false); err != nil {
			return fmt.Errorf("copy of %s: %w", m.Source, err)
		}
		if err := mountOverlay([]string{lower}, filepath.Join(b.layer.Path(), name), merged); err != nil {
			return fmt.Errorf("copy of %s: %w", m.Source, err)
		}
		b.cfg.Mounts[i].Source, b.cfg.Mounts[i].Writable = merged, true
	}
	return nil
}

// giveMounts makes the sandbox's user own what sbench owns of a given mount, and
// the top of a copy. What has another owner, such as files copied out of an
// image, keeps it.
func (b *Box) giveMounts() error {
	if int(b.user.uid) == os.Geteuid() {
		return nil
	}
	for _, m := range b.cfg.Mounts {
		if m.Copy { // what is below keeps its owner
			if err := os.Lchown(m.Source, int(b.user.uid), int(b.user.gid)); err != nil {
				return fmt.Errorf("give %s to the sandbox's user: %w", m.Dest, err)
			}
		}
		if !m.Give {
			continue
		}
		err := filepath.WalkDir(m.Source, func(p string, _ fs.DirEntry, err error) error {
			var st unix.Stat_t
			if err == nil {
				err = unix.Lstat(p, &st)
			}
			if err != nil || int(st.Uid) != os.Geteuid() {
				return err
			}
			return os.Lchown(p, int(b.user.uid), int(b.user.gid))
		})
		if err != nil {
			return fmt.Errorf("give %s to the sandbox's user: %w", m.Dest, err)
		}
	}
	return nil
}

func (b *Box) makeMountPoints() error {
	for _, dir := range []string{"/proc", "/dev", "/tmp", "/run"} {
		if err := makeMountPoint(b.root, dir, true); err != nil {
			return err
		}
	}
	for _, m := range b.allMounts() {
		info, err := os.Stat(m.Source)
		if err != nil {
			return fmt.Errorf("mount at %q: %w", m.Dest, err)
		}
		if err := b.makePointIn(m.Dest, info.IsDir()); err != nil {
			return err
		}
	}
	return makeMountPoint(b.root, b.workdir(), true)
}

// makePointIn makes a mount point that may lie inside another mount of this
// sandbox, where it must not be made in the root below it.
func (b *Box) makePointIn(dest string, dir bool) error {
	var outer *runtime.Mount
	for i, m := range b.cfg.Mounts {
		if strings.HasPrefix(dest, m.Dest+"/") && (outer == nil || len(m.Dest) > len(outer.Dest)) {
			outer = &b.cfg.Mounts[i]
		}
	}
	if outer == nil {
		return makeMountPoint(b.root, dest, dir)
	}
	inner := strings.TrimPrefix(dest, outer.Dest)
	if outer.Copy {
		if err := clearPath(outer.Source, inner, dir); err != nil {
			return err
		}
	}
	return makeMountPoint(outer.Source, inner, dir)
}

// allMounts are the caller's and the small files every program expects,
// outermost first.
func (b *Box) allMounts() []runtime.Mount {
	ms := []runtime.Mount{
		{Source: filepath.Join(b.run.dir, "hosts"), Dest: "/etc/hosts"},
		{Source: filepath.Join(b.run.dir, "resolv.conf"), Dest: "/etc/resolv.conf"},
	}
	if b.cfg.Persistent {
		ms = append(ms, runtime.Mount{Source: filepath.Join(b.run.dir, "pause"), Dest: pauseDest})
	}
	ms = append(ms, b.cfg.Mounts...)
	slices.SortStableFunc(ms, func(x, y runtime.Mount) int {
		return strings.Count(x.Dest, "/") - strings.Count(y.Dest, "/")
	})
	return ms
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
	if b.cfg.Sealed {
		opts = append(opts, oci.WithSealedProcesses())
	}
	for _, m := range b.allMounts() {
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

// Spec returns the specification that p would run with, as it stands after
// everything for the sandbox has been made.
func (b *Box) Spec(p runtime.Process) (*specs.Spec, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, runtime.ErrClosed
	}
	return b.spec(p.Args, p.Env, p.Dir)
}

// Close kills what runs and removes the sandbox. See runtime.Sandbox.
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
	errs = append(errs, kill(ctx, b.group))
	ctx, cancel := b.run.c.cleanup(ctx)
	defer cancel()
	deleted := make(chan error, 1)
	go func() { deleted <- b.deleteContainer(ctx) }() // most of it is waiting for the shim
	if b.netns != nil {
		errs = append(errs, b.netns.Close())
		b.netns = nil
	}
	errs = append(errs, unmountBelow(b.dir), <-deleted)
	if b.layer != nil {
		errs = append(errs, b.layer.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close sandbox %q: %w", b.cfg.Name, err) // the run's end, or a collection, tries again
	}
	b.closed = true
	return errors.Join(os.RemoveAll(b.dir), b.group.Remove())
}

// kill empties a group on a context of its own.
func kill(ctx context.Context, g cgroup.Group) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	return g.KillAll(ctx, 0)
}

func (b *Box) deleteContainer(ctx context.Context) error {
	if b.container == nil {
		return nil
	}
	var err error
	if b.task != nil { // known to have ended: no need to ask
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
