package relay

import (
	"context"
	"time"
)

// A Pace is how fast several relays together may ask a provider. It is safe for concurrent use.
// A nil Pace sets no bound.
type Pace struct {
	every time.Duration  // between two generations
	next  chan time.Time // holds when the next may begin, while nobody waits for that
}

// NewPace returns a pace of so many generations a minute; nil for 0.
func NewPace(perMinute int64) *Pace {
	if perMinute <= 0 {
		return nil
	}
	p := &Pace{every: time.Minute / time.Duration(perMinute), next: make(chan time.Time, 1)}
	p.next <- time.Time{}
	return p
}

// wait waits for the turn of a generation. It returns false, and takes no turn, if ctx ends
// before.
func (p *Pace) wait(ctx context.Context) bool {
	select {
	case at := <-p.next:
		select {
		case <-time.After(time.Until(at)):
			p.next <- time.Now().Add(p.every)
			return true
		case <-ctx.Done():
			p.next <- at
		}
	case <-ctx.Done():
	}
	return false
}

// await waits for the turn of a generation of this relay. One request of a relay waits at a time,
// so that an agent with many requests keeps no other from its turn.
func (r *Relay) await(ctx context.Context) bool {
	if r.cfg.Pace == nil {
		return true
	}
	select {
	case r.waiting <- struct{}{}:
		defer func() { <-r.waiting }()
		return r.cfg.Pace.wait(ctx)
	case <-ctx.Done():
		return false
	}
}
