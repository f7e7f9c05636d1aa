package proc_test

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/proc"
)

// TestStopped: a process has stopped with the last of its threads, not with the first.
func TestStopped(t *testing.T) {
	if os.Getenv("SBENCH_TEST_THREADS") != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	goruntime.LockOSThread() // is the tracer
	cmd := exec.Command(os.Args[0], "-test.run=^TestStopped$")
	cmd.Env = append(os.Environ(), "SBENCH_TEST_THREADS=1")
	_, err := cmd.StdinPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	pid := cmd.Process.Pid
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	await := func(what string, ok func(proc.Stat) bool) {
		must.Await(t, what, func() bool { s, err := proc.ReadStat(pid); return err == nil && ok(s) })
	}
	await("threads", func(s proc.Stat) bool { return s.Number(20) > 2 })
	must.Do(t, errors.Join(unix.PtraceSeize(pid), unix.PtraceInterrupt(pid)))
	await("the first thread has stopped", func(s proc.Stat) bool { return s[0] == "t" })
	before, all := proc.Stopped(pid)
	if all {
		t.Error("all threads have stopped with the first")
	}
	must.Do(t, cmd.Process.Signal(unix.SIGSTOP))
	await("all threads have stopped", func(proc.Stat) bool { _, all := proc.Stopped(pid); return all })
	stopped, _ := proc.Stopped(pid)
	if again, _ := proc.Stopped(pid); stopped == before || again != stopped {
		t.Error("threads are counted as running that were stopped, or the other way round")
	}
}

// TestChild follows a child of this process to its end.
func TestChild(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	must.Do(t, cmd.Start())
	pid := cmd.Process.Pid
	if all, err := proc.All(); !slices.Contains(all, pid) || err != nil {
		t.Errorf("%d is not among %d processes, %v", pid, len(all), err)
	}
	// When Start returns, the kernel may not have set the arguments yet.
	must.Await(t, "its arguments", func() bool { return slices.Equal(proc.Args(pid), []string{"sleep", "1000"}) })
	s, err := proc.ReadStat(pid)
	must.Do(t, err)
	if s.Number(4) != int64(os.Getpid()) || s.Number(20) != 1 || s.Ended() {
		t.Errorf("parent %d, %d threads, ended %v", s.Number(4), s.Number(20), s.Ended())
	}
	if !proc.Ours(pid) || !proc.SharesNamespace(pid, 0, "mnt") || proc.SharesNamespace(pid, 0, "nonsense") {
		t.Error("a child shares its parent's namespaces, if they exist")
	}
	if err := proc.Signal(pid, unix.SIGKILL, func() bool { return false }); !errors.Is(err, unix.ESRCH) || !proc.Alive(pid) {
		t.Errorf("signalled as another process: %v", err)
	}
	must.Report(t, proc.Signal(pid, unix.SIGKILL, func() bool { return true }))
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
	must.Do(t, err)
	defer func() { _ = l.Close() }()
	if pid, err := proc.Listener(address, time.Second); pid != os.Getpid() || err != nil {
		t.Errorf("%d listens, %v; want %d", pid, err, os.Getpid())
	}
}
