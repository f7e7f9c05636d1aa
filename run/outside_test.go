package run_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/hidden"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/internal/test/fake"
	"github.com/securebench/sbench/run/standin"
	"github.com/securebench/sbench/verifiers"
)

// riddleEval is what a task of the family riddle is judged by.
type riddleEval struct {
	Question string               `key:"question"`
	Solution hidden.Value[string] `key:"solution"`
}

// riddle is a family that neither package compiler nor package verifiers knows.
func riddle() verifiers.Family {
	return verifiers.Family{
		Family: &compiler.Family{
			Name: "riddle", CandidateKind: compiler.CandidateText, Doc: "Solve a riddle.",
			Input: &schema.Object{Fields: []schema.Field{{Name: "question", Required: true, Schema: schema.Text("The riddle.")}}},
			Eval: &schema.Object{Fields: []schema.Field{
				{Name: "solution", Required: true, Schema: schema.Text("The word that solves it.")},
				{Name: "clue", Schema: schema.Text("A clue for whoever verifies.")},
			}},
			Inputs: []string{"clue"},
			Check: func(c *schema.Checker, _, eval document.Value) {
				if solution := eval.Get("solution"); strings.Contains(solution.Text(), " ") {
					c.Errorf(solution, "", "solution is not one word")
				}
			},
			Rules: func(*compiler.Task) string { return "Say one word." },
		},
		Verify: func(_ context.Context, e verifiers.Engine, in verifiers.Input) (verifiers.Verdict, error) {
			if e != nil {
				return verifiers.Verdict{}, errors.New("a family without sandboxes has an engine")
			}
			eval := compiler.EvalOf[riddleEval](in.Task)
			if eval.Question == "" || strings.TrimSpace(in.Candidate.Text) != eval.Solution.Reveal() {
				return verifiers.Verdict{Status: verifiers.Failed, Reason: "puzzled", Message: "that is not it"}, nil
			}
			return verifiers.Verdict{Status: verifiers.Passed, Score: 1}, nil
		},
		Reference: func(t *compiler.Task) candidate.Candidate {
			return candidate.Candidate{Text: compiler.EvalOf[riddleEval](t).Solution.Reveal()}
		},
	}
}

// answerer is an agent that has one answer to every riddle.
func answerer([]string) fake.Program {
	return func(_ context.Context, p *fake.Proc) fake.Status {
		file, _ := p.Path("/workspace/task.json")
		task, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(task), `"rules": "Say one word."`) || strings.Contains(string(task), "clock") {
			return fake.Status{Code: 1}
		}
		_, _ = fmt.Fprintln(p.Stdout, "piano")
		return fake.Status{}
	}
}

// riddles returns a run of two riddles.
func riddles(t *testing.T, more ...*compiler.Family) setup {
	t.Helper()
	row := `{"id": %q, "family": "riddle", "input": {"question": "what has %[1]s?"}, "eval": %s, ` + imageOfRow + `}`
	keys := fmt.Sprintf(row, "keys", `{"solution": "piano", "clue": "music"}`)
	cfg, e := config(t, keys, fmt.Sprintf(row, "hands", `{"solution": "clock"}`))
	e.Engine.Lookup = answerer
	var err error
	if cfg.Pack, err = family.OpenPack(cfg.Pack.ManifestPath, cfg.Pack.TasksPath, more...); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestFamilyFromOutside: another package can bring a family, as a value for the compiler and a value for
// the verifier. Its packs compile, run, and have references.
func TestFamilyFromOutside(t *testing.T) {
	known := []verifiers.Family{riddle()}
	for _, tt := range []struct {
		name     string
		standIn  standin.Kind
		families []verifiers.Family
		want     []string
	}{
		{"agent", "", known, []string{"keys passed", "hands failed verifier puzzled"}},
		{"reference", standin.Reference, known, []string{"keys passed", "hands passed"}},
		{"empty", standin.Empty, known, []string{"keys failed verifier puzzled", "hands failed verifier puzzled"}},
		{"without a verifier", "", nil, []string{"keys pending  no_verifier", "hands pending  no_verifier"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := riddles(t, riddle().Family)
			cfg.StandIn, cfg.Families = tt.standIn, tt.families
			if _, err := runs(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			all := records(t, cfg)
			if diff := cmp.Diff(tt.want, outcomes(all)); diff != "" {
				t.Error(diff)
			}
			var lanes []string
			for _, r := range all[0].ResourceSummary {
				lanes = append(lanes, fmt.Sprintf("%s %s %s", r.Name, r.Lane, r.Value))
			}
			want := []string{`question public "what has keys?"`, "solution hidden ", "clue evaluation_inputs "}
			if diff := cmp.Diff(want, lanes); diff != "" || all[0].TaskType != "riddle" {
				t.Errorf("%s: %s", all[0].TaskType, diff)
			}
		})
	}
	if _, err := runs(t.Context(), riddles(t)); err == nil || !strings.Contains(err.Error(), `"riddle"`) {
		t.Errorf("a pack of an unknown family runs: %v", err)
	}
}

// TestFamilyFromOutsideChecks: rows of a family from outside are checked like all rows.
func TestFamilyFromOutsideChecks(t *testing.T) {
	for _, tt := range []struct{ eval, want string }{
		{`{"clue": "music"}`, `key "solution" is missing`},
		{`{"solution": "a piano"}`, "solution is not one word"},
		{`{"solution": "piano", "cleu": "music"}`, `did you mean "clue"?`},
		{`{"solution": "piano", "clue": 1}`, "expected"},
	} {
		t.Run(tt.eval, func(t *testing.T) {
			cfg := riddles(t, riddle().Family)
			row := `{"id": "keys", "family": "riddle", "input": {"question": "what has keys?"}, "eval": ` + tt.eval + "}\n"
			if err := os.WriteFile(cfg.Pack.TasksPath, []byte(row), 0o644); err != nil {
				t.Fatal(err)
			}
			for task, err := range cfg.Pack.Tasks() {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v, %v, want %s", task, err, tt.want)
				}
			}
		})
	}
}
