package owner

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/filelock"
)

// TestGateSaysThatItWaits: who waits for another sbench learns it, and for which lock.
func TestGateSaysThatItWaits(t *testing.T) {
	dir := t.TempDir()
	said := make(lines, 1)
	log := slog.New(slog.NewTextHandler(said, nil))
	held, err := enter(t.Context(), log, dir, filelock.Exclusive)
	must.Do(t, err)
	defer func() { _ = held.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		select {
		case line := <-said:
			said <- line
		case <-ctx.Done():
		}
		cancel()
	}()
	if f, err := enter(ctx, log, dir, filelock.Shared); err == nil {
		_ = f.Close()
		t.Error("the gate is open although it is held")
	}
	select {
	case line := <-said:
		if !strings.Contains(line, "waiting for another sbench") || !strings.Contains(line, dir) {
			t.Errorf("said %q", line)
		}
	default:
		t.Error("waited without a word")
	}
}

// lines is a writer that passes on what is written.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}
