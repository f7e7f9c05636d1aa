package containerd

import (
	"context"
	"time"

	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/netns"
)

// The least times between two counts: of a directory's contents, of a sandbox's memory and that of
// all the host's connections, and of a namespace's connections, which takes the kernel longer.
const (
	watchInterval      = 200 * time.Millisecond
	memoryInterval     = 10 * time.Millisecond
	connectionInterval = 50 * time.Millisecond
)

// unbounded returns a channel that is closed once the sandbox uses more memory, by more than 16
// MiB and more than a sixteenth of its limit, than its control group lets it have: connections
// that are charged to no group, and data that the kernel takes over a group's limit, such as the
// first datagram in each UDP socket on Linux 7.2 (__sk_mem_raise_allocated in net/core/sock.c).
// Connections of a namespace that two sandboxes share count for its owner, while that runs a
// process.
func (s *Sandbox) unbounded(ctx context.Context) <-chan struct{} {
	limit := max(s.cfg.Limits.Memory/16, 16<<20)
	connections := s.connections(limit)
	return watch(ctx, memoryInterval, func() bool {
		return connections()+s.excess() > limit
	})
}

// excess returns by how many bytes the sandbox's memory is over its limit, 0 if that is unknown.
// On control groups version 1 only data in sockets can be over a limit. There no process is killed
// for that, which slows programs with many connections down; so they may have twice as much.
func (s *Sandbox) excess() int64 {
	g, ok := s.group.(cgroup.Group)
	if !ok {
		return 0
	}
	used, err := g.Sockets()
	if err != nil {
		return 0
	}
	limit := s.cfg.Limits.Memory
	if s.run.c.cgroups.CountsSocketsApart() {
		limit = min(limit, 2*socketBytes)
	}
	return max(used-limit, 0)
}

// connections returns a function that returns how much memory, in bytes, the sandbox's
// connections use that is charged to no group. It asks the kernel again if its last answer is old,
// or if all of the host's connections have since grown by half of limit, which is quick to know,
// unless all of them use less than limit.
func (s *Sandbox) connections(limit int64) func() int64 {
	if s.cfg.Beside != nil {
		return func() int64 { return 0 } // the other sandbox counts them
	}
	var uncounted, then int64
	var asked time.Time
	return func() int64 {
		all, err := netns.TCPMemory()
		switch {
		case err != nil:
		case all < limit:
			return 0
		case all < then+limit/2 && time.Since(asked) < connectionInterval:
			return uncounted
		}
		// An error means that the kernel is short of memory for a moment.
		if n, err := s.netns.Uncounted(); err == nil {
			uncounted, then, asked = n, all, time.Now()
		}
		return uncounted
	}
}

// overflow returns a channel that is closed once the contents of a layer that is only a
// directory exceed its size or cannot be counted. For other layers, which the kernel bounds,
// it stays open.
func (s *Sandbox) overflow(ctx context.Context) <-chan struct{} {
	layer := s.layer
	if layer.Bounded() {
		return nil
	}
	return watch(ctx, watchInterval, func() bool {
		pids, _ := s.group.Pids() // without them, only files with a name are counted
		return layer.Over(pids) && ctx.Err() == nil
	})
}

// watch returns a channel that is closed once over returns true, unless ctx is done first.
// It waits at least interval before each call, longer if they take long.
func watch(ctx context.Context, interval time.Duration, over func() bool) <-chan struct{} {
	reached := make(chan struct{})
	go func() {
		wait := interval
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			begun := time.Now()
			if over() {
				close(reached)
				return
			}
			wait = max(interval, 4*time.Since(begun))
		}
	}()
	return reached
}
