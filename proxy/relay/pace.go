package relay

import (
	"context"

	"golang.org/x/time/rate"
)

// A Pace is how fast several relays together may ask a provider. It is safe for concurrent use.
// A nil Pace sets no bound.
type Pace struct{ turns *rate.Limiter }

// NewPace returns a pace of so many generations a minute, evenly spaced; nil for 0.
func NewPace(perMinute int64) *Pace {
	if perMinute <= 0 {
		return nil
	}
	return &Pace{rate.NewLimiter(rate.Limit(perMinute)/60, 1)}
}

// await waits for the turn of a generation of this relay. It returns false, and takes no turn, if
// ctx ends first. Only one request of a relay waits at a time, so that an agent with many requests does
// not delay other agents.
func (r *Relay) await(ctx context.Context) bool {
	if r.cfg.Pace == nil {
		return true
	}
	select {
	case r.waiting <- struct{}{}:
		defer func() { <-r.waiting }()
		return r.cfg.Pace.turns.Wait(ctx) == nil
	case <-ctx.Done():
		return false
	}
}
