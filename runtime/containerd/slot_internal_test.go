package containerd

import (
	"context"
	"errors"
	"testing"
)

// TestSlot: waiting until other sandboxes have been made can be interrupted.
func TestSlot(t *testing.T) {
	c := &Client{setup: make(chan struct{}, 1)}
	release, err := c.slot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("no more")
	cancel(over)
	if _, err := c.slot(ctx); !errors.Is(err, over) {
		t.Errorf("a second one: %v", err)
	}
	release()
	if _, err := c.slot(t.Context()); err != nil {
		t.Errorf("after the first: %v", err)
	}
}
