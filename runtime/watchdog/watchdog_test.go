package watchdog_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/runtimetest"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/watchdog"
)

func TestMain(m *testing.M) {
	containerdtest.Enter()
	m.Run()
}

// start runs a script in a new PID namespace and watches it.
func start(t *testing.T, l runtime.Limits, held func() int64, script string) (*watchdog.Group, *exec.Cmd) {
	t.Helper()
	runtimetest.NeedMounts(t)
	cmd := exec.Command("sh", "-c", script)
	// Root of a new user namespace, whose host id is not 0.
	ids := []syscall.SysProcIDMap{{HostID: 1, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID, UidMappings: ids, GidMappings: ids, Pdeathsig: unix.SIGKILL,
		Credential: &syscall.Credential{NoSetGroups: true},
	}
	must.Do(t, cmd.Start())
	var w watchdog.Watchdog
	g := w.Group(l, held)
	t.Cleanup(func() {
		killAll(t, g, 0)
		_ = cmd.Wait()
		must.Report(t, g.Remove())
	})
	must.Do(t, g.Attach(cmd.Process.Pid))
	return g, cmd
}

func killAll(t *testing.T, g *watchdog.Group, spare int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must.Report(t, g.KillAll(ctx, spare))
}

func count(t *testing.T, g *watchdog.Group) int {
	t.Helper()
	pids, err := g.Pids()
	must.Do(t, err)
	return len(pids)
}

// TestKill: the group consists of all processes in the PID namespace, whatever session
// they are in, and of no others.
func TestKill(t *testing.T) {
	g, cmd := start(t, runtime.Limits{}, nil, "setsid sleep 1000 & (trap '' TERM; while :; do sleep 1; done) & exec sleep 1000")
	must.Await(t, "all of it is seen", func() bool { return count(t, g) >= 4 })
	pids, err := g.Pids()
	if err != nil || !slices.Contains(pids, cmd.Process.Pid) || slices.Contains(pids, os.Getpid()) {
		t.Errorf("%v %v", pids, err)
	}
	killAll(t, g, cmd.Process.Pid)
	if n := count(t, g); n != 1 {
		t.Errorf("%d are alive, one was to be", n)
	}
	killAll(t, g, 0)
	if n := count(t, g); n != 0 {
		t.Errorf("%d are alive", n)
	}
}

// TestFreeze: a group that forks as fast as it can is suspended as a whole, and resumed.
func TestFreeze(t *testing.T) {
	g, _ := start(t, runtime.Limits{}, nil, "while :; do (:); done & while :; do (:) & wait; done")
	must.Await(t, "it forks", func() bool { return count(t, g) > 2 })
	running := func() (n int) {
		pids, err := g.Pids()
		must.Do(t, err)
		for _, pid := range pids {
			if _, stopped := proc.Stopped(pid); !stopped {
				n++
			}
		}
		return n
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := g.Freeze(ctx, true); err != nil || running() > 0 {
		t.Errorf("%d run: %v", running(), err)
	}
	must.Report(t, g.Freeze(ctx, false))
	must.Await(t, "it runs again", func() bool { return running() > 0 })
}

// TestKillForks: a group of forty processes that fork as fast as they can is killed too.
func TestKillForks(t *testing.T) {
	g, _ := start(t, runtime.Limits{}, nil, "for i in $(seq 40); do (while :; do (:) & wait; done) & done; wait")
	must.Await(t, "it forks", func() bool { return count(t, g) > 20 })
	killAll(t, g, 0)
}

func stats(t *testing.T, g *watchdog.Group) cgroup.Stats {
	t.Helper()
	s, err := g.Stats()
	must.Do(t, err)
	return s
}

// TestMemory: the process that uses the most memory is killed, and no other.
func TestMemory(t *testing.T) {
	g, _ := start(t, runtime.Limits{Memory: 100 << 20}, nil, "sleep 1000 & tail /dev/zero & while :; do sleep 1; done")
	must.Await(t, "the kill", func() bool { return stats(t, g).OOMKills > 0 })
	must.Await(t, "the others are left", func() bool { n := count(t, g); return n == 2 || n == 3 })
	if s := stats(t, g); s.OOMKills != 1 || s.PeakMemory < 100<<20 || s.CPU <= 0 {
		t.Errorf("%+v", s)
	}
}

// TestSharedMemory: memory that processes share counts once.
func TestSharedMemory(t *testing.T) {
	const script = `exec python3 -c '
import os, time
b = bytearray(60 << 20)
for i in range(5):
    if os.fork() == 0: time.sleep(1000)
time.sleep(1000)'`
	g, _ := start(t, runtime.Limits{Memory: 150 << 20}, nil, script)
	must.Await(t, "six processes", func() bool { return count(t, g) == 6 && stats(t, g).PeakPids >= 6 })
	if s := stats(t, g); s.OOMKills != 0 || s.PeakMemory > 150<<20 {
		t.Errorf("%+v", s)
	}
}

// TestHeld: what is held counts toward the memory limit even after all processes have ended.
func TestHeld(t *testing.T) {
	var held atomic.Int64
	g, _ := start(t, runtime.Limits{Memory: 100 << 20}, held.Load, "exit")
	must.Await(t, "its end", func() bool { return count(t, g) == 0 })
	g.Final()
	must.Equal(t, 0, stats(t, g).OOMKills)
	held.Store(200 << 20)
	g.Final()
	must.Equal(t, 1, stats(t, g).OOMKills)
}

// TestPids: a group that is near its process limit does not count as refused a process.
func TestPids(t *testing.T) {
	const script = "for i in $(seq %d); do sleep 1000 & done; wait"
	near, _ := start(t, runtime.Limits{Pids: 32}, nil, fmt.Sprintf(script, 30))
	must.Await(t, "it is near", near.NearPids)
	must.Equal(t, 0, stats(t, near).PidsDenied)
	full, _ := start(t, runtime.Limits{Pids: 32}, nil, fmt.Sprintf(script, 31))
	must.Await(t, "it is full", func() bool { return stats(t, full).PidsDenied > 0 })
}

// TestVforkMemory: the child of a vfork shares its parent's memory, which counts once.
func TestVforkMemory(t *testing.T) {
	const script = `exec python3 -c '
import os, subprocess
b = bytearray(60 << 20)
for i in range(200): subprocess.run(["/bin/true"])
os.execvp("sleep", ["sleep", "1000"])'`
	g, cmd := start(t, runtime.Limits{Memory: 100 << 20}, nil, script)
	must.Await(t, "it is through", func() bool {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		return err != nil || string(name) == "sleep\n" || count(t, g) == 0
	})
	if s := stats(t, g); s.OOMKills != 0 || s.PeakMemory > 100<<20 {
		t.Errorf("%+v", s)
	}
}

// TestMemoryOfZombie: memory counts even if the process's first thread has ended and
// another thread uses it.
func TestMemoryOfZombie(t *testing.T) {
	const script = `python3 -c '
import ctypes, threading, time
def use():
    b = bytearray()
    for i in range(300):
        b += bytearray(1 << 20)
        time.sleep(.01)
    time.sleep(1000)
threading.Thread(target=use).start()
ctypes.CDLL(None).syscall(60, 0)' & wait; sleep 1000`
	if goruntime.GOARCH != "amd64" {
		t.Skip("the number of exit is amd64's")
	}
	g, _ := start(t, runtime.Limits{Memory: 100 << 20}, nil, script)
	must.Await(t, "the kill", func() bool { return stats(t, g).OOMKills > 0 })
}

func TestAttachRefusesOurOwn(t *testing.T) {
	var w watchdog.Watchdog
	if err := w.Group(runtime.Limits{}, nil).Attach(os.Getpid()); err == nil {
		t.Error("a group of everything")
	}
}

// TestNamespaceNumberReused: while a group exists, the kernel does not give its
// namespace's inode number to another namespace, even after all its processes have ended.
func TestNamespaceNumberReused(t *testing.T) {
	old, _ := start(t, runtime.Limits{Memory: 100 << 20}, func() int64 { return 200 << 20 }, "exit")
	must.Await(t, "its end", func() bool { return count(t, old) == 0 })
	for range 20 {
		next, _ := start(t, runtime.Limits{}, nil, "exec sleep 1000")
		must.Await(t, "the next is there", func() bool { return count(t, next) == 1 })
		if n := count(t, old); n != 0 {
			t.Fatalf("%d processes of another are in it", n)
		}
		killAll(t, next, 0)
	}
}
