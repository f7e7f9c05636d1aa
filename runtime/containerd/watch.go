package containerd

import (
	"context"
	"time"

	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/netns"
)

// The least times between two counts: of a directory's contents; of a sandbox's memory and that of
// all the host's connections; and of a namespace's connections, unless those of the host have grown.
const (
	watchInterval      = 200 * time.Millisecond
	memoryInterval     = 10 * time.Millisecond
	connectionInterval = 50 * time.Millisecond
)

// unbounded returns a channel that is closed once the sandbox's memory that no control group bounds
// exceeds both 16 MiB and a sixteenth of its limit: connections that are charged to no group, and
// data that the kernel accepts beyond a group's limit, such as the first datagram in each UDP socket
// on Linux 7.2 (__sk_mem_raise_allocated in net/core/sock.c).
// Connections of a namespace that two sandboxes share count for its owner, while that runs a
// process.
func (s *Sandbox) unbounded(ctx context.Context) <-chan struct{} {
	limit := max(s.cfg.Limits.Memory/16, 16<<20)
	connections := s.connections(limit)
	return watch(ctx, memoryInterval, func() bool {
		return connections()+s.excess() > limit
	})
}

// excess returns by how many bytes the sandbox's memory exceeds its limit, 0 if that is unknown.
// With control groups version 1 only data in sockets can. At that limit the kernel kills nothing,
// but slows down programs with many connections. So here they may have twice maxSocketBytes, but
// no more than the sandbox's memory.
func (s *Sandbox) excess() int64 {
	g, ok := s.group.(cgroup.Group)
	if !ok {
		return 0
	}
	used, err := g.SocketCharge()
	if err != nil {
		return 0
	}
	limit := s.cfg.Limits.Memory
	if s.run.c.cgroups.CountsSocketsApart() {
		limit = min(limit, 2*maxSocketBytes)
	}
	return max(used-limit, 0)
}

// connections returns a function that returns how much memory, in bytes, the sandbox's
// connections use that is charged to no group. That takes long to count, so it is counted only
// while the connections of the whole host, which are quick to count, use at least limit; and then
// every connectionInterval, or sooner if they have grown by half of limit.
func (s *Sandbox) connections(limit int64) func() int64 {
	if s.cfg.Beside != nil {
		return func() int64 { return 0 } // the other sandbox counts them
	}
	space := s.netns // Close clears the field, perhaps before the last count has ended
	var uncounted, then int64
	var asked time.Time
	return func() int64 {
		host, err := netns.TCPMemory() // 0 after an error
		switch {
		case err == nil && host < limit:
			return 0
		case host < then+limit/2 && time.Since(asked) < connectionInterval:
			return uncounted
		}
		// An error means that the kernel is short of memory for a moment.
		if n, err := space.Uncounted(); err == nil {
			uncounted, then, asked = n, host, time.Now()
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
