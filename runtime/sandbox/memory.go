package sandbox

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// tmpfsFiles are the tmpfs mounts of a sandbox. A watchdog counts their contents as memory. The zero
// value has no mounts. The methods are safe for concurrent use.
type tmpfsFiles struct {
	mu     sync.Mutex
	opened []int // descriptors
}

// open opens the mounts of a process. A file system that is no tmpfs is none of them: its numbers can be a whole disk's.
func (t *tmpfsFiles) open(pid int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("root of process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(root) }()
	for _, dir := range []string{"/tmp", "/run", "/dev/shm"} {
		fd, err := unix.Openat2(root, dir, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
		if err != nil {
			return fmt.Errorf("%s of process %d: %w", dir, pid, err)
		}
		var st unix.Statfs_t
		if err := unix.Fstatfs(fd, &st); err != nil || st.Type != unix.TMPFS_MAGIC { // of a machine, a directory of its layer
			if err = errors.Join(err, unix.Close(fd)); err != nil {
				return fmt.Errorf("%s of process %d: %w", dir, pid, err)
			}
			continue
		}
		t.opened = append(t.opened, fd)
	}
	return nil
}

// close closes what open opened.
func (t *tmpfsFiles) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, fd := range t.opened {
		errs = append(errs, unix.Close(fd))
	}
	t.opened = nil
	return errors.Join(errs...)
}

// bytes returns how many bytes the files on the mounts take.
func (t *tmpfsFiles) bytes() (sum int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, fd := range t.opened {
		var st unix.Statfs_t
		if unix.Fstatfs(fd, &st) == nil {
			sum += int64(st.Blocks-st.Bfree) * st.Bsize
		}
	}
	return sum
}
