package sandbox

import (
	"context"
	"time"
)

// The shortest times between two counts of the same thing.
const (
	watchInterval      = 200 * time.Millisecond // the contents of a layer that is a directory
	memoryInterval     = 10 * time.Millisecond  // the sandbox's memory, and the memory of all connections of the host
	connectionInterval = 50 * time.Millisecond  // the connections of a network namespace, while the host has many
	idleInterval       = 500 * time.Millisecond // the same, while the host has few
)

// unbounded returns a channel that is closed once the sandbox has too much memory that no control
// group bounds: more than 16 MiB, and more than a sixteenth of the sandbox's limit. Two kinds of
// memory are not bounded:
//
//   - connections, which are charged to no group;
//   - data that the kernel accepts beyond a group's limit, such as the first datagram in each UDP
//     socket on Linux 7.2 (__sk_mem_raise_allocated in net/core/sock.c).
//
// If two sandboxes share a network namespace, its sockets count for the sandbox that made it, while
// that sandbox runs a process.
func (x *execution) unbounded(ctx context.Context) <-chan struct{} {
	limit := max(x.s.cfg.Limits.Memory/16, 16<<20)
	uncounted := x.uncounted(limit)
	return watch(ctx, memoryInterval, func() bool {
		return uncounted()+x.s.engine.platform.Limits.Excess(x.s.group, x.s.cfg.Limits) > limit
	})
}

// uncounted returns a function that returns how much memory, in bytes, the sandbox's sockets use
// that is charged to no group. To count the connections of a namespace takes long; the memory of
// all connections of the host is quick to read. So the function counts the namespace's connections
// every idleInterval, or every connectionInterval while the host's use at least limit. It counts
// them at once if the host's have grown by half of limit.
func (x *execution) uncounted(limit int64) func() int64 {
	if x.s.cfg.NetworkOf != nil {
		return func() int64 { return 0 } // the other sandbox counts them
	}
	space := x.s.netns             // Close clears the field, perhaps before the last count has ended
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
func (x *execution) overflow(ctx context.Context) <-chan struct{} {
	layer := x.s.layer
	if layer.Bounded() {
		return nil
	}
	return watch(ctx, watchInterval, func() bool {
		pids, _ := x.s.group.Pids() // without them, only files with a name are counted
		return layer.Exceeded(pids) && ctx.Err() == nil
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
