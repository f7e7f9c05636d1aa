package relay

import (
	"runtime"
	"runtime/debug"
	"strings"
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

// TestManyElements: a list in an answer takes no more memory than its text, however many elements it has.
func TestManyElements(t *testing.T) {
	list := "[" + strings.Repeat("{},", 1<<19) + "{}]"
	answer := object([]byte(`{"candidates":` + list + `,"usage":{"iterations":` + list + `}}`))
	for name, read := range map[string]func(){
		"iterations": func() { counts{}.add(tallies()[messages], answer["usage"]) }, "candidates": func() { finished(answer) },
	} {
		debug.FreeOSMemory()
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		done := make(chan struct{})
		go func() { read(); close(done) }()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		most := uint64(0)
		for running := true; running; {
			select {
			case <-done:
				running = false
			case <-tick.C:
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapAlloc)
			}
		}
		if more := int64(most) - int64(before.HeapAlloc); more > 12*int64(len(list)) {
			t.Errorf("%s: %d bytes for %d", name, more, len(list))
		}
	}
}
