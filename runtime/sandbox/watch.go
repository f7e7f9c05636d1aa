package sandbox

import (
	"context"
	"time"
)

// watchInterval is the shortest time between two counts of a layer's contents.
const watchInterval = 200 * time.Millisecond

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
