package cgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// An oomCounter counts how often a group of version 1 has reached its own limit on memory. The kernel
// then signals the eventfds of the group and of all groups below it, so the events of the group above
// are subtracted (memory.rst of cgroup-v1, "OOM Control").
type oomCounter struct {
	mu         sync.Mutex
	own, above oomEvents
}

type oomEvents struct {
	fd int
	n  int64
}

// CountOOMs makes [Group.Stats] count how often the group reaches its limit on memory. The group must
// exist and have no process that runs. [Group.Remove] ends the count.
func (g *Group) CountOOMs() error {
	if g.h.Mode() == V2 { // the kernel counts
		return nil
	}
	own, err := g.oomEvents()
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) { // a kernel without, such as one for real time
		return nil
	}
	if err != nil {
		return err
	}
	above, err := g.h.Group(filepath.Dir(g.path)).oomEvents()
	if err != nil {
		return errors.Join(err, unix.Close(own.fd))
	}
	g.ooms = &oomCounter{own: own, above: above}
	// What the group above signaled so far, the own may have missed.
	err = errors.Join(g.ooms.above.read(), g.ooms.own.read())
	g.ooms.above.n, g.ooms.own.n = 0, 0
	return err
}

func (g *Group) oomEvents() (oomEvents, error) {
	control, err := os.Open(g.file("memory", "memory.oom_control"))
	if err != nil {
		return oomEvents{}, err
	}
	defer func() { _ = control.Close() }() // the kernel needs it only for the registration
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return oomEvents{}, fmt.Errorf("eventfd: %w", err)
	}
	err = os.WriteFile(g.file("memory", "cgroup.event_control"), fmt.Appendf(nil, "%d %d", fd, control.Fd()), 0)
	if err != nil {
		return oomEvents{}, errors.Join(fmt.Errorf("count when the group reaches its limit on memory: %w", err), unix.Close(fd))
	}
	return oomEvents{fd: fd}, nil
}

// count reads the counter of the group itself first. An event between the two readings is then
// counted for the group above, and the sandbox is not blamed for it.
func (c *oomCounter) count() (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := errors.Join(c.own.read(), c.above.read())
	return max(c.own.n-c.above.n, 0), err
}

func (e *oomEvents) read() error {
	var n [8]byte
	_, err := unix.Read(e.fd, n[:])
	if errors.Is(err, unix.EAGAIN) {
		return nil // none since the last time
	}
	if err != nil {
		return fmt.Errorf("read an eventfd: %w", err)
	}
	e.n += int64(binary.NativeEndian.Uint64(n[:]))
	return nil
}

func (c *oomCounter) close() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own.fd < 0 {
		return nil
	}
	err := errors.Join(unix.Close(c.own.fd), unix.Close(c.above.fd))
	c.own.fd, c.above.fd = -1, -1
	return err
}
