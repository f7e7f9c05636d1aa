package code_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/code"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/verifiers/pool"
)

func TestMain(m *testing.M) {
	containerdtest.Enter()
	m.Run()
}

// codeWorld judges code in sandboxes that are kept for the whole test.
type codeWorld struct {
	engine       verifiers.Engine
	image        runtime.Image
	limits       runtime.Limits
	pool         *pool.Pool
	calibrations *contrast.Store
	contrast     contrast.Effort
}

func newCodeWorld(tb testing.TB) codeWorld {
	tb.Helper()
	return codeWorldOn(tb, containerdtest.Open(tb))
}

func codeWorldOn(tb testing.TB, h *host.Host) codeWorld {
	tb.Helper()
	run, image := containerdtest.NewRun(tb, h)
	return codeWorld{engine: run, image: image, limits: runtime.DefaultLimits(), calibrations: contrast.NewStore("")}.pooled(tb)
}

// pooled returns the world with a pool of its own.
func (w codeWorld) pooled(tb testing.TB) codeWorld {
	tb.Helper()
	w.pool = pool.New(w.engine)
	tb.Cleanup(func() { must.Report(tb, w.pool.Close(context.Background())) })
	return w
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
	Tests, Reference, Extract string
	Canonical                 string
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
	eval := map[string]any{"tests": tests}
	for name, value := range map[string]string{"reference_solution": c.Reference, "canonical_solution": c.Canonical, "extract": c.Extract} {
		if value != "" {
			eval[name] = value
		}
	}
	row := must.JSON(tb, map[string]any{
		"id": "t", "family": "code_completion", "input": input,
		"eval":        eval,
		"environment": map[string]any{"image": "x", "timeout_seconds": max(c.Timeout, 1)},
	})
	return packtest.Task(tb, string(row))
}

// TestReference: a canonical solution is a whole program, or a body that continues the starter code.
func TestReference(t *testing.T) {
	const whole = "def add(a, b):\n    return a + b\n"
	for _, c := range []struct{ name, starter, canonical string }{
		{"whole", "", whole},
		{"whole, after an indentation", "def add(a, b):\n    ", whole},
		{"a body", "def add(a, b):\n", "    return a + b\n"},
		{"a body after its indentation", "def add(a, b):\n    ", "return a + b\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			task, _ := codeTask{Starter: c.starter, Tests: "x", Canonical: c.canonical}.load(t)
			must.Equal(t, whole, code.Family().Reference(task).Text) // the reference
		})
	}
}

func (w codeWorld) judge(tb testing.TB, c codeTask, program string) (verifiers.Verdict, error) {
	tb.Helper()
	task, pack := c.load(tb)
	family := code.Family()
	if !family.Sandboxed {
		tb.Fatal("code_completion needs a sandbox")
	}
	return family.Verify(context.Background(), w.engine, w.input(task, pack, program))
}

func (w codeWorld) input(task *compiler.Task, pack *compiler.Pack, code string) verifiers.Input {
	return verifiers.Input{
		Task: task, Pack: pack, Candidate: candidate.Candidate{Text: code}, Image: w.image, Limits: w.limits,
		Timeout: time.Minute, Code: w.pool, Calibrations: w.calibrations, Contrast: w.contrast, WorkspaceBytes: 32 << 20, OutputBytes: 1 << 20,
	}
}
