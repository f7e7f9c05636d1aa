package proc_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/proc"
)

func TestReadWrite(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pid")
	if pid, ok := proc.ReadFile(name); ok {
		t.Errorf("read %d of no file", pid)
	}
	cmd := exec.Command("sleep", "1000")
	must.Do(t, cmd.Start())
	must.Do(t, proc.WriteFile(name, cmd.Process.Pid))
	if pid, ok := proc.ReadFile(name); !ok || pid != cmd.Process.Pid || !proc.Alive(pid) {
		t.Errorf("%d %v", pid, ok)
	}
	must.Do(t, cmd.Process.Kill())
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
	must.Do(t, proc.WriteFile(name, os.Getpid()))
	text := must.Read(t, name)
	started := strings.Fields(string(text))[1]
	for _, forged := range []string{fmt.Sprint(os.Getpid(), " ", started, "1"), fmt.Sprint(os.Getpid()), "x " + started, "", "1 2 3"} {
		must.Do(t, os.WriteFile(name, []byte(forged), 0o600))
		if pid, ok := proc.ReadFile(name); ok {
			t.Errorf("%q is taken for %d", forged, pid)
		}
	}
}
