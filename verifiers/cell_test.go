package verifiers_test

import (
	"context"
	"encoding/json"
	"errors"
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
}

func newCodeWorld(tb testing.TB) codeWorld {
	tb.Helper()
	run, image := containerdtest.NewRun(tb, containerdtest.Open(tb))
	return codeWorld{engine: run, image: image, limits: runtime.DefaultLimits()}
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
	Tests                     string
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
	dir := tb.TempDir()
	row, err := json.Marshal(map[string]any{
		"id": "t", "family": "code_completion", "input": input,
		"eval":        map[string]any{"tests": map[string]any{"source": "inline", "code": c.Tests}},
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
	return verify(context.Background(), w.engine, verifiers.Input{
		Task: task, Pack: pack, Candidate: candidate.Candidate{Text: code}, Image: w.image, Limits: w.limits,
		Timeout: time.Minute, WorkspaceBytes: 32 << 20, OutputBytes: 1 << 20,
	})
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
	w := newCodeWorld(t)
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
