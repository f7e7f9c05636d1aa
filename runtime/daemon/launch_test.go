package daemon_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/daemon"
)

// TestLaunch: the error says how a program ended that was never ready, and what it wrote last.
func TestLaunch(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for script, want := range map[string]string{
		"echo 1; echo 2; echo 3; echo 4; exit 3": "ended at once (exit status 3); its last words: 2 | 3 | 4",
		"exit 0":                                 "ended at once (exit status 0); its last words: none",
		"exec sleep 100":                         "deadline exceeded; its last words: none",
		"exec /no-such-command-x":                "/no-such-command-x: not found",
	} {
		limit := time.Minute
		if strings.Contains(script, "sleep") {
			limit = 200 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		cmd := exec.Command("sh", "-c", script)
		err := daemon.Launch(ctx, cmd, log, cmd.Start, func() bool { return false })
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
	cmd := exec.Command("sh", "-c", "echo here; exec sleep 100")
	here := func() bool {
		text, err := os.ReadFile(log)
		return err == nil && string(text) == "here\n"
	}
	must.Do(t, daemon.Launch(context.Background(), cmd, log, cmd.Start, here))
	must.Report(t, cmd.Process.Kill())
}
