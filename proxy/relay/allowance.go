package relay

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// burst is how many seconds' worth of an allowance spend may use at once.
const burst = 32

// An allowance bounds the work of inspecting requests, which happens outside the sandbox's limits: one request
// at a time, and so many bytes per second.
type allowance struct {
	mu    sync.Mutex
	bytes *rate.Limiter
}

// spend calls work, which returns how many bytes it processed. If the allowance is used up, spend
// returns errTooMuch instead.
func (a *allowance) spend(work func() int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bytes.Tokens() <= 0 {
		return errTooMuch
	}
	most := int64(a.bytes.Burst()) // of one reservation; all together may leave less than nothing
	for left := work(); left > 0; left -= most {
		a.bytes.ReserveN(time.Now(), int(min(left, most)))
	}
	return nil
}
