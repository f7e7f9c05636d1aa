package run_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/internal/test/fake"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/check"
	"github.com/securebench/sbench/run/standin"
)

const imageOfRow = `"environment": {"image": "base"}`

// TestStandIns: what the candidates of each family are, and that texts need no sandbox.
func TestStandIns(t *testing.T) {
	const (
		choice = `{"id": "x", "family": "multiple_choice", "input": {"question": "q", "choices": ["a", "b"]}, "eval": {"answer": %s}, ` + imageOfRow + `}`
		short  = `{"id": "x", "family": "short_answer", "input": {"question": "q"}, "eval": {"accepted_answers": [1.50, "Graubünden"]}, ` + imageOfRow + `}`
		free   = `{"id": "x", "family": "free_response", "input": {"prompt": "q"}, "eval": {%s"rubric": {"type": "contains_any", "accepted_answers": ["the sky"]}}, ` + imageOfRow + `}`
		code   = `{"id": "x", "family": "code_completion", "input": {"prompt": "def f():", "language": "rust"%s}, "eval": {"tests": {"source": "inline", "code": "x"}%s}, ` + imageOfRow + `}`
		other  = `{"id": "x", "family": "tool_call", "input": {}, "eval": {}, ` + imageOfRow + `}`
	)
	tests := []struct {
		name, row        string
		reference, empty string // status and reason
		text             string // of the reference
	}{
		{"choice by label", fmt.Sprintf(choice, `"B"`), "passed ", "failed no_answer", "B"},
		{"choice by text", fmt.Sprintf(choice, `"b"`), "passed ", "failed no_answer", "B"},
		{"choice by index", fmt.Sprintf(choice, `[0, 1]`), "passed ", "failed no_answer", "A"},
		{"short answer", short, "passed ", "failed no_answer", "1.50"},
		{"reference answer", fmt.Sprintf(free, `"reference_answer": "It is the sky.", `), "passed ", "failed no_answer", "It is the sky."},
		{"accepted answer", fmt.Sprintf(free, ""), "passed ", "failed no_answer", "the sky"},
		{"body after the prompt", fmt.Sprintf(code, "", `, "canonical_solution": "\n  return 1\n"`), "pending language_without_verifier", "pending language_without_verifier", "def f():\n\n  return 1\n"},
		{"body after starter code", fmt.Sprintf(code, `, "starter_code": "def g():\n"`, `, "canonical_solution": "\treturn 1"`), "pending language_without_verifier", "pending language_without_verifier", "def g():\n\treturn 1"},
		{"whole canonical solution", fmt.Sprintf(code, "", `, "canonical_solution": "def f(): return 1\n"`), "pending language_without_verifier", "pending language_without_verifier", "def f(): return 1\n"},
		{"reference solution", fmt.Sprintf(code, "", `, "canonical_solution": "  return 1\n", "reference_solution": "  f = 1"`), "pending language_without_verifier", "pending language_without_verifier", "  f = 1"},
		{"no solution", fmt.Sprintf(code, "", ""), "failed reference_missing", "pending language_without_verifier", ""},
		{"no verifier", other, "failed reference_missing", "pending no_verifier", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for standIn, want := range map[standin.Kind]string{standin.Reference: tt.reference, standin.Empty: tt.empty} {
				cfg, e := config(t, tt.row)
				cfg.StandIn, cfg.Producer = standIn, nil
				ran(t, cfg)
				rec := records(t, cfg)[0]
				if rec.Provenance.Harness.Type != string(standIn) {
					t.Errorf("the record says %+v of its producer", rec.Provenance.Harness)
				}
				text := ""
				if rec.CandidateText != nil {
					text = *rec.CandidateText
				}
				wantText := ""
				if standIn == standin.Reference {
					wantText = tt.text
				}
				if got := fmt.Sprintf("%s %s", rec.VerificationStatus, rec.FailureReason); got != want || text != wantText || e.n > 0 {
					t.Errorf("%s: %s, candidate %q, %d sandboxes; want %s, %q, 0", standIn, got, text, e.n, want, wantText)
				}
			}
		})
	}
}

// TestStandInSolution: a terminal task's solution runs from where no agent can see it.
func TestStandInSolution(t *testing.T) {
	row := `{"id": "x", "family": "terminal_task", "input": {"instructions": "i"}, "eval": {"checker": {"command": ["check"]}, "expected_state": %s}, ` + imageOfRow + `}`
	tests := []struct{ name, state, reference string }{
		{"directory", `{"path": "solution"}`, "passed "},
		{"script", `{"path": "solution/solve.sh"}`, "passed "},
		{"no script", `{"path": "solution/notes.txt"}`, "failed reference_missing"},
		{"directory without a script", `{"path": "empty"}`, "failed reference_missing"},
		{"for people", `"a file"`, "failed reference_missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for standIn, want := range map[standin.Kind]string{standin.Reference: tt.reference, standin.Empty: "failed checker_failed"} {
				cfg, e := config(t, fmt.Sprintf(row, tt.state))
				hidden := filepath.Join(filepath.Dir(cfg.Tester.Path), "hidden")
				filetest.Write(t, hidden, map[string]string{"solution/solve.sh": "right", "solution/notes.txt": "n", "empty/x": ""})
				e.Engine.Lookup = solver
				cfg.StandIn, cfg.Producer = standIn, nil
				ran(t, cfg)
				rec := records(t, cfg)[0]
				if diff := cmp.Diff(want, fmt.Sprintf("%s %s", rec.VerificationStatus, rec.FailureReason)); diff != "" {
					t.Errorf("%s: %s %s", standIn, diff, rec.FailureMessage)
				}
			}
		})
	}
}

// solver runs a solution by writing its text as the answer.
func solver(args []string) fake.Program {
	switch args[0] {
	case "bash":
		return func(_ context.Context, p *fake.Proc) fake.Status {
			script, _ := p.Path(args[3]) // a solution may write beside its script, in its own copy
			text, err := os.ReadFile(script)
			if err != nil {
				return fake.Status{Code: 97}
			}
			answer, _ := p.Path("/workspace/answer")
			if os.WriteFile(answer, text, 0o644) != nil {
				return fake.Status{Code: 98}
			}
			return fake.Status{}
		}
	case "sh":
		return func(context.Context, *fake.Proc) fake.Status { return fake.Status{} }
	}
	return programs(args)
}

// TestCheckWithoutResult: a check of a pack ends if a run did not end well, unless only the pack is at fault.
func TestCheckWithoutResult(t *testing.T) {
	for _, want := range []error{run.ErrInfrastructure, nil} {
		cfg, _ := config(t, row("one", "x", ""))
		c := check.Check{Inputs: cfg.Inputs, Options: cfg.Options, Run: func(context.Context, run.Plan) (run.Summary, error) {
			if want == nil {
				return run.Summary{}, run.PackFault{Err: errors.New("no shell")}
			}
			return run.Summary{}, fmt.Errorf("%w: the disk is full", want)
		}}
		_, err := c.Pack(t.Context())
		must.Is(t, err, want)
	}
}
