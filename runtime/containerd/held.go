package containerd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/watchdog"
)

// attach lets the watchdog, if there is one, watch the sandbox's first process before it
// starts, and opens the process's tmpfs mounts for held.
func (s *Sandbox) attach(pid int) error {
	g, ok := s.group.(*watchdog.Group)
	if !ok {
		return nil
	}
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("root of process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(root) }()
	var opened []*os.File
	defer func() { s.inMemory.Store(&opened) }()
	for _, dir := range []string{"/tmp", "/run", "/dev/shm"} {
		fd, err := unix.Openat2(root, dir, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
		if err != nil {
			return fmt.Errorf("%s of process %d: %w", dir, pid, err)
		}
		opened = append(opened, os.NewFile(uintptr(fd), dir))
	}
	return g.Attach(pid)
}

// detach closes what attach opened.
func (s *Sandbox) detach() error {
	var errs []error
	if opened := s.inMemory.Swap(nil); opened != nil {
		for _, f := range *opened {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// held returns how many bytes of the sandbox's memory are files: those on its own tmpfs
// mounts, and those in a layer small enough to be in memory on any host. Larger volumes have
// their own bound.
func (s *Sandbox) held() (sum int64) {
	if s.layer != nil {
		sum = s.layer.InMemory()
	}
	if opened := s.inMemory.Load(); opened != nil {
		var st unix.Statfs_t
		for _, f := range *opened {
			raw, err := f.SyscallConn()
			if err != nil {
				continue
			}
			var statErr error
			err = raw.Control(func(fd uintptr) { statErr = unix.Fstatfs(int(fd), &st) }) // detach may close f meanwhile
			if err == nil && statErr == nil {
				sum += int64(st.Blocks-st.Bfree) * st.Bsize
			}
		}
	}
	return sum
}
