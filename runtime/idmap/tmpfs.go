package idmap

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

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
