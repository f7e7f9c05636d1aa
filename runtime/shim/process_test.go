package shim

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
)

// adopted starts a command and adopts its process.
func adopted(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	must.Do(t, cmd.Start())
	file := filepath.Join(t.TempDir(), "pid")
	must.Do(t, os.WriteFile(file, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600))
	p := newProcess("", "", "", nil)
	must.Do(t, p.adopt(file))
	return p
}

// TestStoppedIsNoEnd: a process that makes its parent trace it and stops has not ended.
func TestStoppedIsNoEnd(t *testing.T) {
	runtime.LockOSThread() // which traces
	defer runtime.UnlockOSThread()
	cmd := exec.Command("sleep", "100")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: unix.SIGKILL} // stops when it executes the program
	p := adopted(t, cmd)
	select {
	case <-p.done:
		t.Errorf("ended with %d", p.status)
	case <-time.After(200 * time.Millisecond):
	}
	must.Report(t, p.signal(uint32(unix.SIGKILL)))
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		t.Fatal("a killed process does not end")
	}
	must.Equal(t, killed, p.status)
}
