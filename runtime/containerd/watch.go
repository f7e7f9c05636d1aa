package containerd

import (
	"context"
	"time"
)

// watchInterval is the least time between two counts of a directory's contents,
// socketInterval between two counts of socket memory.
const (
	watchInterval  = 200 * time.Millisecond
	socketInterval = 50 * time.Millisecond
)

// uncounted returns a channel that is closed once the sandbox's connections use too much
// memory that is charged to no control group: more than 16 MiB and more than a sixteenth of
// the sandbox's memory limit. Connections of a namespace that two sandboxes share count for its
// owner, while that runs a process.
func (s *Sandbox) uncounted(ctx context.Context) <-chan struct{} {
	if s.cfg.Beside != nil {
		return nil // the other sandbox counts them
	}
	space, limit := s.netns, max(s.cfg.Limits.Memory/16, 16<<20)
	return watch(ctx, socketInterval, func() bool {
		bytes, err := space.Uncounted()
		return err == nil && bytes > limit // an error means that the kernel is short of memory for a moment
	})
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
