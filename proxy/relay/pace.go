package relay

import (
	"context"
	"sync"
	"time"
)

// A Pace is how fast several relays together may ask a provider. It is safe for concurrent use.
// A nil Pace sets no bound.
type Pace struct {
	every time.Duration // between two generations

	mu   sync.Mutex
	next time.Time // when the next may begin
}

// NewPace returns a pace of so many generations a minute; nil for 0.
func NewPace(perMinute int64) *Pace {
	if perMinute <= 0 {
		return nil
	}
	return &Pace{every: time.Minute / time.Duration(perMinute)}
}

// wait waits for the turn of a generation. It returns false if ctx ends before.
func (p *Pace) wait(ctx context.Context) bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	now := time.Now()
	turn := p.next
	if turn.Before(now) {
		turn = now
	}
	p.next = turn.Add(p.every)
	p.mu.Unlock()
	select {
	case <-time.After(turn.Sub(now)):
		return true
	case <-ctx.Done():
		return false
	}
}
