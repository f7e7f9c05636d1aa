package sandbox

import (
	"context"
	"time"
)

// watchInterval is the shortest time between two counts of a layer's contents.
const watchInterval = 200 * time.Millisecond

// overflow returns a channel that is closed once the contents of a layer that is only a
// directory exceed its size or cannot be counted, unless ctx is done first. If the kernel bounds
// the layer, the channel is nil. If a count takes long, the next one waits four times as long.
func (s *Sandbox) overflow(ctx context.Context) <-chan struct{} {
	layer, group := s.layer, s.group
	if layer.Bounded() {
		return nil
	}
	reached := make(chan struct{})
	go func() {
		wait := watchInterval
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			begun := time.Now()
			pids, _ := group.Pids() // without them, only files with a name are counted
			if layer.Exceeded(pids) && ctx.Err() == nil {
				close(reached)
				return
			}
			wait = max(watchInterval, 4*time.Since(begun))
		}
	}()
	return reached
}
