package containerd

import (
	"context"
	"time"
)

// The least times between two counts: of a directory's contents; of a sandbox's memory and sockets,
// and of the memory of all the host's connections; and of a namespace's connections, unless those of
// the host have grown. If they are few, those of a namespace are counted every idleInterval.
const (
	watchInterval      = 200 * time.Millisecond
	memoryInterval     = 10 * time.Millisecond
	connectionInterval = 50 * time.Millisecond
	idleInterval       = 500 * time.Millisecond
)

// unbounded returns a channel that is closed once the sandbox's memory that no control group bounds
// exceeds both 16 MiB and a sixteenth of its limit: connections that are charged to no group, and
// data that the kernel accepts beyond a group's limit, such as the first datagram in each UDP socket
// on Linux 7.2 (__sk_mem_raise_allocated in net/core/sock.c). Sockets of a namespace that two
// sandboxes share count for its owner, while that runs a process.
func (s *Sandbox) unbounded(ctx context.Context) <-chan struct{} {
	limit := max(s.cfg.Limits.Memory/16, 16<<20)
	uncounted := s.uncounted(limit)
	return watch(ctx, memoryInterval, func() bool {
		return uncounted()+s.run.c.limits.Excess(s.group, s.cfg.Limits) > limit
	})
}

// uncounted returns a function that returns how much memory, in bytes, the sandbox's sockets use
// that is charged to no group. Connections take long to count. So they are counted every
// idleInterval; while those of the whole host, which are quick to count, use at least limit, every
// connectionInterval; and at once if these have grown by half of limit.
func (s *Sandbox) uncounted(limit int64) func() int64 {
	if s.cfg.Beside != nil {
		return func() int64 { return 0 } // the other sandbox counts them
	}
	space := s.netns               // Close clears the field, perhaps before the last count has ended
	_, then, _ := space.Estimate() // 0 after an error
	counted, asked := int64(0), time.Now()
	return func() int64 {
		own, host, err := space.Estimate()
		interval := connectionInterval
		if err == nil && host < limit {
			interval = idleInterval
		}
		if host >= then+limit/2 || time.Since(asked) >= interval {
			// An error means that the kernel is short of memory for a moment.
			if n, err := space.Uncounted(); err == nil {
				counted, then, asked = n, host, time.Now()
			}
		}
		return max(own, counted)
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
