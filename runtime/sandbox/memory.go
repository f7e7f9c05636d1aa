package sandbox

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// tmpfsFiles are the tmpfs mounts of a sandbox. A watchdog counts their contents as memory. The zero
// value has no mounts.
type tmpfsFiles struct{ opened atomic.Pointer[[]*os.File] }

// open opens the mounts of a process.
func (t *tmpfsFiles) open(pid int) error {
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("root of process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(root) }()
	var opened []*os.File
	defer func() { t.opened.Store(&opened) }()
	for _, dir := range []string{"/tmp", "/run", "/dev/shm"} {
		fd, err := unix.Openat2(root, dir, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
		if err != nil {
			return fmt.Errorf("%s of process %d: %w", dir, pid, err)
		}
		opened = append(opened, os.NewFile(uintptr(fd), dir))
	}
	return nil
}

// close closes what open opened.
func (t *tmpfsFiles) close() error {
	var errs []error
	if opened := t.opened.Swap(nil); opened != nil {
		for _, f := range *opened {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// bytes returns how many bytes the files on the mounts take.
func (t *tmpfsFiles) bytes() (sum int64) {
	opened := t.opened.Load()
	if opened == nil {
		return 0
	}
	var st unix.Statfs_t
	for _, f := range *opened {
		raw, err := f.SyscallConn()
		if err != nil {
			continue
		}
		var statErr error
		err = raw.Control(func(fd uintptr) { statErr = unix.Fstatfs(int(fd), &st) }) // close may close f meanwhile
		if err == nil && statErr == nil {
			sum += int64(st.Blocks-st.Bfree) * st.Bsize
		}
	}
	return sum
}
