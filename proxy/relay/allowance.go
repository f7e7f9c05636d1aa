package relay

import (
	"sync"
	"time"
)

// burst is how many seconds' worth of an allowance may be spent at once.
const burst = 32

// An allowance bounds the work on requests, which is outside the sandbox's quota: one
// request at a time, and so many bytes a second.
type allowance struct {
	rate int64 // bytes a second

	mu    sync.Mutex
	left  int64     // bytes; below 0 after a request that took more
	since time.Time // of left; zero: nothing was spent yet
}

// spend calls work, which returns the bytes that it went through, or refuses to as
// long as nothing is left.
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
