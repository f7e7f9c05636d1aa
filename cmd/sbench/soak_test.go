package main

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/containerdtest"
)

// kills returns how many runs to kill: a few, or many with SBENCH_SOAK.
func kills() int {
	if os.Getenv("SBENCH_SOAK") != "" {
		return 100
	}
	return 6
}

// TestSoakKilledAnywhere kills runs at random moments between start and end, and requires that one gc removes all
// remains.
func TestSoakKilledAnywhere(t *testing.T) {
	h := newHost(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	before := h.runs()
	for n := range kills() {
		cmd := exec.Command("sbench", "run", "--quiet", "--config", smokePack(t), "--output-dir", filepath.Join(h.dir, strconv.Itoa(n)))
		cmd.Env = h.env
		must(t, cmd.Start())
		time.Sleep(time.Duration(random.IntN(2500)) * time.Millisecond) // a random moment is the point of the test
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		dead := difference(h.runs(), before)
		h.sbench(0, "gc")
		for _, run := range dead {
			left := h.left(run)
			for end := time.Now().Add(30 * time.Second); onlyDeletes(left) && time.Now().Before(end); left = h.left(run) {
				time.Sleep(50 * time.Millisecond) // the end of others' processes can only be polled for
			}
			if len(left) > 0 {
				t.Errorf("kill %d: %s left %v", n, run, left)
			}
			h.daemonIsClean(run)
		}
	}
	h.nothingLeft(before)
}

// onlyDeletes reports whether the only remains of a run are processes of the daemon that remove a sandbox. The
// daemon may begin late to remove the sandbox of a dead client.
func onlyDeletes(left []string) bool {
	return len(left) > 0 && !slices.ContainsFunc(left, func(l string) bool {
		return !strings.HasPrefix(l, "process ") || !strings.Contains(l, " delete ")
	})
}

func smokePack(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../benchmarks/terminal-task-smoke/tester-command.yaml")
	must(t, err)
	return path
}

// nothingLeft checks that the state directory has only what was there before. Remains of a run elsewhere have the
// run's id; see left.
func (h testHost) nothingLeft(before []string) {
	h.t.Helper()
	if now := difference(h.runs(), before); len(now) > 0 {
		h.t.Errorf("directories of runs: %v", now)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(h.t, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, filepath.Join(h.state, "runs")) {
			h.t.Errorf("mount: %s", line)
		}
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	must(h.t, err)
	for _, l := range loops {
		used := func() bool {
			text, err := os.ReadFile(l)
			return err == nil && strings.Contains(string(text), containerdtest.Options().Root)
		}
		for end := time.Now().Add(30 * time.Second); used() && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond) // whoever holds it, such as a copy of the mounts, ends later
		}
		if used() {
			h.t.Errorf("loop device: %s", l)
		}
	}
	images, err := os.ReadDir(filepath.Join(containerdtest.Options().Root, "volumes"))
	if err == nil && len(images) > 0 {
		h.t.Errorf("volume images: %v", images)
	}
}
