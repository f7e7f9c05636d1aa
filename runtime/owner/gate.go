package owner

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/securebench/sbench/runtime/filelock"
)

// slowGate is after how long a wait at the gate is logged.
const slowGate = 2 * time.Second

// enter locks the gate of a state directory: exclusively for a collection, and shared for those who make
// something that a collection would take for a leftover. The caller closes the file.
func enter(ctx context.Context, log *slog.Logger, state string, mode filelock.Mode) (*os.File, error) {
	name := filepath.Join(state, "gc.lock")
	slow := time.AfterFunc(slowGate, func() {
		log.Warn("waiting for another sbench, which starts a run or removes what runs left behind", "lock", name)
	})
	defer slow.Stop()
	return filelock.Acquire(ctx, name, mode)
}
