package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/oci"
	"github.com/securebench/sbench/runtime/idmap"
	"github.com/securebench/sbench/runtime/userns"
)

// The values of Options.UserNamespace, and what came of it.
const (
	UserNamespaceAuto = "auto" // OwnUserNamespace where that is possible
	HostUserNamespace = "host" // sandboxes' ids are those of sbench
	OwnUserNamespace  = "own"  // each sandbox has a range of ids of its own
	// NestedUserNamespace: sbench is in a user namespace, and each sandbox has one
	// below that, with the same ids, none of which is the host's root.
	NestedUserNamespace = "nested"
)

// idMode is how the ids of sandboxes relate to the host's, decided once
// for a client.
type idMode struct {
	pool *idmap.Pool // of ranges; nil in HostUserNamespace
	why  string      // reason for HostUserNamespace, or what OwnUserNamespace lacks
}

// UserNamespace returns NestedUserNamespace, OwnUserNamespace and what it lacks on this host, "" if
// nothing, or HostUserNamespace and why.
func (c *Client) UserNamespace() (mode, why string) {
	switch {
	case userns.Inside():
		return NestedUserNamespace, ""
	case c.ids.pool == nil:
		return HostUserNamespace, c.ids.why
	}
	return OwnUserNamespace, c.ids.why
}

// decideIDs is the one place that chooses. That this host cannot give
// user namespaces is no error.
func (c *Client) decideIDs(ctx context.Context) (idMode, error) {
	switch {
	case c.opts.UserNamespace == HostUserNamespace:
		return idMode{why: "asked for"}, nil
	case c.opts.UserNamespace != "" && c.opts.UserNamespace != UserNamespaceAuto:
		return idMode{}, fmt.Errorf("user namespace %q is neither %s nor %s", c.opts.UserNamespace, UserNamespaceAuto, HostUserNamespace)
	case !userns.HostRoot():
		return idMode{why: "sbench is not the host's root"}, nil
	case c.stack.fuse != "":
		return idMode{why: "fuse-overlayfs shifts no ids"}, nil
	case c.opts.Handler != DefaultHandler:
		return idMode{why: "the handler is not " + DefaultHandler}, nil
	}
	m := idMode{}
	if !c.limits.sysResource {
		m.why = "the daemon has no CAP_SYS_RESOURCE: what the kernel counts per user, it counts for the host's root as well"
	}
	pool, err := idmap.NewPool(filepath.Join(c.opts.State, "ids.lock"), !c.limits.sysResource)
	if err != nil {
		return idMode{}, fmt.Errorf("user namespaces: %w", err)
	}
	if err := pool.Probe(c.opts.State, c.snapshotRoot(ctx)); err != nil {
		return idMode{why: err.Error()}, nil
	}
	m.pool = pool
	return m, nil
}

// snapshotRoot is where the snapshotter has the layers of images, as far as the
// daemon tells; else it is taken to be on the file system of our own root.
func (c *Client) snapshotRoot(ctx context.Context) string {
	answer, err := c.c.IntrospectionService().Plugins(c.ctx(ctx), "type==io.containerd.snapshotter.v1,id=="+c.opts.Snapshotter)
	if err != nil {
		return c.opts.Root
	}
	for _, p := range answer.Plugins {
		dir := p.Exports["root"]
		if info, err := os.Stat(dir); p.ID == c.opts.Snapshotter && err == nil && info.IsDir() {
			return dir
		}
	}
	return c.opts.Root
}

// takeIDs gives the sandbox a range of ids, if sandboxes have their own.
func (b *Box) takeIDs() error {
	pool := b.run.c.ids.pool
	if pool == nil {
		return nil
	}
	var err error
	if b.ids, err = pool.Take(); err != nil {
		return err
	}
	b.userns = b.ids.Namespace
	// Its root has to pass, and nobody else: what is below is a running sandbox.
	if err := errors.Join(os.Chown(b.dir, 0, int(b.ids.Base())), os.Chmod(b.dir, 0o710), os.Mkdir(b.shifted(""), 0o711)); err != nil {
		return err
	}
	return idmap.MountPrivate(b.dir)
}

// releaseIDs comes after the death of the sandbox's processes is proved.
func (b *Box) releaseIDs() error {
	var closer io.Closer = b.userns
	switch {
	case b.userns == nil:
		return nil
	case b.ids != nil:
		closer = b.ids
	}
	b.userns, b.ids = nil, nil
	return closer.Close()
}

// shifted names a mount whose ids are the sandbox's.
func (b *Box) shifted(name string) string { return filepath.Join(b.dir, "ids", name) }

// shift mounts a directory or file under that name, with the sandbox's ids.
func (b *Box) shift(source, name string, writable bool) error {
	if err := b.makeTarget(source, name); err != nil {
		return err
	}
	return b.ids.Mount(source, b.shifted(name), writable)
}

func (b *Box) makeTarget(source, name string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.Mkdir(b.shifted(name), 0o711)
	}
	return os.WriteFile(b.shifted(name), nil, 0o644)
}

// overlay shows lowers at target with writes going to the directory name of the
// sandbox's layer. On disk every file keeps the owner it has in the sandbox.
func (b *Box) overlay(lowers []string, name, target string) error {
	if b.ids == nil {
		return b.run.c.stack.overlay(lowers, filepath.Join(b.layer.Path(), name), target)
	}
	if _, _, err := makeLayer(filepath.Join(b.layer.Path(), name)); err != nil {
		return err
	}
	if _, err := os.Lstat(b.shifted("layer")); err != nil {
		if err := b.shift(b.layer.Path(), "layer", true); err != nil {
			return err
		}
	}
	var shifted []string
	for i, lower := range lowers {
		at := name + "-" + strconv.Itoa(i)
		if err := b.shift(lower, at, false); err != nil {
			return err
		}
		shifted = append(shifted, at)
	}
	upper, work := filepath.Join("layer", name, "upper"), filepath.Join("layer", name, "work")
	return b.ids.Overlay(b.shifted(""), target, layerOptions(shifted, upper, work))
}

// inside calls f as the one who can make files in the sandbox's root and copies.
func (b *Box) inside(f func() error) error {
	if b.ids == nil {
		return f()
	}
	return idmap.As(b.ids.Base(), f)
}

// hostID is the host's id for one of the sandbox's.
func (b *Box) hostID(id uint32) int {
	if b.ids == nil {
		return int(id)
	}
	return int(b.ids.Base() + id)
}

// checkUser refuses a user that has no id in the sandbox's range.
func (b *Box) checkUser() error {
	if b.ids == nil {
		return nil
	}
	for _, id := range append([]uint32{b.user.uid, b.user.gid}, b.user.groups...) {
		if id >= idmap.Size {
			return fmt.Errorf("user or group %d: a sandbox with a user namespace of its own has the ids 0 to %d; runtime.user_namespace: host has all", id, idmap.Size-1)
		}
	}
	return nil
}

// showMounts prepares what the specification will name: all mounts as the
// sandbox's ids see them. What cannot be shifted is shown as it is, if it is
// only read: there its owners are nobody, and modes for others decide.
func (b *Box) showMounts() error {
	b.mounts = b.allMounts()
	if b.ids == nil {
		return nil
	}
	for i := range b.mounts {
		m := &b.mounts[i]
		if m.Copy { // an overlay of shifted directories
			continue
		}
		name := "mount-" + strconv.Itoa(i)
		err := b.shift(m.Source, name, m.Writable)
		if errors.Is(err, idmap.ErrCannotShift) && !m.Writable {
			err = (*idmap.Range)(nil).Mount(m.Source, b.shifted(name), false)
		}
		if err != nil {
			return fmt.Errorf("mount at %q: %w", m.Dest, err)
		}
		m.Source = b.shifted(name)
	}
	return nil
}

// networkNamespace is the one that the sandbox's user namespace owns, nil if
// any will do.
func (b *Box) networkNamespace() *os.File {
	if b.userns == nil {
		return nil
	}
	return b.userns.Network()
}

// userNamespace returns the options of the specification, and of the OCI runtime.
func (b *Box) userNamespace() ([]oci.Option, any) {
	if b.userns == nil {
		return nil, nil
	}
	var mappings []specs.LinuxIDMapping
	for _, m := range b.userns.Mappings() {
		mappings = append(mappings, specs.LinuxIDMapping{ContainerID: m.First, HostID: m.Outside, Size: m.Size})
	}
	opts := []oci.Option{oci.WithUserNamespace(b.userns.Path(), mappings...)}
	if b.ids == nil {
		return opts, nil
	}
	// The pipes of standard output must belong to the sandbox's root, or
	// /dev/stdout could not be opened anew.
	base := b.ids.Base()
	return append(opts, oci.WithDevices(b.devices())), &options.Options{IoUid: base, IoGid: base}
}

// left is the root file system that a stopped sandbox left, with owners as they
// are on disk.
func (b *Box) left() (string, error) {
	if b.ids == nil {
		return b.root, nil
	}
	at := filepath.Join(b.dir, "left")
	err := os.Mkdir(at, 0o711)
	if errors.Is(err, os.ErrExist) {
		return at, nil
	}
	if err == nil {
		err = mountView(b.stack(), at)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(at))
	}
	return at, nil
}

// stack is everything of the root file system on disk, topmost first.
func (b *Box) stack() []string {
	return append([]string{filepath.Join(b.layer.Path(), "root", "upper")}, b.lower...)
}

// userNamespaceFinding is the doctor's line.
func (c *Client) userNamespaceFinding() Finding {
	const check = "sandbox ids"
	mode, why := c.UserNamespace()
	own := "every sandbox has a user namespace and a range of ids of its own"
	switch {
	case mode == NestedUserNamespace:
		return Finding{check, OK, "every sandbox has a user namespace below this user's", ""}
	case mode == OwnUserNamespace && why == "":
		return Finding{check, OK, own, ""}
	case mode == OwnUserNamespace:
		return Finding{check, Warn, own + ", but " + why, "start containerd with CAP_SYS_RESOURCE"}
	}
	return Finding{check, Warn, "root in a sandbox is " + "the host's root, without capabilities: " + why,
		"run as root on Linux 6.3 or later, with --root and --state on ext4, xfs, btrfs or tmpfs, in folders that others may pass"}
}

// makeInside makes a mount point in a tree that has the sandbox's ids. Most are
// there already, which takes no thread to find out; none can be made without.
func (b *Box) makeInside(root, dest string, dir bool) error {
	err := makeMountPoint(root, dest, dir)
	if b.ids == nil || !errors.Is(err, unix.EOVERFLOW) {
		return err
	}
	return b.inside(func() error { return makeMountPoint(root, dest, dir) })
}

// mayHave says whether a capability is in a process's bounding set.
func mayHave(pid int, capability uint) (bool, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(text)) {
		if set, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			return bits&(1<<capability) != 0, err
		}
	}
	return false, fmt.Errorf("no bounding set in the status of process %d", pid)
}
