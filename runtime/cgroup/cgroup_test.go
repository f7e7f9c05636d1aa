package cgroup_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/cgroup"
)

// group creates a group in the pids hierarchy, with live processes in it.
func group(t *testing.T, processes int) (*cgroup.Group, []*exec.Cmd) {
	t.Helper()
	h, err := cgroup.Mounted()
	if err != nil || h.Mode() == cgroup.None {
		t.Skipf("no cgroups: %v", err)
	}
	name := fmt.Sprintf("/sbench-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	dir := filepath.Join("/sys/fs/cgroup/pids", name)
	if h.Mode() == cgroup.V2 {
		dir = filepath.Join("/sys/fs/cgroup", name)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	g := h.Group(name)
	t.Cleanup(func() {
		must.Report(t, g.KillAll(context.Background(), 0))
		must.Report(t, g.Remove())
	})
	var started []*exec.Cmd
	for range processes {
		cmd := exec.Command("sleep", "1000")
		must.Do(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		must.Do(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0))
		started = append(started, cmd)
	}
	return g, started
}

func TestKillAll(t *testing.T) {
	g, started := group(t, 3)
	pids, err := g.Pids()
	if err != nil || len(pids) != 3 || !slices.Contains(pids, started[0].Process.Pid) {
		t.Fatalf("pids %v, %v", pids, err)
	}
	spared := started[1]
	reap := make(chan struct{})
	go func() { // zombies stay in the group until they are waited for
		_, _ = started[0].Process.Wait()
		_, _ = started[2].Process.Wait()
		close(reap)
	}()
	must.Do(t, g.KillAll(context.Background(), spared.Process.Pid))
	<-reap
	must.Report(t, unix.Kill(spared.Process.Pid, 0)) // the spared process
	go func() { _, _ = spared.Process.Wait() }()
	must.Do(t, g.KillAll(context.Background(), 0))
	if pids, err := g.Pids(); err != nil || len(pids) > 0 {
		t.Errorf("left: %v, %v", pids, err)
	}
}

// TestMissingGroup: a group that does not exist is empty, and its removal is no error.
func TestMissingGroup(t *testing.T) {
	h, err := cgroup.Mounted()
	must.Do(t, err)
	g := h.Group("/sbench-test-no-such-group")
	if pids, err := g.Pids(); err != nil || len(pids) > 0 {
		t.Errorf("pids %v, %v", pids, err)
	}
	must.Report(t, g.Remove())
	if s, err := g.Stats(); s != (cgroup.Stats{}) || err != nil {
		t.Errorf("stats %+v, %v", s, err)
	}
	must.Report(t, g.KillAll(context.Background(), 0))
}

// TestListed reads tables of mounts. A long line, which any user of the host can cause, hides
// no hierarchy.
func TestListed(t *testing.T) {
	const (
		unified = "30 23 0:26 /top /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		memory  = "31 23 0:27 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"
		other   = "32 23 8:1 / / rw - ext4 /dev/sda1 rw\n"
	)
	long := "33 23 0:28 / /mnt rw - overlay overlay rw,lowerdir=" + strings.Repeat("/lower:", 20_000) + "\n"
	for _, tt := range []struct {
		table string
		want  cgroup.Mode
		shown string // of the group /a
	}{
		{other, cgroup.None, "/a"}, {other + memory, cgroup.V1, "/a"}, {unified + other, cgroup.V2, "/top/a"}, {unified + memory, cgroup.Hybrid, "/top/a"}, {long + memory, cgroup.V1, "/a"},
		{strings.Replace(memory, " / ", " /pod/x ", 1), cgroup.V1, "/pod/x/a"}, // in a container without a cgroup namespace
	} {
		table := filepath.Join(t.TempDir(), "mountinfo")
		must.Do(t, os.WriteFile(table, []byte(tt.table), 0o644))
		if h, err := cgroup.Listed(table); err != nil || h.Mode() != tt.want || h.Group("/a").Shown() != tt.shown {
			t.Errorf("%s, %s, %v, want %s, %s:\n%.200s", h.Mode(), h.Group("/a").Shown(), err, tt.want, tt.shown, tt.table)
		}
	}
}
