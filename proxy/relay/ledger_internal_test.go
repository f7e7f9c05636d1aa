package relay

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWaits: a request waits from its beginning, though the provider asks another one to wait meanwhile.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(Config{})
		for _, want := range []float64{70, 140} {
			begun := time.Now()
			l.waiting(begun)
			time.Sleep(10 * time.Second)
			l.waited(time.Now(), time.Now().Add(time.Minute))
			time.Sleep(time.Minute)
			l.waited(begun, time.Now())
			if got := l.snapshot().ProviderWait; got != want {
				t.Errorf("waited %v seconds, want %v", got, want)
			}
			time.Sleep(time.Hour)
		}
	})
}
