package pool

import (
	"io"
	goruntime "runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/securebench/sbench/internal/test/fake"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
)

// TestManyMessages: a result in many small messages, which a candidate can bring about, is not copied with each.
func TestManyMessages(t *testing.T) {
	_, requests := io.Pipe()
	must.Do(t, requests.Close())
	s := &sandbox{requests: requests, messages: make(chan message)}
	go func() {
		s.messages <- message{'r', make([]byte, maxResult/2)}
		for range 1000 {
			s.messages <- message{'r', []byte("x")}
		}
		s.messages <- message{'r', make([]byte, maxResult)}
		s.messages <- message{'e', []byte("exit 0")}
		s.messages <- message{'c', nil}
	}()
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	r, clean, err := s.run(t.Context(), Request{Wall: time.Minute})
	goruntime.ReadMemStats(&after)
	if copied := after.TotalAlloc - before.TotalAlloc; err != nil || !clean || len(r.Result) != maxResult || copied > 8*maxResult {
		t.Errorf("%v, %v, a result of %d bytes, %d allocated", err, clean, len(r.Result), copied)
	}
}

// TestLeftovers: a run that leaves more than can be removed in time has ended as it did, and its sandbox is not used again.
func TestLeftovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, requests := io.Pipe()
		must.Do(t, requests.Close())
		s := &sandbox{requests: requests, messages: make(chan message)}
		go func() { s.messages <- message{'e', []byte("exit 3")} }()
		if r, clean, err := s.run(t.Context(), Request{Wall: time.Minute}); err != nil || clean || r.End != "exit 3" || r.Took > time.Second {
			t.Errorf("%v, %v, %+v", err, clean, r)
		}
	})
}

// TestFull: a full pool closes the sandbox that has been idle longest, and keeps only sandboxes that it has not closed.
func TestFull(t *testing.T) {
	engine := &fake.Engine{Directory: t.TempDir()}
	p, closed, kept := New(engine), []int{}, []int{}
	number := map[*sandbox]int{}
	for i := range maxIdle + 2 {
		made, err := engine.Create(t.Context(), runtime.Config{Limits: runtime.DefaultLimits()})
		must.Do(t, err)
		stage, err := engine.NewVolume(t.Context(), runtime.VolumeConfig{Bytes: stageBytes, Inodes: stageInodes})
		must.Do(t, err)
		_, requests := io.Pipe()
		s := &sandbox{sandbox: made, stage: stage, requests: requests, messages: make(chan message), ended: make(chan struct{})}
		s.kill = func() {
			closed = append(closed, i)
			close(s.messages)
			close(s.ended)
		}
		number[s] = i
		must.Do(t, p.put(t.Context(), s))
	}
	for _, s := range p.idle {
		kept = append(kept, number[s])
	}
	if !slices.Equal(closed, []int{0, 1}) || len(kept) != maxIdle || kept[0] != 2 {
		t.Errorf("closed %v, kept %v", closed, kept)
	}
	must.Do(t, p.Close(t.Context()))
}
