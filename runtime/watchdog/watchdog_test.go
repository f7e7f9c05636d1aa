package watchdog_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/containerd/containerdtest"
	"github.com/securebench/sbench/runtime/watchdog"
)

func TestMain(m *testing.M) {
	containerdtest.Enter()
	os.Exit(m.Run())
}

// start runs a script in a pid namespace of its own and watches it.
func start(t *testing.T, l watchdog.Limits, script string) (*watchdog.Group, *exec.Cmd) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root, which CI must have")
		}
		t.Skip("needs root")
	}
	cmd := exec.Command("sh", "-c", script)
	// In a user namespace of its own root too is bound by "ulimit -u".
	ids := []syscall.SysProcIDMap{{Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID, UidMappings: ids, GidMappings: ids, Pdeathsig: unix.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var w watchdog.Watchdog
	g := w.Group(l)
	t.Cleanup(func() {
		killAll(t, g, 0)
		_ = cmd.Wait()
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	if err := g.Attach(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return g, cmd
}

func killAll(t *testing.T, g *watchdog.Group, spare int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := g.KillAll(ctx, spare); err != nil {
		t.Error(err)
	}
}

// await polls: what other processes do cannot be awaited otherwise.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

func count(t *testing.T, g *watchdog.Group) int {
	t.Helper()
	pids, err := g.Pids()
	if err != nil {
		t.Fatal(err)
	}
	return len(pids)
}

// TestKill: the group is the whole pid namespace, whatever session its processes
// are in, and nothing else.
func TestKill(t *testing.T) {
	g, cmd := start(t, watchdog.Limits{}, "setsid sleep 1000 & (trap '' TERM; while :; do sleep 1; done) & exec sleep 1000")
	await(t, "all of it is seen", func() bool { return count(t, g) >= 4 })
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

// TestKillForks: a group that forks as fast as it can is killed too.
func TestKillForks(t *testing.T) {
	g, _ := start(t, watchdog.Limits{}, "ulimit -u 300; while :; do (while :; do (:) & (:) & done) & sleep .01; done 2> /dev/null")
	await(t, "it forks", func() bool { return count(t, g) > 20 })
	killAll(t, g, 0)
}

// TestMemory: who has the most is killed, and only that.
func TestMemory(t *testing.T) {
	g, _ := start(t, watchdog.Limits{Memory: 100 << 20}, "sleep 1000 & tail /dev/zero & while :; do sleep 1; done")
	await(t, "the kill", func() bool { return g.Stats().OOMKills > 0 })
	await(t, "the others are left", func() bool { n := count(t, g); return n == 2 || n == 3 })
	if s := g.Stats(); s.OOMKills != 1 || s.PeakMemory < 100<<20 || s.CPU <= 0 {
		t.Errorf("%+v", s)
	}
}

// TestSharedMemory: what processes share counts once.
func TestSharedMemory(t *testing.T) {
	const script = `exec python3 -c '
import os, time
b = bytearray(60 << 20)
for i in range(5):
    if os.fork() == 0: time.sleep(1000)
time.sleep(1000)'`
	g, _ := start(t, watchdog.Limits{Memory: 150 << 20}, script)
	await(t, "six processes", func() bool { return count(t, g) == 6 && g.Stats().PeakPids >= 6 })
	if s := g.Stats(); s.OOMKills != 0 || s.PeakMemory > 150<<20 {
		t.Errorf("%+v", s)
	}
}

// TestHeld: files in memory count, also when everything has ended.
func TestHeld(t *testing.T) {
	var held atomic.Int64
	g, _ := start(t, watchdog.Limits{Memory: 100 << 20, Held: held.Load}, "exit")
	await(t, "its end", func() bool { return count(t, g) == 0 })
	g.Final()
	if s := g.Stats(); s.OOMKills != 0 {
		t.Errorf("%+v", s)
	}
	held.Store(200 << 20)
	g.Final()
	if s := g.Stats(); s.OOMKills != 1 {
		t.Errorf("%+v", s)
	}
}

func TestPids(t *testing.T) {
	g, _ := start(t, watchdog.Limits{Pids: 16}, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do sleep 1000 & done; wait")
	await(t, "fifteen", func() bool { return count(t, g) == 15 })
	await(t, "it counts as denied", func() bool { return g.Stats().PidsDenied > 0 })
}

func TestAttachRefusesOurOwn(t *testing.T) {
	var w watchdog.Watchdog
	if err := w.Group(watchdog.Limits{}).Attach(os.Getpid()); err == nil {
		t.Error("a group of everything")
	}
}

// TestNamespaceNumberReused: a group whose processes have all ended is not taken for
// the next one that the kernel would give its number.
func TestNamespaceNumberReused(t *testing.T) {
	held := int64(200 << 20)
	old, _ := start(t, watchdog.Limits{Memory: 100 << 20, Held: func() int64 { return held }}, "exit")
	await(t, "its end", func() bool { return count(t, old) == 0 })
	for range 20 {
		next, _ := start(t, watchdog.Limits{}, "exec sleep 1000")
		await(t, "the next is there", func() bool { return count(t, next) == 1 })
		if n := count(t, old); n != 0 {
			t.Fatalf("%d processes of another are in it", n)
		}
		killAll(t, next, 0)
	}
}
