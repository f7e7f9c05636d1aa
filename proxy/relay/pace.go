package relay

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Bounds of how a pace adapts.
const (
	maxHold   = 5 * time.Minute // that a provider may ask for
	slowAgain = time.Second     // after which another refusal slows the pace down again
	unbounded = 64              // requests at once
)

// A Pace is how fast several relays together may ask a provider. When the provider refuses a request because of its
// load, all relays wait as long as the provider asks. Then they send half as many requests at once as before. Whenever
// that many requests have been answered, they may send one more at once. A Pace is safe for concurrent use. A nil Pace
// sets no bound.
type Pace struct {
	turns *rate.Limiter // nil: no fixed bound

	mu      sync.Mutex
	until   time.Time // nothing is sent before
	slowed  time.Time
	most    int           // requests at once; 0: no bound
	open    int           // requests in progress
	good    int           // answers since most has changed
	changed chan struct{} // closed when a request ends
}

// NewPace returns a pace of at most so many requests a minute, evenly spaced; 0 means no fixed bound.
func NewPace(perMinute int64) *Pace {
	p := &Pace{changed: make(chan struct{})}
	if perMinute > 0 {
		p.turns = rate.NewLimiter(rate.Limit(perMinute)/60, 1)
	}
	return p
}

// begin waits until the provider has room for a request. The caller must call end if ok is true. It is false if ctx ends
// first.
func (p *Pace) begin(ctx context.Context) (ok bool) {
	for {
		p.mu.Lock()
		wait, changed := time.Until(p.until), p.changed
		if wait <= 0 && (p.most == 0 || p.open < p.most) {
			p.open++
			p.mu.Unlock()
			return true
		}
		p.mu.Unlock()
		var timer <-chan time.Time
		if wait > 0 {
			timer, changed = time.After(wait), nil
		}
		select {
		case <-timer:
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// turn waits for the turn of a request that has begun, and ends the request if ctx ends first.
func (p *Pace) turn(ctx context.Context) bool {
	if p.turns != nil && p.turns.Wait(ctx) != nil {
		p.end(0, 0)
		return false
	}
	return true
}

// end ends a request. status is the provider's, 0 for none, and hold how long it asks to wait.
func (p *Pace) end(status int, hold time.Duration) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case unavailable(status):
		if until := now.Add(hold); until.After(p.until) {
			p.until = until
		}
		if now.Sub(p.slowed) >= slowAgain {
			p.most, p.good, p.slowed = max(1, min(cmp.Or(p.most, p.open), p.open)/2), 0, now
		}
	case status/100 == 2 && p.most > 0:
		if p.good++; p.good >= p.most {
			p.most, p.good = p.most+1, 0
		}
		if p.most > unbounded {
			p.most = 0
		}
	}
	p.open--
	close(p.changed)
	p.changed = make(chan struct{})
}

// retryAfter returns how long a provider asks to wait, at most maxHold; 0 if it does not say.
func retryAfter(h http.Header) time.Duration {
	hold := time.Duration(0)
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		hold = time.Duration(min(max(ms, 0), 1e9) * float64(time.Millisecond))
	} else if s, err := strconv.ParseFloat(h.Get("Retry-After"), 64); err == nil {
		hold = time.Duration(min(max(s, 0), 1e6) * float64(time.Second))
	} else if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		hold = max(time.Until(at), 0)
	}
	return min(hold, maxHold)
}

// await waits for the turn of a request of this relay. Only one request of a relay waits at a time, so that an
// agent with many requests does not delay other agents. done must be called if ok is true.
func (r *Relay) await(ctx context.Context) (done func(status int, hold time.Duration), ok bool) {
	pace := r.cfg.Pace
	if pace == nil {
		return func(int, time.Duration) {}, true
	}
	select {
	case r.waiting <- struct{}{}:
		defer func() { <-r.waiting }()
	case <-ctx.Done():
		return nil, false
	}
	begun := time.Now()
	r.ledger.waiting(begun)
	ok = pace.begin(ctx)
	r.ledger.waited(begun, time.Now())
	ok = ok && pace.turn(ctx)
	return func(status int, hold time.Duration) {
		pace.end(status, hold)
		now := time.Now()
		r.ledger.waited(now, now.Add(hold)) // the agent, too, waits before it asks again
	}, ok
}
