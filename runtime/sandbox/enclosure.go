package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/securebench/sbench/oci"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/limits"
	"github.com/securebench/sbench/runtime/mounts"
	"github.com/securebench/sbench/runtime/netns"
	"github.com/securebench/sbench/runtime/passwd"
	"github.com/securebench/sbench/runtime/program"
	"github.com/securebench/sbench/runtime/rootfs"
	"github.com/securebench/sbench/runtime/volume"
	"github.com/securebench/sbench/runtime/watchdog"
)

const (
	defaultPath   = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	inodeBytes    = 16 << 10 // bytes of a layer for each of its inodes
	minInodes     = 256
	tmpInodeBytes = 4 << 10 // the same for /tmp
	runBytes      = 16 << 20
	oomScoreAdj   = 500 // the kernel kills sandboxes before processes of the host
)

// An enclosure is what the processes of a sandbox run in. Its parts belong to the sandbox, except
// the ids of a sandbox with Config.NetworkOf.
type enclosure struct {
	engine *Engine
	cfg    runtime.Config
	how    isolation
	kind   Kind
	id     string // of the container
	dir    string // for the sandbox's files
	root   *rootfs.FS
	layer  *volume.Volume
	ids    sandboxIDs
	netns  *netns.Namespace
	user   passwd.User
	users  map[string]passwd.User // of Config.Become, and the sandbox's user as ""
	cgroup string                 // absolute within the hierarchies
	group  limits.Group
	tmpfs  tmpfsFiles
}

// build makes everything. If it fails, what was made is removed with the sandbox.
func (n *enclosure) build(ctx context.Context) error {
	release, err := n.engine.slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := n.makeRoot(ctx); err != nil {
		return err
	}
	if err := n.lookup(ctx); err != nil {
		return err
	}
	if err := n.root.Chown(n.user.UID, n.user.GID); err != nil {
		return err
	}
	if n.cfg.NetworkOf == nil {
		if err := n.ids.nest(); err != nil {
			return err
		}
	}
	return n.makeNetwork()
}

// makeRoot makes everything in the sandbox's root file system.
func (n *enclosure) makeRoot(ctx context.Context) error {
	if err := os.Mkdir(n.dir, 0o700); err != nil {
		return err
	}
	var err error
	if n.cfg.NetworkOf != nil {
		err = n.share(ctx)
	} else {
		n.ids, err = n.kind.IDs.take()
	}
	if err != nil {
		return err
	}
	lower, err := n.base(ctx)
	if err != nil {
		return err
	}
	n.layer, err = n.engine.newLayer(ctx, runtime.VolumeConfig{
		Bytes: n.cfg.Limits.LayerBytes, Inodes: max(minInodes, n.cfg.Limits.LayerBytes/inodeBytes),
	})
	if err != nil {
		return err
	}
	files, err := n.files()
	if err != nil {
		return err
	}
	left := map[string][]string{}
	for _, m := range n.cfg.Mounts {
		if m.Left != nil {
			if left[m.Dest], err = n.layersOf(m.Left); err != nil {
				return err
			}
		}
	}
	n.root, err = rootfs.New(rootfs.Config{
		Dir: n.dir, Lower: lower, Left: left, Layer: n.layer, IDs: n.ids.own,
		Files: files, Mounts: n.cfg.Mounts, Workdir: n.workdir(), Writable: n.cfg.WritableRoot || n.cfg.Machine, Untrusted: n.cfg.Image.UpperDir,
	})
	if other, ok := n.cfg.NetworkOf.(*Sandbox); ok && n.cfg.Machine && err == nil {
		err = n.root.ShowSockets(other.root, n.cfg.ReadOnly)
	}
	return err
}

// share takes the ids of Config.NetworkOf, to which they still belong, opens the sandbox's own sockets in its network
// namespace, and then resumes the processes that it keeps.
func (n *enclosure) share(ctx context.Context) (err error) {
	network := cmp.Or(n.cfg.Network, &runtime.Network{})
	other, ok := n.cfg.NetworkOf.(*Sandbox)
	if !ok || other.engine != n.engine || network.Redirect {
		return errors.New("the sandbox whose network it is to share is of another engine, or its connections are to be redirected")
	}
	other.mu.Lock()
	defer other.mu.Unlock()
	if other.closed || other.netns == nil {
		return errors.New("the sandbox whose network it is to share is closed")
	}
	n.ids = other.ids
	if n.netns, err = other.netns.Join(network.TCP, network.UDP); err != nil {
		return err
	}
	if other.left != nil {
		return other.resume(ctx)
	}
	other.beside = append(other.beside, n.group)
	return nil
}

// base returns the directories below the sandbox's own layer.
func (n *enclosure) base(ctx context.Context) ([]string, error) {
	if n.cfg.Base == nil {
		return n.engine.lowers(ctx, n.cfg.Image)
	}
	return n.layersOf(n.cfg.Base)
}

// layersOf returns the directories of another sandbox's root file system, topmost first.
func (n *enclosure) layersOf(sandbox runtime.Sandbox) ([]string, error) {
	other, ok := sandbox.(*Sandbox)
	if !ok || other.engine != n.engine {
		return nil, errors.New("base sandbox is not of this engine")
	}
	other.mu.Lock()
	defer other.mu.Unlock()
	if err := other.checkStopped(); err != nil {
		return nil, fmt.Errorf("base %w", err)
	}
	return other.root.Layers(), nil
}

// lookup finds the sandbox's users in the files of the image, without UpperDir.
func (n *enclosure) lookup(ctx context.Context) (err error) {
	at := n.root.Root()
	if image := n.cfg.Image; image.UpperDir != "" {
		image.UpperDir = ""
		v, err := n.engine.View(ctx, image)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, v.Close()) }()
		at = v.Root().Name()
	}
	n.users = map[string]passwd.User{}
	for _, name := range append([]string{""}, n.cfg.Become...) {
		u, err := passwd.Lookup(at, cmp.Or(name, n.cfg.User, n.cfg.Image.User))
		if err = errors.Join(err, n.ids.check(u)); err != nil {
			return err
		}
		n.users[name] = u
	}
	n.user = n.users[""]
	return nil
}

// makeNetwork makes the network namespace, unless it is shared, and hands out the sockets in it.
func (n *enclosure) makeNetwork() error {
	network := cmp.Or(n.cfg.Network, &runtime.Network{})
	if n.cfg.NetworkOf == nil {
		options := netns.Options{TCP: network.TCP, UDP: network.UDP, Redirect: network.Redirect}
		if n.ids.userns != nil {
			options.Namespace = n.ids.userns.Network() // which the sandbox's user namespace owns
		}
		var err error
		if n.netns, err = netns.New(options); err != nil {
			return err
		}
	}
	if network.Serve == nil {
		return nil
	}
	return network.Serve(runtime.Sockets{
		TCP: n.netns.TCP, UDP: n.netns.UDP, Redirected: n.netns.Redirected,
	})
}

// idles reports whether the first process of the sandbox idles, and others run beside it.
func (n *enclosure) idles() bool { return n.cfg.Persistent || n.cfg.KeepProcesses }

// pauseDest is the path, inside the sandbox, of the program of a first process that idles.
const pauseDest = "/.sbench/pause"

// files returns the small files that every program expects.
func (n *enclosure) files() ([]rootfs.File, error) {
	nameserver := ""
	if network := n.cfg.Network; network != nil && network.Nameserver != "" {
		nameserver = "nameserver " + network.Nameserver + "\n"
	}
	files := []rootfs.File{
		{Dest: "/etc/hosts", Text: []byte("127.0.0.1\t" + strings.Join(append([]string{"localhost"}, n.cfg.Hosts...), " ") + "\n::1\tlocalhost ip6-localhost ip6-loopback\n"), Mode: 0o644},
		{Dest: "/etc/resolv.conf", Text: []byte(nameserver), Mode: 0o644},
	}
	if !n.idles() {
		return files, nil
	}
	pause, err := program.Pause()
	return append(files, rootfs.File{Dest: pauseDest, Text: pause, Mode: n.how.pauseMode()}), err
}

func (n *enclosure) workdir() string {
	return cmp.Or(n.cfg.Workdir, n.cfg.Image.Workdir, "/")
}

// spec builds the specification for p as the first process.
func (n *enclosure) spec(p runtime.Process) (*specs.Spec, error) {
	platform, beside := n.engine.platform, int64(0)
	if other, ok := n.cfg.NetworkOf.(*Sandbox); ok {
		beside = other.cfg.Limits.Pids
	}
	limits, err := platform.Limits.Spec(n.cfg.Limits, n.cgroup, beside)
	if err != nil {
		return nil, err
	}
	user, env := specs.User{UID: n.user.UID, GID: n.user.GID, AdditionalGids: n.user.Groups}, n.environment(p.Env)
	if len(n.cfg.Become) > 0 {
		ids, err := json.Marshal(n.users)
		if err != nil {
			return nil, err
		}
		user, env = specs.User{}, append(env, runtime.UsersVariable+"="+string(ids))
	}
	c := oci.Config{
		Rootfs: n.root.Root(), Args: p.Args, Env: env, Cwd: cmp.Or(p.Dir, n.workdir()), User: user,
		Network: n.netns.Path(), SharedMemory: n.cfg.Limits.ShmBytes, ReadOnly: n.cfg.ReadOnly,
		Capabilities: n.cfg.Capabilities, IsolatedProcesses: n.cfg.IsolateProcesses,
		OwnFilters: platform.AllowSeccomp, Netlink: platform.AllowNetlink,
		Files: n.cfg.Limits.Files, Limits: limits, HardLimits: platform.Conn.Inherited.Hard,
		// Not below the daemon's: lowering it needs CAP_SYS_RESOURCE.
		OOMScoreAdj: max(oomScoreAdj, platform.Conn.Inherited.OOMScoreAdj),
	}
	if !n.cfg.Machine {
		c.Tmpfs = []oci.Tmpfs{
			{Dest: "/tmp", Bytes: n.cfg.Limits.TmpBytes, Inodes: max(minInodes, n.cfg.Limits.TmpBytes/tmpInodeBytes)},
			{Dest: "/run", Bytes: runBytes, Inodes: minInodes},
		}
	}
	if n.cfg.AllFiles && n.ids.userns != nil {
		c.Capabilities = append(slices.Clip(c.Capabilities), "CAP_DAC_OVERRIDE")
	}
	n.how.configure(&c, n)
	for _, m := range n.root.Shown() {
		c.Binds = append(c.Binds, oci.Bind{Source: m.Source, Dest: m.Dest, Writable: m.Writable})
	}
	return oci.New(c)
}

func (n *enclosure) environment(extra []string) []string {
	return slices.Concat([]string{defaultPath, "HOME=" + n.user.Home, "HOSTNAME=" + oci.Hostname}, n.cfg.Image.Env, n.cfg.Env, extra)
}

// attach lets the watchdog, if there is one, watch the sandbox's first process before it starts.
func (n *enclosure) attach(pid int) error {
	g, ok := n.group.(*watchdog.Group)
	if !ok {
		return nil
	}
	if err := n.tmpfs.open(pid); err != nil {
		return err
	}
	return g.Attach(pid)
}

// fileBytes returns how many bytes of the sandbox's memory are files: those on its own tmpfs
// mounts, and those in a layer small enough to be in memory on any host. Larger volumes have
// their own bound.
func (n *enclosure) fileBytes() int64 {
	sum := n.tmpfs.bytes()
	if n.layer != nil {
		sum += n.layer.InMemory()
	}
	return sum
}

// volumes returns the sandbox's layer and the volumes that it mounts directly. With writable, it
// leaves out the volumes that are mounted read-only.
func (n *enclosure) volumes(writable bool) []*volume.Volume {
	all := []*volume.Volume{n.layer}
	for _, m := range n.cfg.Mounts {
		if v := n.engine.volumes.Of(m.Source); v != nil && !m.Copy && (m.Writable || !writable) {
			all = append(all, v)
		}
	}
	return all
}

// full reports whether the layer, or a writable mount that is a volume, is full.
func (n *enclosure) full() (bool, error) {
	for _, v := range n.volumes(true) {
		if isFull, err := v.Full(); err != nil || isFull {
			return isFull, err
		}
	}
	return false, nil
}

// sound returns an error if something written to the sandbox's volumes has not reached the
// disk.
func (n *enclosure) sound() error {
	for _, v := range n.volumes(false) {
		if err := v.Sound(); err != nil {
			return err
		}
	}
	return nil
}

// unmount removes all mounts below the sandbox's directory.
func (n *enclosure) unmount() error {
	if n.root != nil {
		return n.root.Unmount()
	}
	return mounts.DetachBelow(n.dir)
}
