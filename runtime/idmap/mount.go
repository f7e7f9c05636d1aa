package idmap

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/thread"
)

// ErrCannotShift means that this kernel cannot shift ids of the source's file system, or
// that the source's mount is shifted already or belongs to another user namespace.
var ErrCannotShift = errors.New("ids of the file system cannot be shifted")

// Mount mounts the directory or file source at target, which must exist, with the ids 0 to 65535 shifted
// to the range's; a nil range shifts none. The mount is nosuid and nodev, read-only unless writable is
// set, and without mounts below source. The error is [ErrCannotShift] if the ids of source cannot be
// shifted.
func (r *Range) Mount(source, target string, writable bool) error {
	attr := unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Attr_clr:    unix.MOUNT_ATTR_NOEXEC,
		Propagation: unix.MS_PRIVATE,
	}
	if writable {
		attr.Attr_clr |= unix.MOUNT_ATTR_RDONLY
	} else {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if r != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(r.User().Fd())
	}
	return clone(source, target, attr)
}

// MountPrivate mounts the directory dir on itself. Later mounts below it are visible only in
// this mount namespace, and are removed with a single unmount.
func MountPrivate(dir string) error {
	return clone(dir, dir, unix.MountAttr{Propagation: unix.MS_PRIVATE})
}

// clone mounts at target a clone of source's mount, from source downwards.
func clone(source, target string, attr unix.MountAttr) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("mount %s: %w", source, err)
	}
	defer func() { _ = unix.Close(fd) }() // unmounts it unless it has been attached
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		// EINVAL means that the file system cannot shift ids, EPERM that the mount is
		// shifted already or belongs to another user namespace (mount_setattr(2)).
		if attr.Attr_set&unix.MOUNT_ATTR_IDMAP != 0 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM)) {
			err = fmt.Errorf("%w: %w", ErrCannotShift, err)
		}
		return fmt.Errorf("mount %s: %w", source, err)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s at %s: %w", source, target, err)
	}
	return nil
}

// Overlay mounts at target an overlay of directories shifted by [Range.Mount] or, with a nil range, of
// any directories. The range's root mounts it, since overlayfs uses the credentials of who mounts it (overlayfs.rst,
// "Permission model"). Paths in options may be relative to dir: the kernel accepts at most one page of
// options.
func (r *Range) Overlay(dir, target string, options []string) error {
	mount := func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // a working directory of this thread's own
			return fmt.Errorf("unshare the working directory: %w", err)
		}
		if err := unix.Chdir(dir); err != nil {
			return fmt.Errorf("enter %s: %w", dir, err)
		}
		err := unix.Mount("overlay", target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, strings.Join(options, ","))
		if err != nil {
			return fmt.Errorf("mount overlay at %s: %w", target, err)
		}
		return nil
	}
	if r == nil {
		return thread.Run(mount)
	}
	return As(r.base, mount)
}

// As calls f with id as its effective user and group, and with this process's capabilities, on a thread
// of its own (see [thread.Run]). A file made through a mount that shifts ids needs an owner in the range:
// for the host's root, who has none, it fails with EOVERFLOW.
func As(id uint32, f func() error) error {
	return thread.Run(func() error {
		if err := thread.Become(id); err != nil {
			return err
		}
		return f()
	})
}

// ShiftsTmpfs reports whether this kernel can shift the ids of a tmpfs, as Linux can from
// 6.3 on. It tries it on a mount that is attached nowhere.
func (p *Pool) ShiftsTmpfs() (can bool, err error) {
	r, err := p.Take()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	mnt, err := newTmpfs()
	if err != nil {
		return false, fmt.Errorf("tmpfs: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(mnt)) }()
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(r.User().Fd())}
	err = unix.MountSetattr(mnt, "", unix.AT_EMPTY_PATH, &attr)
	if errors.Is(err, unix.EINVAL) { // the file system cannot shift ids, mount_setattr(2)
		return false, nil
	}
	return err == nil, err
}

// newTmpfs returns a descriptor of a mount that is attached nowhere.
func newTmpfs() (int, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, errors.Join(err, unix.Close(fs))
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	return mnt, errors.Join(err, unix.Close(fs))
}
