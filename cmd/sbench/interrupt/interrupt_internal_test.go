package interrupt

import (
	"context"
	"io"
	"testing"
)

// TestBetweenRuns: a signal between two runs of a command stops the second, and the next signal cancels the context.
func TestBetweenRuns(t *testing.T) {
	i := &Interruption{say: io.Discard}
	i.ctx, i.cancel = context.WithCancel(t.Context())
	_ = i.Graceful() // the first run, which ends
	i.interrupt()
	select {
	case <-i.Graceful():
	default:
		t.Error("the second run does not stop")
	}
	if i.ctx.Err() != nil {
		t.Error("the context is canceled by the first signal")
	}
	if i.interrupt(); i.ctx.Err() == nil {
		t.Error("the second signal does not cancel the context")
	}
}
