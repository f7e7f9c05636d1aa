package proc_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
)

// TestChild follows a child of this process to its end.
func TestChild(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if all, err := proc.All(); !slices.Contains(all, pid) || err != nil {
		t.Errorf("%d is not among %d processes, %v", pid, len(all), err)
	}
	if got := proc.Args(pid); !slices.Equal(got, []string{"sleep", "1000"}) {
		t.Errorf("arguments %q", got)
	}
	s, err := proc.ReadStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	if s.Number(4) != int64(os.Getpid()) || s.Number(20) != 1 || s.Ended() {
		t.Errorf("parent %d, %d threads, ended %v", s.Number(4), s.Number(20), s.Ended())
	}
	if !proc.Ours(pid) || !proc.SharesNamespace(pid, 0, "mnt") || proc.SharesNamespace(pid, 0, "nonsense") {
		t.Error("a child shares its parent's namespaces, if they exist")
	}
	if err := proc.Signal(pid, unix.SIGKILL, func() bool { return false }); !errors.Is(err, unix.ESRCH) || !proc.Alive(pid) {
		t.Errorf("signalled as another process: %v", err)
	}
	if err := proc.Signal(pid, unix.SIGKILL, func() bool { return true }); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if proc.Alive(pid) || proc.Args(pid) != nil {
		t.Error("alive after its end")
	}
}

func TestListener(t *testing.T) {
	address := filepath.Join(t.TempDir(), "socket")
	if pid, err := proc.Listener(address, time.Second); err == nil {
		t.Errorf("%d listens on no socket", pid)
	}
	l, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if pid, err := proc.Listener(address, time.Second); pid != os.Getpid() || err != nil {
		t.Errorf("%d listens, %v; want %d", pid, err, os.Getpid())
	}
}
