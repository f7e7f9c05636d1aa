package relay

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// burst is how many seconds' worth of an allowance spend may use at once.
const burst = 32

// An allowance bounds the work of inspecting requests, which happens outside the sandbox's limits: one request
// at a time, by the mutex, and so many bytes per second.
type allowance struct {
	sync.Mutex
	bytes *rate.Limiter
}

func (a *allowance) usedUp() bool { return a.bytes.Tokens() <= 0 }

// spend counts n bytes, which may leave less than nothing.
func (a *allowance) spend(n int64) {
	for most := int64(a.bytes.Burst()); n > 0; n -= most { // of one reservation
		a.bytes.ReserveN(time.Now(), int(min(n, most)))
	}
}
