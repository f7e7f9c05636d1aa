package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
)

// hanging is a host with an OCI runtime that hangs in one of its commands when the test asks for it.
type hanging struct {
	testHost
	file string
}

// newHanging makes a host with a runtime that can hang, for which sbench waits no longer than timeout.
func newHanging(t *testing.T, timeout string) hanging {
	t.Helper()
	h := hanging{testHost: newHost(t)}
	h.file = filepath.Join(h.dir, "hangs")
	real := containerdtest.Options().OCIRuntime
	if real == "" {
		real = "runc"
	}
	real, err := exec.LookPath(real)
	must.Do(t, err)
	script := "#!/bin/sh\nif read -r command <" + h.file + "; then for a; do [ \"$a\" != \"$command\" ] || exec sleep 1000; done; fi 2>/dev/null\nexec " + real + " \"$@\"\n"
	must.Do(t, os.WriteFile(filepath.Join(h.dir, "runtime"), []byte(script), 0o755))
	must.Do(t, os.WriteFile(h.file, nil, 0o644))
	h.env = append(h.env, "SBENCH_OCI_RUNTIME="+filepath.Join(h.dir, "runtime"), "SBENCH_DAEMON_TIMEOUT="+timeout)
	return h
}

// in makes the runtime hang in the given command; with "" it no longer hangs.
func (h hanging) in(command string) {
	h.t.Helper()
	if command != "" {
		command += "\n"
	}
	must.Do(h.t, os.WriteFile(h.file, []byte(command), 0o644))
}

// within runs sbench, which must end by itself within the limit.
func (h testHost) within(limit time.Duration, args ...string) (code int, text string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sbench", args...)
	cmd.Env = h.env
	out, _ := cmd.CombinedOutput()
	if ctx.Err() != nil {
		h.t.Fatalf("sbench %v hangs\n%s", args, out)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// pack writes a pack of one task and returns its tester file and output directory.
func (h testHost) pack(name, image string) (tester, output string) {
	h.t.Helper()
	dir := filepath.Join(h.dir, name)
	return writePack(h.t, dir, taskRow("one", "true", `, "environment": {"image": "`+image+`"}`), commandHarness("true")), filepath.Join(dir, "out")
}

const (
	patience = "4s" // how long sbench waits for the runtime
	// bounded is far more than patience and the removal afterwards need.
	bounded = 2 * time.Minute
)

// TestHangsFromTheStart: an OCI runtime that hangs is a single error of run and doctor before anything starts,
// and gc removes the remains. Only create can hang: sbench kills processes itself.
func TestHangsFromTheStart(t *testing.T) {
	h := newHanging(t, patience)
	tester, output := h.pack("create", containerdtest.Image)
	before := h.runs()
	h.in("create")
	if code, text := h.within(bounded, "run", "--config", tester); code != codeInfrastructure || !strings.Contains(text, "gave no answer to") {
		t.Errorf("run: exit code %d\n%s", code, text)
	}
	if _, err := os.Stat(output); !os.IsNotExist(err) {
		t.Errorf("the output directory is there: %v", err)
	}
	if code, text := h.within(bounded, "doctor", "--json"); code != codeInfrastructure || !strings.Contains(text, "gave no answer to") {
		t.Errorf("doctor: exit code %d\n%s", code, text)
	}
	h.within(bounded, "gc") // ends although the runtime hangs
	h.in("")
	h.sbench(0, "gc")
	for _, r := range difference(h.runs(), before) {
		t.Errorf("left of run %s: %v", r, h.left(r))
	}
	tester, _ = h.pack("kill", containerdtest.Image)
	h.in("kill")
	h.env = append(h.env, "SBENCH_DAEMON_TIMEOUT=1m")
	if code, text := h.within(bounded, "run", "--config", tester); code != codeMeasured {
		t.Errorf("exit code %d\n%s", code, text)
	}
}

// TestHangsMidRun: attempts that cannot be measured because the runtime begins to hang
// are recorded as error, and the run ends.
func TestHangsMidRun(t *testing.T) {
	h := newHanging(t, patience)
	cmd, output, lines := h.start("mid", 3)
	h.in("create")
	var text strings.Builder
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != codeInfrastructure || !strings.Contains(text.String(), "gave no answer to Create") {
		t.Errorf("exit code %d\n%s", code, &text)
	}
	got := statuses(t, output)
	if got == "" || strings.Trim(strings.ReplaceAll(got, "error", ""), " ") != "" {
		t.Errorf("recorded %q", got)
	}
	h.in("")
	h.sbench(0, "gc")
}

// TestSecondInterrupt: the second Ctrl-C ends sbench while it waits for a runtime
// that never answers, and the first says so.
func TestSecondInterrupt(t *testing.T) {
	h := newHanging(t, "1h")
	before := h.runs()
	cmd, _, lines := h.start("twice", 3)
	ours := difference(h.runs(), before)
	h.in("create")
	late := time.AfterFunc(bounded, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	first, told := false, false
	for lines.Scan() {
		if !first && strings.Contains(lines.Text(), "verifier_start") { // now it waits for the runtime
			first = true
			_ = cmd.Process.Signal(os.Interrupt)
		}
		if strings.Contains(lines.Text(), "a second Ctrl-C ends sbench") {
			told = true
			_ = cmd.Process.Signal(os.Interrupt)
		}
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != codeInterrupted || !told {
		t.Errorf("exit code %d; the first Ctrl-C told of the second: %v", code, told)
	}
	h.in("")
	h.env = append(h.env, "SBENCH_DAEMON_TIMEOUT=30s")
	h.sbench(0, "gc")
	h.cleared(ours...)
}

// TestCollectionGoesOn: if something of a dead run cannot be removed, gc reports it and removes the rest, and
// runs work.
func TestCollectionGoesOn(t *testing.T) {
	h := newHost(t)
	tester, _ := h.pack("go-on", containerdtest.Image)
	stuck, dead := filepath.Join(h.state, "runs", "0000000000000bad"), filepath.Join(h.state, "runs", "00000000000dead0")
	must.Do(t, os.MkdirAll(filepath.Join(stuck, "lock"), 0o700)) // a lock that cannot be opened
	must.Do(t, os.MkdirAll(dead, 0o700))
	t.Cleanup(func() { must.Do(t, os.RemoveAll(stuck)) })
	code, text := h.within(bounded, "gc")
	if code != codeInfrastructure || !strings.Contains(text, "0000000000000bad") || !strings.Contains(text, "removed what run 00000000000dead0 left") {
		t.Errorf("gc: exit code %d\n%s", code, text)
	}
	if code, text = h.within(bounded, "run", "--config", tester); code != codeMeasured || !strings.Contains(text, "0000000000000bad") {
		t.Errorf("run: exit code %d\n%s", code, text)
	}
}

// TestLocalImageIsNotPulled: sbench asks no registry for an image that no registry can have, and the message
// says where sbench looked for it, and how to get it.
func TestLocalImageIsNotPulled(t *testing.T) {
	h := newHost(t)
	tester, _ := h.pack("local", "sbench.local/base:nowhere")
	code, text := h.within(bounded, "run", "--config", tester)
	if code != codeUsage || !strings.Contains(text, `image sbench.local/base:nowhere: not found in namespace "sbench"`) || !strings.Contains(text, "sbench image import") || !strings.Contains(text, "(sbench image build), or run make image in a checkout") || strings.Contains(text, "sbench: pulling") {
		t.Errorf("exit code %d\n%s", code, text)
	}
}
