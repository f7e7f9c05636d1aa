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

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/idmap"
)

// mountRoot stacks the sandbox's own layer over its base, makes all mount
// points, and then seals the root unless it may be written.
func (b *Box) mountRoot(ctx context.Context) error {
	if err := errors.Join(os.Mkdir(b.dir, 0o700), os.Mkdir(b.root, 0o711)); err != nil {
		return err
	}
	if err := b.takeIDs(); err != nil {
		return err
	}
	var err error
	if b.lower, err = b.base(ctx); err != nil {
		return err
	}
	b.layer, err = b.run.newLayer(ctx, runtime.VolumeConfig{
		Bytes: b.cfg.Limits.LayerBytes, Inodes: max(minInodes, b.cfg.Limits.LayerBytes/inodeBytes),
	})
	if err != nil {
		return err
	}
	if err := b.writeFiles(); err != nil {
		return err
	}
	if err := b.overlay(b.lower, "root", b.root); err != nil {
		return fmt.Errorf("root file system: %w", err)
	}
	if err := b.mountCopies(); err != nil {
		return err
	}
	if err := b.makeMountPoints(); err != nil {
		return err
	}
	if err := errors.Join(b.showMounts(), b.makeDevices()); err != nil {
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
	from, ok := b.cfg.From.(*Box)
	if !ok || from.run != b.run {
		return nil, errors.New("base sandbox is not of this run")
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	if from.closed || from.cfg.Persistent || !from.spent {
		return nil, errors.New("base sandbox has not stopped, or is closed")
	}
	return from.stack(), nil
}

// mountCopies makes an overlay of the source of each mount with Copy, and makes it the
// mount's new source.
func (b *Box) mountCopies() error {
	b.cfg.Mounts = slices.Clone(b.cfg.Mounts)
	for i, m := range b.cfg.Mounts {
		if !m.Copy {
			continue
		}
		merged, err := b.overlayOf(m.Source, fmt.Sprintf("copy-%d", i))
		if err != nil {
			return fmt.Errorf("copy of %s: %w", m.Source, err)
		}
		b.cfg.Mounts[i].Source, b.cfg.Mounts[i].Writable = merged, true
	}
	return nil
}

// overlayOf mounts an overlay of the directory source, which writes to the sandbox's layer,
// and returns its path.
func (b *Box) overlayOf(source, name string) (string, error) {
	lower, merged := filepath.Join(b.dir, name+"-lower"), filepath.Join(b.dir, name)
	for _, dir := range []string{lower, merged} {
		if err := os.Mkdir(dir, 0o711); err != nil {
			return "", err
		}
	}
	// Through a bind mount, because overlay cannot take every path as it is.
	if err := bindMount(source, lower, false); err != nil {
		return "", err
	}
	return merged, b.overlay([]string{lower}, name, merged)
}

// view makes an overlay of the source of a read-only mount and returns its path. The
// overlay has inodes of its own, since sandboxes could communicate through locks and watches
// on shared ones, and keeps host paths out of the sandbox's mount table. view returns "" for
// what is in the sandbox's layer, if that is a file system of its own, with fuse-overlayfs,
// and if the file system cannot be a layer of an overlay.
func (b *Box) view(m runtime.Mount, name string) (string, error) {
	own := !b.layer.folder && strings.HasPrefix(m.Source, b.layer.Path()+"/")
	if own || m.Writable || m.Give || b.run.c.stack.fuse != "" {
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
	merged, err := b.overlayOf(dir, name)
	if errors.Is(err, idmap.ErrCannotShift) || errors.Is(err, unix.EINVAL) {
		return "", nil
	}
	return filepath.Join(merged, file), err
}

// giveMounts makes the sandbox's user the owner of the files of a mount with Give that
// belong to sbench's user, and of the top directory of a mount with Copy. Files of other
// owners, such as those copied out of an image, keep them.
func (b *Box) giveMounts() error {
	if int(b.user.uid) == os.Geteuid() {
		return nil
	}
	for _, m := range b.cfg.Mounts {
		if m.Copy { // files below the top keep their owners
			if err := os.Lchown(m.Source, b.hostID(b.user.uid), b.hostID(b.user.gid)); err != nil {
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
		if err := b.makeInside(b.root, dir, true); err != nil {
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
	return b.makeInside(b.root, b.workdir(), true)
}

// makePointIn makes the mount point dest in the innermost mount of the caller's that
// contains it, or else in the root, which that mount would hide.
func (b *Box) makePointIn(dest string, dir bool) error {
	var outer *runtime.Mount
	for i, m := range b.cfg.Mounts {
		if strings.HasPrefix(dest, m.Dest+"/") && (outer == nil || len(m.Dest) > len(outer.Dest)) {
			outer = &b.cfg.Mounts[i]
		}
	}
	if outer == nil {
		return b.makeInside(b.root, dest, dir)
	}
	inner := strings.TrimPrefix(dest, outer.Dest)
	if outer.Copy {
		if err := b.inside(func() error { return clearPath(outer.Source, inner, dir) }); err != nil {
			return err
		}
		return b.makeInside(outer.Source, inner, dir)
	}
	return makeMountPoint(outer.Source, inner, dir)
}
