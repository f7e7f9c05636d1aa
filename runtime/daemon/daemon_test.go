package daemon_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/runtimetest"
	"github.com/securebench/sbench/runtime/daemon"
)

func TestMain(m *testing.M) {
	containerdtest.Enter()
	m.Run()
}

func config(t *testing.T) daemon.Config {
	t.Helper()
	if testing.Short() {
		t.Skip("the daemon tests are not short")
	}
	runtimetest.NeedMounts(t)
	dir := t.TempDir()
	return daemon.Config{Root: filepath.Join(dir, "root"), State: filepath.Join(dir, "state")}
}

// TestShared: the second user joins the first one's daemon, and only the last one to
// close it stops it.
func TestShared(t *testing.T) {
	ctx, cfg := context.Background(), config(t)
	first, err := daemon.Start(ctx, cfg)
	must.Do(t, err)
	second, err := daemon.Start(ctx, cfg)
	must.Do(t, err)
	must.Do(t, first.Close(ctx))
	if !daemon.Answers(second.Address()) {
		t.Error("the daemon was stopped while it had a user")
	}
	must.Do(t, second.Close(ctx))
	if daemon.Answers(second.Address()) {
		t.Error("the daemon outlives its last user")
	}
	third, err := daemon.Start(ctx, cfg)
	must.Do(t, err) // start again on the same directories
	must.Do(t, third.Close(ctx))
}

// TestReplaced: a daemon that cannot be used does not prevent the next start.
func TestReplaced(t *testing.T) {
	for name, spoil := range map[string]func(address string, pid int) error{
		"unheard": func(address string, _ int) error { return os.Remove(address) },       // as if its starter was killed before it listened
		"stopped": func(_ string, pid int) error { return unix.Kill(pid, unix.SIGSTOP) }, // it accepts connections, and answers nothing
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cfg := context.Background(), config(t)
			cfg.Timeout = time.Second
			first, err := daemon.Start(ctx, cfg)
			must.Do(t, err)
			found, err := daemon.Find(cfg.State)
			if err != nil || len(found) != 1 {
				t.Fatalf("found %v, %v", found, err)
			}
			must.Do(t, spoil(first.Address(), found[0]))
			second, err := daemon.Start(ctx, cfg)
			must.Do(t, err)
			if again, err := daemon.Find(cfg.State); err != nil || len(again) != 1 || again[0] == found[0] {
				t.Errorf("found %v after %v, %v", again, found, err)
			}
			must.Report(t, errors.Join(first.Close(ctx), second.Close(ctx)))
			if left, err := daemon.Find(cfg.State); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
		})
	}
}

func TestMissingPrograms(t *testing.T) {
	cfg := config(t)
	t.Setenv("PATH", t.TempDir())
	_, err := daemon.Start(context.Background(), cfg)
	if err == nil || !strings.Contains(err.Error(), `install the package "containerd"`) || !strings.Contains(err.Error(), `install the package "runc"`) {
		t.Errorf("error %v does not name the packages", err)
	}
}

func TestLongDirectory(t *testing.T) {
	cfg := config(t)
	cfg.State = filepath.Join(t.TempDir(), strings.Repeat("long", 20))
	_, err := daemon.Start(context.Background(), cfg)
	must.Tells(t, err, "choose a shorter state directory")
}
