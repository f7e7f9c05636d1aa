package relay

import (
	"sync"
	"time"
)

// burst is how many seconds' worth of an allowance spend may use at once.
const burst = 32

// An allowance bounds the work of inspecting requests, which happens outside the sandbox's limits:
// one request at a time, and rate bytes per second.
type allowance struct {
	rate int64 // bytes per second

	mu        sync.Mutex
	remaining int64     // bytes; below 0 after a request that took more
	since     time.Time // when remaining was computed; zero: never
}

// spend calls work, which returns how many bytes it processed. If the allowance is used up, spend
// returns errTooMuch instead.
func (a *allowance) spend(work func() int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, full := time.Now(), a.rate*burst
	if a.since.IsZero() {
		a.remaining = full
	} else {
		a.remaining = min(full, a.remaining+int64(now.Sub(a.since).Seconds()*float64(a.rate)))
	}
	a.since = now
	if a.remaining <= 0 {
		return errTooMuch
	}
	a.remaining -= work()
	return nil
}
