package proc

import (
	"context"
	"time"
)

// Processes have settled once they need less than settledCPU in settleTime. settleLimit bounds the wait for that.
const (
	settledCPU  = 10 * time.Millisecond
	settleTime  = 250 * time.Millisecond
	settleLimit = 5 * time.Second
)

// Settle waits until processes have settled: servers that are starting need CPU time, and servers that wait for requests
// need almost none. It returns after five seconds at the latest, and as soon as ctx is done or enough is closed. used
// returns the CPU time that the processes have used so far.
func Settle(ctx context.Context, enough <-chan struct{}, used func() time.Duration) {
	end := time.Now().Add(settleLimit)
	for before := used(); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return
		case <-enough:
			return
		case <-time.After(settleTime):
		}
		now := used()
		if now-before < settledCPU {
			return
		}
		before = now
	}
}

// Used returns the CPU time that the processes in this process's PID namespace, and the children that they have waited
// for, have used so far.
func Used() (used time.Duration) {
	_ = Each(func(pid int) {
		if s, err := ReadStat(pid); err == nil {
			used += s.Time(14, 15, 16, 17)
		}
	})
	return used
}
