// Package rootfs makes the root file systems of sandboxes: an overlay of a sandbox's own
// layer over the directories of an image or of another sandbox, with everything that is
// to be mounted in it, and with the sandbox's ids if it has its own.
package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/idmap"
	"github.com/securebench/sbench/runtime/volume"
	"github.com/securebench/sbench/workspace/foreign"
)

// Config says what a root file system is made of.
type Config struct {
	Dir      string              // an empty directory for its mounts
	Lower    []string            // directories below the layer, topmost first
	Layer    *volume.Volume      // takes what is written over the root and over mounts with Copy
	IDs      *idmap.Range        // the sandbox's ids; nil if it has the ids of this process
	Files    []File              // small files that are mounted read-only
	Mounts   []runtime.Mount     // the caller's
	Left     map[string][]string // the directories of the mounts with Left, topmost first, by Dest
	Workdir  string              // a directory to make unless it exists
	Writable bool                // otherwise the root itself is read-only
	// Untrusted is the one of Lower that an agent wrote, who may have put anything at the mount points; "" for none.
	Untrusted string
}

// A File is a small file of the sandbox.
type File struct {
	Dest string
	Text []byte
	Mode os.FileMode
}

// FS is a mounted root file system. Its maker unmounts everything below Config.Dir.
type FS struct {
	Config
	shifter shifter
	mounts  []runtime.Mount // all mounts, as the specification names them
}

// New stacks the sandbox's own layer over its base, makes all mount points, and then seals
// the root unless it is writable.
func New(c Config) (*FS, error) {
	f := &FS{Config: c, shifter: shifter{dir: c.Dir, layer: c.Layer, ids: c.IDs}}
	f.Mounts = slices.Clone(c.Mounts)
	if err := errors.Join(f.privateDir(), f.writeFiles()); err != nil {
		return nil, err
	}
	if _, err := f.shifter.overlay(f.Lower, "root"); err != nil {
		return nil, fmt.Errorf("root file system: %w", err)
	}
	if err := f.mountCopies(); err != nil {
		return nil, err
	}
	if err := f.makeMountPoints(); err != nil {
		return nil, err
	}
	if err := errors.Join(f.showMounts(), f.makeDevices()); err != nil {
		return nil, err
	}
	if f.Writable {
		return f, nil
	}
	return f, seal(f.Root())
}

// Root returns the path of the mounted root file system.
func (f *FS) Root() string { return filepath.Join(f.Dir, "root") }

// Shown returns all mounts, outermost first, with the host paths for the OCI runtime to
// mount.
func (f *FS) Shown() []runtime.Mount { return f.mounts }

// Layers returns all directories of the root file system, topmost first, with the owners on
// disk.
func (f *FS) Layers() []string {
	return append([]string{filepath.Join(f.Layer.Path(), "root", "upper")}, f.Lower...)
}

// Stopped returns the path of a stopped sandbox's root file system, with the owners on disk.
func (f *FS) Stopped() (string, error) {
	if f.IDs == nil {
		return f.Root(), nil
	}
	at := filepath.Join(f.Dir, "left")
	err := os.Mkdir(at, 0o711)
	if errors.Is(err, os.ErrExist) {
		return at, nil
	}
	if err == nil {
		err = View(f.Layers(), at)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(at))
	}
	return at, nil
}

// Chown makes a user of the sandbox the owner of the mounts with Chown, see [runtime.Mount].
func (f *FS) Chown(uid, gid uint32) error {
	for _, m := range f.Mounts {
		var err error
		switch {
		case m.Chown && m.Copy:
			err = os.Lchown(m.Source, f.shifter.hostID(uid), f.shifter.hostID(gid))
		case m.Chown && int(uid) != os.Geteuid():
			err = chownTree(m.Source, int(uid), int(gid))
		}
		if err != nil {
			return fmt.Errorf("give %s to the sandbox's user: %w", m.Dest, err)
		}
	}
	return nil
}

// maxDepth bounds the directories inside one another in a walk over a tree. No workspace is as deep.
const maxDepth = 1024

// chownTree gives a user a file, or a directory and what is in it, as far as they belong to this process's user.
func chownTree(source string, uid, gid int) error {
	info, err := os.Lstat(source)
	if err != nil {
		return err
	}
	mine := func(info fs.FileInfo) bool { return int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid() }
	if mine(info) {
		err = os.Lchown(source, uid, gid)
	}
	if err != nil || !info.IsDir() {
		return err
	}
	root, err := os.OpenRoot(source)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return foreign.Walk(root, maxDepth, func(e foreign.Entry) error {
		if !mine(e.Info) {
			return nil
		}
		return e.Dir.Lchown(e.Name, uid, gid)
	})
}

// allMounts returns the mounts of the caller and of the small files, outermost first.
func (f *FS) allMounts() []runtime.Mount {
	var all []runtime.Mount
	for _, file := range f.Files {
		all = append(all, runtime.Mount{Source: f.file(file), Dest: file.Dest})
	}
	all = append(all, f.Mounts...)
	slices.SortStableFunc(all, func(x, y runtime.Mount) int {
		return strings.Count(x.Dest, "/") - strings.Count(y.Dest, "/")
	})
	return all
}

// file returns the path of one of the small files. They are in the sandbox's own layer: two
// sandboxes could communicate through locks and watches on a shared file.
func (f *FS) file(file File) string {
	return filepath.Join(f.Layer.Path(), "files", filepath.Base(file.Dest))
}

func (f *FS) writeFiles() error {
	errs := []error{os.Mkdir(filepath.Join(f.Layer.Path(), "files"), 0o755)}
	for _, file := range f.Files {
		errs = append(errs, os.WriteFile(f.file(file), file.Text, file.Mode))
	}
	return errors.Join(errs...)
}

// mountCopies makes an overlay of the source of each mount with Copy or Left, as the mount's new
// source.
func (f *FS) mountCopies() error {
	for i := range f.Mounts {
		m, name := &f.Mounts[i], fmt.Sprintf("copy-%d", i)
		switch {
		case m.Left != nil:
			at, err := f.shifter.overlay(f.Left[m.Dest], name)
			if err != nil {
				return fmt.Errorf("what is left for %s: %w", m.Dest, err)
			}
			m.Source, m.Copy = at, true
		case m.Copy:
			var err error
			if !m.Chown {
				err = makeLayerLike(filepath.Join(f.Layer.Path(), name), m.Source)
			}
			merged, overlayErr := f.shifter.overlay([]string{m.Source}, name)
			if err = errors.Join(err, overlayErr); err != nil {
				return fmt.Errorf("copy of %s: %w", m.Source, err)
			}
			m.Source, m.Writable = merged, true
		}
	}
	return nil
}

// view makes an overlay of a read-only mount's source and returns its path. Sandboxes could
// communicate through locks and watches on shared inodes, and an overlay has its own; it also hides
// the host's paths. view returns "" if the source is in the sandbox's layer, a file system of its
// own, or cannot be a layer of an overlay.
func (f *FS) view(m runtime.Mount, name string) (string, error) {
	own := f.Layer.Bounded() && strings.HasPrefix(m.Source, f.Layer.Path()+"/")
	if own || m.Writable || m.Chown {
		return "", nil
	}
	info, err := os.Stat(m.Source)
	if err != nil {
		return "", err
	}
	dir, file := m.Source, ""
	if !info.IsDir() {
		dir, file = filepath.Dir(m.Source), filepath.Base(m.Source)
	}
	merged, err := f.shifter.overlay([]string{dir}, name)
	if errors.Is(err, idmap.ErrCannotShift) || errors.Is(err, unix.EINVAL) {
		return "", nil
	}
	return filepath.Join(merged, file), err
}

// showMounts sets f.mounts for the specification: all mounts with the sandbox's ids, the read-only
// ones through a view. If the ids of a read-only mount cannot be shifted, the mount is used as it is: in
// the sandbox, its files belong to the overflow user.
func (f *FS) showMounts() error {
	f.mounts = f.allMounts()
	for i := range f.mounts {
		m := &f.mounts[i]
		if m.Copy { // already an overlay; see mountCopies
			continue
		}
		at, err := f.view(*m, "view-"+strconv.Itoa(i))
		if err == nil && at == "" && f.IDs != nil {
			name := "mount-" + strconv.Itoa(i)
			at = f.shifter.shifted(name)
			err = f.shifter.shift(m.Source, name, m.Writable)
			if errors.Is(err, idmap.ErrCannotShift) && !m.Writable {
				err = (*idmap.Range)(nil).Mount(m.Source, at, false)
			}
		}
		if err != nil {
			return fmt.Errorf("mount at %q: %w", m.Dest, err)
		}
		if at != "" {
			m.Source = at
		}
	}
	return nil
}

func (f *FS) makeMountPoints() error {
	for _, dir := range []string{"/proc", "/dev", "/tmp", "/run"} {
		if err := f.makeInnermost(dir, true); err != nil {
			return err
		}
	}
	for _, m := range f.allMounts() {
		info, err := os.Stat(m.Source)
		if err != nil {
			return fmt.Errorf("mount at %q: %w", m.Dest, err)
		}
		if err := f.makeInnermost(m.Dest, info.IsDir()); err != nil {
			return err
		}
	}
	return f.makePoint(f.Root(), f.Workdir, true)
}

// makeInnermost makes the mount point dest in the caller's innermost mount that contains it
// or, if there is none, in the root, which such a mount would hide.
func (f *FS) makeInnermost(dest string, dir bool) error {
	outer := runtime.Mount{Source: f.Root()}
	for _, m := range f.Mounts {
		if strings.HasPrefix(dest, m.Dest+"/") && len(m.Dest) > len(outer.Dest) {
			outer = m
		}
	}
	inner := strings.TrimPrefix(dest, outer.Dest)
	wrote := ""
	if outer.Dest == "" {
		wrote = f.Untrusted
	}
	if outer.Copy || wrote != "" {
		if err := f.shifter.inside(func() error { return clearPath(outer.Source, wrote, inner, dir) }); err != nil {
			return err
		}
	}
	if outer.Copy || outer.Dest == "" {
		return f.makePoint(outer.Source, inner, dir)
	}
	return makeMountPoint(outer.Source, inner, dir)
}

// makePoint makes a mount point in a tree that has the sandbox's ids.
func (f *FS) makePoint(root, dest string, dir bool) error {
	return f.shifter.inside(func() error { return makeMountPoint(root, dest, dir) })
}
