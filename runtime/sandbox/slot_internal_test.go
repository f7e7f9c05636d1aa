package sandbox

import (
	"context"
	"errors"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// TestSlot: waiting until other sandboxes have been made can be interrupted.
func TestSlot(t *testing.T) {
	e := &Engine{platform: Platform{Slots: make(chan struct{}, 1)}}
	release, err := e.slot(t.Context())
	must.Do(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("no more")
	cancel(over)
	_, err = e.slot(ctx)
	must.Is(t, err, over) // a second one
	release()
	_, err = e.slot(t.Context())
	must.Report(t, err) // after the first
}

// PutLayersOnDisk makes the layers of later sandboxes directories, as an ordinary user has them before Linux 6.6.
func (e *Engine) PutLayersOnDisk() { e.platform.LayersOnDisk = true }
