package relay

import (
	"sync"
	"time"
)

// burst is how many seconds' worth of an allowance may be spent at once.
const burst = 32

// An allowance bounds the work of inspecting requests, which the sandbox's own limits do not
// cover: one request at a time, and rate bytes per second.
type allowance struct {
	rate int64 // bytes per second

	mu    sync.Mutex
	left  int64     // bytes; below 0 after a request that took more
	since time.Time // when left was computed; zero: never
}

// spend calls work, which returns how many bytes it processed. If nothing is left, spend
// returns errTooMuch instead.
func (a *allowance) spend(work func() int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, full := time.Now(), a.rate*burst
	if a.since.IsZero() {
		a.left = full
	} else {
		a.left = min(full, a.left+int64(now.Sub(a.since).Seconds()*float64(a.rate)))
	}
	a.since = now
	if a.left <= 0 {
		return errTooMuch
	}
	a.left -= work()
	return nil
}
