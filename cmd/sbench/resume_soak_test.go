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

	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime/containerd/containerdtest"
)

// fortyTasks writes a pack whose tasks pass, fail, print much and take their
// time, and returns its tester file.
func (h host) fortyTasks() string {
	h.t.Helper()
	dir := filepath.Join(h.dir, "forty")
	check(h.t, os.MkdirAll(dir, 0o755))
	var rows strings.Builder
	for i := range 40 {
		fmt.Fprintf(&rows, `{"id": "task-%02d", "input": {"instructions": "x"}, "eval": {"checker": {"command": "grep -q right answer"}}, "environment": {"resources": {"memory": 67108864}}}`+"\n", i)
	}
	for name, text := range map[string]string{
		"manifest.yaml": "id: p\nversion: 1\ndefaults: {family: terminal_task, environment: {image: '" + containerdtest.Image + "', timeout_seconds: 300}}\n",
		"tasks.jsonl":   rows.String(),
		"tester.yaml": `schema_version: '0.2'
run: {id: forty, output_dir: out}
benchmark: {manifest: manifest.yaml, tasks: tasks.jsonl}
runtime: {limits: {workspace_bytes: 16777216}}
harness:
  type: command
  config:
    command: |
      case "$(cat task.json)" in
        *task-?[02468]*) echo right > answer ;;
        *task-?5*) head -c 300000 /dev/zero | tr '\0' x; echo wrong > answer ;;
        *) sleep 0.2; exit 3 ;;
      esac
`,
	} {
		check(h.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return filepath.Join(dir, "tester.yaml")
}

// verdicts reads a run's folder, whose records must verify, and returns what each
// task came to. A verdict that is there twice is an error.
func verdicts(t *testing.T, output string) map[string]string {
	t.Helper()
	v, err := record.Verify(context.Background(), output, nil)
	check(t, err)
	if !v.OK() {
		t.Errorf("the records do not verify: %v", v.Findings)
	}
	all := map[string]string{}
	check(t, record.Read(output, func(r record.Record) error {
		if before, twice := all[r.TaskID]; twice && !strings.HasPrefix(before, "error") {
			t.Errorf("%s was %s, and is recorded again as %s", r.TaskID, before, r.VerificationStatus)
		}
		all[r.TaskID] = string(r.VerificationStatus) + " " + r.FailureReason
		return nil
	}))
	return all
}

// soakKills is how many times a run is killed.
func soakKills() int {
	if os.Getenv("SBENCH_SOAK") != "" {
		return 200
	}
	return 5
}

// TestSoakResumed kills a run of 40 tasks, 8 at a time, at random moments, and
// resumes it each time until it is done. Nothing is lost, doubled or torn, the
// verdicts are those of a run that nobody disturbed, and nothing is left.
func TestSoakResumed(t *testing.T) {
	h := newHost(t)
	tester := h.fortyTasks()
	before := h.runs()
	calm := filepath.Join(h.dir, "calm")
	h.sbench(0, "run", "--quiet", "--config", tester, "--output-dir", calm, "--jobs", "8")
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
		check(t, os.RemoveAll(output))
	}
	h.sbench(0, "gc")
	h.nothingLeft(before)
}

// disturbed resumes a run, ends it after a while unless it is the last time, and
// says whether it came to its own end.
func (h host) disturbed(tester, output string, wait time.Duration, signal syscall.Signal, last bool) bool {
	h.t.Helper()
	cmd := exec.Command("sbench", "run", "--quiet", "--resume", "--config", tester, "--output-dir", output, "--jobs", "8")
	cmd.Env = h.env
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	check(h.t, cmd.Start())
	if !last {
		timer := time.AfterFunc(wait, func() { _ = cmd.Process.Signal(signal) }) // it may have ended
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

// TestSmallDisk: an output folder that is full ends a run with an error, and
// leaves one that can be resumed when there is room.
func TestSmallDisk(t *testing.T) {
	h := newHost(t)
	tester := h.fortyTasks()
	before := h.runs()
	disk := filepath.Join(h.dir, "disk")
	check(t, os.Mkdir(disk, 0o755))
	check(t, syscall.Mount("none", disk, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { check(t, syscall.Unmount(disk, 0)) })
	output := filepath.Join(disk, "out")
	cmd := exec.Command("sbench", "run", "--quiet", "--config", tester, "--output-dir", output, "--jobs", "4")
	cmd.Env = h.env
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no space left on device") {
		t.Fatalf("on a full disk: %v\n%s", err, out)
	}
	check(t, syscall.Mount("none", disk, "tmpfs", syscall.MS_REMOUNT, "size=200m"))
	h.sbench(0, "run", "--quiet", "--resume", "--config", tester, "--output-dir", output, "--jobs", "4")
	counts := map[string]int{}
	for verdict := range maps.Values(verdicts(t, output)) {
		counts[verdict]++
	}
	if diff := cmp.Diff(map[string]int{"passed ": 20, "failed checker_failed": 4, "failed producer_failed": 16}, counts); diff != "" {
		t.Error(diff)
	}
	h.sbench(0, "gc")
	h.nothingLeft(before)
}
