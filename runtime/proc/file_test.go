package proc_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/runtime/proc"
)

func TestReadWrite(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pid")
	if pid, ok := proc.ReadFile(name); ok {
		t.Errorf("read %d of no file", pid)
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := proc.WriteFile(name, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if pid, ok := proc.ReadFile(name); !ok || pid != cmd.Process.Pid || !proc.Alive(pid) {
		t.Errorf("%d %v", pid, ok)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if pid, ok := proc.ReadFile(name); ok || proc.Alive(cmd.Process.Pid) {
		t.Errorf("%d has ended", pid)
	}
	if err := proc.WriteFile(name, cmd.Process.Pid); err == nil {
		t.Error("a file of a process that has ended")
	}
}

// TestReused: another process with the same id is not taken for the recorded one.
func TestReused(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pid")
	if err := proc.WriteFile(name, os.Getpid()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	started := strings.Fields(string(text))[1]
	for _, forged := range []string{fmt.Sprint(os.Getpid(), " ", started, "1"), fmt.Sprint(os.Getpid()), "x " + started, "", "1 2 3"} {
		if err := os.WriteFile(name, []byte(forged), 0o600); err != nil {
			t.Fatal(err)
		}
		if pid, ok := proc.ReadFile(name); ok {
			t.Errorf("%q is taken for %d", forged, pid)
		}
	}
}
