package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime/daemon"
)

// fortyTasks writes a pack with 40 tasks, and returns its tester file. The harness solves half of the tasks. In the other
// tasks it prints a lot or takes a while, and fails.
func (h testHost) fortyTasks() string {
	rows := taskRows(40, "grep -q right answer", `, "environment": {"resources": {"memory": 67108864}}`)
	return writePack(h.t, filepath.Join(h.dir, "forty"), rows, `runtime: {limits: {workspace_bytes: 16777216}}
harness:
  type: command
  config:
    command: |
      case "$(cat task.json)" in
        *task-?[02468]*) echo right > answer ;;
        *task-?5*) head -c 300000 /dev/zero | tr '\0' x; echo wrong > answer ;;
        *) sleep 0.2; exit 3 ;;
      esac
`)
}

// verdicts returns the outcome of each task. The records must verify, and no task may have two verdicts.
func verdicts(t *testing.T, output string) map[string]string {
	t.Helper()
	v, err := record.Verify(context.Background(), output, nil)
	must.Do(t, err)
	if !v.OK() {
		t.Errorf("the records do not verify: %v", v.Findings)
	}
	all := map[string]string{}
	_, _, err = record.Read(output, record.Trust{Resume: true}, func(r record.Record) error {
		if before, twice := all[r.TaskID]; twice && !strings.HasPrefix(before, "error") {
			t.Errorf("%s was %s, and is recorded again as %s", r.TaskID, before, r.VerificationStatus)
		}
		all[r.TaskID] = string(r.VerificationStatus) + " " + r.FailureReason
		return nil
	})
	must.Do(t, err)
	return all
}

// soakKills is how many times a run is killed.
func soakKills() int {
	if os.Getenv("SBENCH_SOAK") != "" {
		return 200
	}
	return 2
}

// TestSoakResumed kills and resumes a run of 40 tasks until it is done. No record is lost, doubled or torn, the
// verdicts equal the verdicts of an undisturbed run, and nothing remains on the host.
func TestSoakResumed(t *testing.T) {
	h := newHost(t)
	tester := h.fortyTasks()
	before := h.runs()
	calm := filepath.Join(h.dir, "calm")
	h.sbench(0, "run", "--progress=none", "--config", tester, "--output-dir", calm, "--jobs", "8")
	want := verdicts(t, calm)
	if len(want) != 40 {
		t.Fatalf("%d verdicts", len(want))
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	signals := []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM, syscall.SIGHUP}
	for n, lives := 0, 0; n < soakKills(); lives++ {
		output := filepath.Join(h.dir, fmt.Sprint("life-", lives))
		for done := false; !done; n++ {
			last := n >= soakKills()
			wait := time.Duration(random.IntN(3000)) * time.Millisecond
			done = h.disturbed(tester, output, wait, signals[random.IntN(len(signals))], last)
		}
		if diff := cmp.Diff(want, verdicts(t, output)); diff != "" {
			t.Errorf("life %d: %s", lives, diff)
		}
		must.Do(t, os.RemoveAll(output))
	}
	h.sbench(0, "gc")
	h.nothingLeft(before)
}

// disturbed resumes a run, signals it after a while unless it is last, and reports whether it ended by itself.
func (h testHost) disturbed(tester, output string, wait time.Duration, signal syscall.Signal, last bool) bool {
	h.t.Helper()
	cmd := exec.Command("sbench", "run", "--progress=none", "--resume", "--config", tester, "--output-dir", output, "--jobs", "8")
	cmd.Env = h.env
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	must.Do(h.t, cmd.Start())
	if !last {
		timer := time.AfterFunc(wait, func() { _ = cmd.Process.Signal(signal) }) // the process may have ended
		defer timer.Stop()
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true
	case errors.As(err, &exit) && (exit.ExitCode() == codeInterrupted || exit.Sys().(syscall.WaitStatus).Signaled()):
		return false
	}
	h.t.Fatalf("the run ended by itself: %v\n%s", err, &errOut)
	return false
}

// TestSmallDisk: a run ends with an error when its disk is full, and can be resumed when there is room again.
func TestSmallDisk(t *testing.T) {
	h := newHost(t)
	tester := h.fortyTasks()
	before := h.runs()
	disk := filepath.Join(h.dir, "disk")
	must.Do(t, os.Mkdir(disk, 0o755))
	must.Do(t, syscall.Mount("none", disk, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { must.Do(t, syscall.Unmount(disk, 0)) })
	output := filepath.Join(disk, "out")
	cmd := exec.Command("sbench", "run", "--progress=none", "--config", tester, "--output-dir", output, "--jobs", "4")
	cmd.Env = h.env
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != codeInfrastructure || !strings.Contains(string(out), "no space left on device") {
		t.Fatalf("on a full disk: %v\n%s", err, out)
	}
	h.sbench(0, "verify", output) // no line is torn
	must.Do(t, syscall.Mount("none", disk, "tmpfs", syscall.MS_REMOUNT, "size=200m"))
	h.sbench(0, "run", "--progress=none", "--resume", "--config", tester, "--output-dir", output, "--jobs", "4")
	must.Equal(t, calmVerdicts(), countVerdicts(t, output))
	h.sbench(0, "gc")
	h.nothingLeft(before)
}

// nothingLeft checks that the state directory has only what was there before; see left for what is elsewhere.
func (h testHost) nothingLeft(before []string) {
	h.t.Helper()
	if now := difference(h.runs(), before); len(now) > 0 {
		h.t.Errorf("directories of runs: %v", now)
	}
	mounts := must.Read(h.t, "/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, filepath.Join(h.state, "runs")) {
			h.t.Errorf("mount: %s", line)
		}
	}
	loops := must.Glob(h.t, "/sys/block/loop*/loop/backing_file")
	for _, l := range loops {
		must.Await(h.t, "the end of loop device "+l, func() bool { // whoever holds it, such as a copy of the mounts, ends later
			text, err := os.ReadFile(l)
			return err != nil || !strings.Contains(string(text), containerdtest.Options().Root)
		})
	}
	images, err := os.ReadDir(filepath.Join(containerdtest.Options().Root, "volumes"))
	if err == nil && len(images) > 0 {
		h.t.Errorf("volume images: %v", images)
	}
}

// calmVerdicts returns how many of the forty tasks have each outcome in an undisturbed run.
func calmVerdicts() map[string]int {
	return map[string]int{"passed ": 20, "failed checker_failed": 4, "failed producer_failed": 16}
}

func countVerdicts(t *testing.T, output string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for verdict := range maps.Values(verdicts(t, output)) {
		counts[verdict]++
	}
	return counts
}

func (h testHost) daemonPid() int {
	h.t.Helper()
	found, err := daemon.Find(filepath.Join(h.state, "containerd"))
	must.Do(h.t, err)
	if len(found) != 1 {
		h.t.Fatalf("daemons %v", found)
	}
	return found[0]
}
