package verifiers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd/containerdtest"
	"github.com/securebench/sbench/runtime/fake"
	"github.com/securebench/sbench/verifiers"
)

// codeWorld judges code in sandboxes, or with the host's interpreter on the fake
// runtime, which is for candidates of good will only.
type codeWorld struct {
	engine verifiers.Engine
	image  runtime.Image
	limits runtime.Limits
	call   time.Duration
	cells  *verifiers.CellPool
}

func newCodeWorld(tb testing.TB) codeWorld {
	tb.Helper()
	run, image := containerdtest.NewRun(tb, containerdtest.Open(tb))
	return codeWorld{engine: run, image: image, limits: runtime.DefaultLimits()}
}

// newPooledWorld keeps the tests' cells.
func newPooledWorld(tb testing.TB) codeWorld {
	tb.Helper()
	w := newCodeWorld(tb)
	w.cells = verifiers.NewCellPool(w.engine)
	tb.Cleanup(func() {
		if err := w.cells.Close(context.Background()); err != nil {
			tb.Errorf("close the pool: %v", err)
		}
	})
	return w
}

func newHostWorld(tb testing.TB) codeWorld {
	tb.Helper()
	python := hostPython(tb)
	lookup := func(args []string) fake.Program {
		return func(ctx context.Context, p *fake.Proc) fake.Status {
			program, _ := p.Path(args[len(args)-1])
			cmd := exec.CommandContext(ctx, python, append(slices.Clone(args[1:len(args)-1]), program)...)
			cmd.Stdout, cmd.Stderr, cmd.WaitDelay = p.Stdout, p.Stderr, time.Second
			in, err := cmd.StdinPipe()
			if err != nil || cmd.Start() != nil {
				return fake.Status{Code: 127}
			}
			go func() {
				_, _ = io.Copy(in, p.Stdin)
				_ = in.Close()
			}()
			_ = cmd.Wait()
			return fake.Status{Code: max(cmd.ProcessState.ExitCode(), 0), Signal: signalOf(cmd.ProcessState)}
		}
	}
	return codeWorld{engine: &fake.Engine{Lookup: lookup, Folder: tb.TempDir()}, limits: runtime.DefaultLimits()}
}

// hostPython finds the host's own interpreter, or skips.
func hostPython(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	tb.Skip("this host has no python3, which the comparison with local execution needs")
	return ""
}

// codeTask is a task of the family with its candidate.
type codeTask struct {
	Prompt, Starter, Language string
	Tests, Isolation          string
	Timeout                   int // seconds
}

func (c codeTask) load(tb testing.TB) (*compiler.Task, *compiler.Pack) {
	tb.Helper()
	input := map[string]any{"prompt": "Write the code."}
	for name, value := range map[string]string{"prompt": c.Prompt, "starter_code": c.Starter, "language": c.Language} {
		if value != "" {
			input[name] = value
		}
	}
	tests := map[string]any{"source": "inline", "code": c.Tests}
	if c.Isolation != "" {
		tests["isolation"] = c.Isolation
	}
	dir := tb.TempDir()
	row, err := json.Marshal(map[string]any{
		"id": "t", "family": "code_completion", "input": input,
		"eval":        map[string]any{"tests": tests},
		"environment": map[string]any{"image": "x", "timeout_seconds": max(c.Timeout, 1)},
	})
	if err != nil {
		tb.Fatal(err)
	}
	for name, text := range map[string]string{"manifest.yaml": "id: p\nversion: 1\n", "tasks.jsonl": string(row) + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	pack, err := compiler.OpenPack(filepath.Join(dir, "manifest.yaml"), filepath.Join(dir, "tasks.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	for task, err := range pack.Tasks() {
		if err != nil {
			tb.Fatal(err)
		}
		return task, pack
	}
	tb.Fatal("no task")
	return nil, nil
}

func (w codeWorld) judge(tb testing.TB, c codeTask, code string) (verifiers.Verdict, error) {
	tb.Helper()
	task, pack := c.load(tb)
	verify, needsSandbox := verifiers.For(task.Family())
	if !needsSandbox {
		tb.Fatal("code_completion needs a sandbox")
	}
	return verify(context.Background(), w.engine, w.input(task, pack, code))
}

func (w codeWorld) input(task *compiler.Task, pack *compiler.Pack, code string) verifiers.Input {
	return verifiers.Input{
		Task: task, Pack: pack, Candidate: candidate.Candidate{Text: code}, Image: w.image, Limits: w.limits,
		Timeout: time.Minute, CallTimeout: w.call, Cells: w.cells, WorkspaceBytes: 32 << 20, OutputBytes: 1 << 20,
	}
}

// cellCase is one entry of a table in testdata/cells.
type cellCase struct {
	name  string
	files map[string]string
}

func readCells(tb testing.TB, path string) []cellCase {
	tb.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	var cases []cellCase
	for _, f := range archive.Files {
		name, file, _ := strings.Cut(f.Name, "/")
		if len(cases) == 0 || cases[len(cases)-1].name != name {
			cases = append(cases, cellCase{name: name, files: map[string]string{}})
		}
		cases[len(cases)-1].files[file] = string(f.Data)
	}
	return cases
}

// expect is the wanted reason, empty for a pass.
func (c cellCase) expect() string { return strings.TrimSpace(c.files["expect"]) }

func (c cellCase) task() codeTask {
	return codeTask{Tests: c.files["tests.py"], Starter: c.files["starter.py"], Timeout: 60}
}

func (c cellCase) check(t *testing.T, w codeWorld) {
	t.Helper()
	v, err := w.judge(t, c.task(), c.files["candidate.py"])
	if err != nil {
		t.Fatal(err)
	}
	if (v.Status == verifiers.Passed) != (c.expect() == "") || v.Reason != c.expect() {
		t.Errorf("%s %s (%s), want %q\n%s", v.Status, v.Reason, v.Message, c.expect(), v.Stderr)
	}
	if v.Metadata["isolation"] != "cells" {
		t.Errorf("isolation %v", v.Metadata["isolation"])
	}
}

// TestCellSemanticsOnHost also runs each case in one interpreter: the table says
// what happens locally, too.
func TestCellSemanticsOnHost(t *testing.T) {
	w := newHostWorld(t)
	for _, c := range readCells(t, "testdata/cells/semantics.txtar") {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t, w)
			if c.files["differs"] == "" && runLocally(t, c.files["candidate.py"], c.files["tests.py"]) != (c.expect() == "") {
				t.Error("it is not so in one interpreter")
			}
		})
	}
}

func TestCellSemantics(t *testing.T) {
	w := newPooledWorld(t)
	for _, c := range readCells(t, "testdata/cells/semantics.txtar") {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t, w)
		})
	}
}

// runLocally says whether candidate and tests, one after the other in a plain
// interpreter, end well.
func runLocally(tb testing.TB, parts ...string) bool {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "program.py")
	if err := os.WriteFile(file, []byte(strings.Join(parts, "\n")), 0o644); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := exec.CommandContext(ctx, hostPython(tb), file).Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		tb.Fatal(err)
	}
	return err == nil
}

func signalOf(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return int(ws.Signal())
	}
	return 0
}

// TestCellAttacks: no attack passes or is an error, and every honest twin passes
// the same tests.
func TestCellAttacks(t *testing.T) {
	w := newCodeWorld(t)
	w.limits.Memory, w.limits.Pids = 256<<20, 64
	for _, c := range readCells(t, "testdata/cells/attacks.txtar") {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			task := c.task()
			v, err := w.judge(t, task, c.files["honest.py"])
			if err != nil || v.Status != verifiers.Passed {
				t.Errorf("the honest twin: %v %s %s (%s)\n%s", err, v.Status, v.Reason, v.Message, v.Stderr)
			}
			task.Timeout = 6
			v, err = w.judge(t, task, c.files["attack.py"])
			if err != nil || v.Status != verifiers.Failed || v.Score != 0 {
				t.Errorf("the attack: %v %s %s\n%s", err, v.Status, v.Reason, v.Stderr)
			}
			t.Logf("%s (%s)", v.Reason, v.Message)
			if c.expect() != "" && v.Reason != c.expect() {
				t.Errorf("the attack failed by %s (%s), want %s\n%s", v.Reason, v.Message, c.expect(), v.Stderr)
			}
		})
	}
}

func TestCellCallTimeout(t *testing.T) {
	w := newHostWorld(t)
	w.call = 300 * time.Millisecond
	tests := codeTask{Tests: "try:\n    nap(100)\nexcept BaseException:\n    pass\n", Timeout: 60}
	for name, code := range map[string]string{
		"in a call": "import time\ndef nap(s):\n    time.sleep(s)\n",
		"at import": "import time\ntime.sleep(100)\ndef nap(s):\n    pass\n",
	} {
		t.Run(name, func(t *testing.T) {
			v, err := w.judge(t, tests, code)
			if err != nil || v.Reason != "call_timeout" {
				t.Errorf("%v %s %s", err, v.Status, v.Reason)
			}
		})
	}
	v, err := w.judge(t, codeTask{Tests: "import time\nfor i in range(4):\n    assert nap(0.1) is None\n    time.sleep(0.1)\n", Timeout: 60}, "import time\ndef nap(s):\n    time.sleep(s)\n")
	if err != nil || v.Status != verifiers.Passed {
		t.Errorf("calls within the limit: %v %s %s", err, v.Status, v.Reason)
	}
}

func TestCellPending(t *testing.T) {
	w := newHostWorld(t)
	v, err := w.judge(t, codeTask{Tests: "assert(f() == 1)", Language: "javascript"}, "function f() { return 1 }")
	if err != nil || v.Status != verifiers.Pending || v.Reason == "" || v.Message == "" {
		t.Errorf("%v %+v", err, v)
	}
}

// TestCellTestsThatDoNotCompile: nothing was judged, whatever the candidate.
func TestCellTestsThatDoNotCompile(t *testing.T) {
	w := newHostWorld(t)
	for _, code := range []string{"def f():\n    return 1\n", "import os\nos._exit(0)\n", "while True:\n    pass\n"} {
		if v, err := w.judge(t, codeTask{Tests: "assert f( == 1", Timeout: 5}, code); err == nil {
			t.Errorf("%+v, want an error", v)
		}
	}
}

func TestCellShared(t *testing.T) {
	w := newHostWorld(t)
	for _, c := range []struct{ name, code, tests, reason string }{
		{"right", "def f():\n    return 1\n", "assert f() == 1\n", ""},
		{"wrong", "def f():\n    return 2\n", "assert f() == 1\n", "checker_failed"},
		{"tests exit", "def f():\n    return 1\n", "import sys\nsys.exit(f() != 1)\n", ""},
		{"candidate exits", "import sys\ndef f():\n    sys.exit(0)\n", "assert f() == 1\n", "checker_failed"},
		{"candidate leaves", "import os\nos._exit(0)\n", "assert f() == 1\n", "tests_not_finished"},
		{"random numbers", "import random\ndef f():\n    return random.random()\n", "import random\nrandom.seed(1)\na = f()\nrandom.seed(1)\nassert a == f()\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := w.judge(t, codeTask{Tests: c.tests, Isolation: "shared", Timeout: 10}, c.code)
			if err != nil || v.Reason != c.reason || (v.Status == verifiers.Passed) != (c.reason == "") {
				t.Errorf("%v %s %q, want %q\n%s", err, v.Status, v.Reason, c.reason, v.Stderr)
			}
			if v.Metadata["isolation"] != "shared" {
				t.Errorf("isolation %v", v.Metadata["isolation"])
			}
		})
	}
}

// TestCellHostileFrames: frames made at random never pass, and never trip the
// tests' cell itself, which would end with another status. SBENCH_SOAK is for
// many.
func TestCellHostileFrames(t *testing.T) {
	w := newHostWorld(t)
	hostile, err := os.ReadFile("testdata/cells/hostile.py")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("testdata/cells/hostile_tests.py")
	if err != nil {
		t.Fatal(err)
	}
	seeds := 60
	if os.Getenv("SBENCH_SOAK") != "" {
		seeds = 2000
	}
	reasons := []string{"tests_failed", "tests_raised", "candidate_protocol_violation", "candidate_gone"}
	count := map[string]int{}
	for seed := range seeds {
		v, err := w.judge(t, codeTask{Tests: string(tests), Timeout: 20}, fmt.Sprintf("SEED = %d\n%s", seed, hostile))
		if err != nil || v.Status != verifiers.Failed || !slices.Contains(reasons, v.Reason) {
			t.Errorf("seed %d: %v %s %s (%s)\n%s", seed, err, v.Status, v.Reason, v.Message, v.Stderr)
		}
		count[v.Reason]++
	}
	t.Logf("how they ended: %v", count)
}
