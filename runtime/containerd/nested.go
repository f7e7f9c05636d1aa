package containerd

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/userns"
	"github.com/securebench/sbench/runtime/watchdog"
)

// nest makes the sandbox's user namespace if sbench itself is in one: a child of it with
// the same ids. The sandbox's root then has no power over sbench's namespace, and the kernel
// counts the processes of each sandbox separately (user_namespaces(7), setrlimit(2)).
func (b *Box) nest() error {
	if !userns.Inside() {
		return nil
	}
	ids, err := sameIDs()
	if err != nil {
		return err
	}
	b.userns, err = userns.New(0, ids)
	return err
}

// sameIDs maps every id of this user namespace to itself. One mapping must not span two of
// the parent namespace's (user_namespaces(7)).
func sameIDs() ([]userns.Mapping, error) {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return nil, err
	}
	var ms []userns.Mapping
	for line := range strings.Lines(string(text)) {
		var m userns.Mapping
		if _, err := fmt.Sscan(line, &m.First, &m.Outside, &m.Size); err != nil {
			return nil, fmt.Errorf("/proc/self/uid_map: %q: %w", line, err)
		}
		m.Outside = m.First
		ms = append(ms, m)
	}
	return ms, nil
}

// attach lets the watchdog, if there is one, watch the sandbox's first process, which is
// not started yet, and opens the process's tmpfs mounts for held.
func (b *Box) attach(pid uint32) error {
	g, ok := b.group.(*watchdog.Group)
	if !ok {
		return nil
	}
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("root of process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(root) }()
	var opened []*os.File
	defer func() { b.inMemory.Store(&opened) }()
	for _, dir := range []string{"/tmp", "/run", "/dev/shm"} {
		fd, err := unix.Openat2(root, dir, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
		if err != nil {
			return fmt.Errorf("%s of process %d: %w", dir, pid, err)
		}
		opened = append(opened, os.NewFile(uintptr(fd), dir))
	}
	return g.Attach(int(pid))
}

// detach closes what attach opened.
func (b *Box) detach() error {
	var errs []error
	if opened := b.inMemory.Swap(nil); opened != nil {
		for _, f := range *opened {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// held returns how many bytes of the sandbox's memory are taken by files: those on its own
// tmpfs mounts, and those in a layer small enough to be kept in memory on any host. Larger
// volumes have a bound of their own.
func (b *Box) held() (sum int64) {
	if b.layer != nil {
		sum = b.layer.InMemory()
	}
	if opened := b.inMemory.Load(); opened != nil {
		var st unix.Statfs_t
		for _, f := range *opened {
			if unix.Fstatfs(int(f.Fd()), &st) == nil {
				sum += int64(st.Blocks-st.Bfree) * st.Bsize
			}
		}
	}
	return sum
}
