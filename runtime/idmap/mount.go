package idmap

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrCannotShift means that this kernel cannot shift ids of the source's file system, or
// that the source's mount is shifted already or belongs to another user namespace.
var ErrCannotShift = errors.New("ids of the file system cannot be shifted")

// Mount mounts the directory or file source at target, which must exist, with the ids 0 to
// 65535 shifted to the range's. Files with other ids appear to belong to the overflow user.
// The mount is nosuid and nodev, and read-only unless writable is set; mounts below source
// are not included. A nil range shifts no ids. The error is [ErrCannotShift] if the ids of
// source cannot be shifted.
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

func clone(source, target string, attr unix.MountAttr) error {
	fd, err := detached(source, attr)
	if err != nil {
		return fmt.Errorf("mount %s: %w", source, err)
	}
	defer func() { _ = unix.Close(fd) }() // unmounts it unless it has been attached
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s at %s: %w", source, target, err)
	}
	return nil
}

// detached returns a clone of source's mount, from source downwards.
func detached(source string, attr unix.MountAttr) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, err
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr)
	if err == nil {
		return fd, nil
	}
	// EINVAL means that the file system cannot shift ids, EPERM that the mount is
	// shifted already or belongs to another user namespace (mount_setattr(2)).
	if attr.Attr_set&unix.MOUNT_ATTR_IDMAP != 0 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM)) {
		err = fmt.Errorf("%w: %w", ErrCannotShift, err)
	}
	return -1, errors.Join(err, unix.Close(fd))
}
