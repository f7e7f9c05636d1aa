package export_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/export"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/verifiers"
)

const trace = `{"type":"item.completed","item":{"id":"i0","type":"reasoning","text":"Think."}}
{"type":"item.completed","item":{"id":"i1","type":"command_execution","command":"ls","aggregated_output":"a\n","exit_code":0}}
{"type":"item.completed","item":{"id":"i2","type":"command_execution","command":"false","aggregated_output":"","exit_code":1}}
no event
{"type":"item.completed","item":{"id":"i3","type":"agent_message","text":"Done."}}
`

// run writes a run with three attempts, the first with an agent's trace.
func run(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	ledger, err := record.Create(dir, record.Manifest{RunID: "r", Planned: 3})
	must.Do(t, err)
	must.Do(t, os.MkdirAll(filepath.Join(dir, "logs/one/1"), 0o755))
	log := record.Log{Path: "logs/one/1/" + record.TraceFile, Bytes: int64(len(trace)), Digest: record.Digest([]byte(trace))}
	must.Do(t, os.WriteFile(filepath.Join(dir, log.Path), []byte(trace), 0o644))
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	yes, no, half, patch := true, false, 0.5, "diff\n"
	base := record.Record{RunID: "r", BenchmarkID: "b", TaskType: "terminal_task", Attempt: 1, Try: 1, StartedAt: start, EndedAt: start.Add(time.Minute), Times: record.Times{Producer: 40, Verifier: 10}}
	base.Provenance.Harness = record.Harness{Type: "codex", Version: "1.2"}
	base.Agent = &harness.About{Name: "codex", Version: "1.2", Model: "m"}
	one := base
	one.TaskID, one.VerificationStatus, one.Passed, one.Score, one.Logs, one.CandidatePatch = "one/"+strings.Repeat("x", 40), record.Passed, &yes, new(1.0), []record.Log{log}, &patch
	one.Egress = &harness.EgressTotals{Relay: &relay.Facts{Usage: proxy.Usage{Input: 100, Cached: 40, Output: 7}, CostUSD: 0.5}}
	two := base
	two.TaskID, two.VerificationStatus, two.Passed, two.Score, two.FailureReason, two.FailurePhase = "two\n..", record.Failed, &no, &half, "checker_failed", "verifier"
	two.ProducerFailure = &candidate.Failure{Reason: "producer_timeout", Phase: "producer", Message: "late"}
	three := base
	three.TaskID, three.VerificationStatus, three.FailureReason, three.FailureMessage = "three", record.Error, "infrastructure", "no disk"
	for _, r := range []record.Record{one, two, three} {
		_, err := ledger.Append(r)
		must.Do(t, err)
	}
	must.Do(t, ledger.Seal(record.Seal{Planned: 3}, nil))
	must.Do(t, ledger.Close())
	return dir
}

// TestJob: the job directory has what Harbor's viewer reads, and the trajectory meets the format's rules.
func TestJob(t *testing.T) {
	s, err := report.Open(t.Context(), run(t))
	must.Do(t, err)
	defer func() { must.Do(t, s.Close()) }()
	out := filepath.Join(t.TempDir(), "job")
	must.Do(t, export.Harbor(t.Context(), out, []*report.Source{s}))
	if err := export.Harbor(t.Context(), out, []*report.Source{s}); err == nil {
		t.Error("a directory that was there was written to")
	}
	var job struct {
		Trials int `json:"n_total_trials"`
		Stats  struct {
			Errored int `json:"n_errored_trials"`
			Evals   map[string]struct {
				Metrics []map[string]float64           `json:"metrics"`
				Rewards map[string]map[string][]string `json:"reward_stats"`
			} `json:"evals"`
		} `json:"stats"`
	}
	read(t, out, "result.json", &job)
	eval := job.Stats.Evals["codex__m__b"]
	if job.Trials != 3 || job.Stats.Errored != 2 || len(eval.Metrics) != 1 || eval.Metrics[0]["mean"] != 0.5 || len(eval.Rewards["reward"]["0.5"]) != 1 {
		t.Errorf("%+v", job)
	}
	trials, err := filepath.Glob(filepath.Join(out, "*__*"))
	if must.Do(t, err); len(trials) != 3 {
		t.Fatalf("trials %q", trials)
	}
	for _, dir := range trials {
		var trial struct {
			ID        string            `json:"id"`
			Task      string            `json:"task_name"`
			Name      string            `json:"trial_name"`
			Exception map[string]string `json:"exception_info"`
			Verifier  *struct{ Rewards map[string]float64 }
		}
		read(t, dir, "result.json", &trial)
		if trial.Name != filepath.Base(dir) || len(trial.ID) != 36 || len(trial.Name) > 32+2+8 {
			t.Errorf("%+v in %s", trial, dir)
		}
		if want := map[string]string{"two\n..": "AgentTimeoutError", "three": "infrastructure"}[trial.Task]; trial.Exception["exception_type"] != want {
			t.Errorf("%q: exception %v, want %q", trial.Task, trial.Exception, want)
		}
		text := must.Read(t, filepath.Join(dir, "agent", "trajectory.json"))
		steps := checkTrajectory(t, text)
		if _, err := os.Stat(filepath.Join(dir, "agent", record.TraceFile)); (err == nil) != strings.HasPrefix(trial.Task, "one") {
			t.Errorf("%q: the agent's own output: %v", trial.Task, err)
		}
		if strings.HasPrefix(trial.Task, "one") && steps != 6 {
			t.Errorf("%d steps:\n%s", steps, text)
		}
	}
}

// TestJobRewards: a job has a result for each step, and all rewards of a checker only if the private parts are shown. The
// reward is the number that the checker left, and counts only as far as the score does.
func TestJobRewards(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	ledger, err := record.Create(dir, record.Manifest{RunID: "r", Planned: 3})
	must.Do(t, err)
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	base := record.Record{RunID: "r", BenchmarkID: "b", TaskType: "terminal_task", Attempt: 1, Try: 1, StartedAt: start, EndedAt: start.Add(time.Minute), VerificationStatus: record.Failed, Passed: new(false), FailurePhase: "verifier"}
	base.Provenance.Harness = record.Harness{Type: "empty"}
	steps, negative, forged := base, base, base
	steps.TaskID, steps.Score, steps.FailureReason, steps.VerifierMetadata = "steps", new(0.5), "verifier_timeout", record.Metadata{verifiers.Reward: 0.5}
	steps.Steps = []record.Step{
		{Name: "one", Status: record.Passed, Score: 1, Times: record.Times{Producer: 10, Verifier: 5}},
		{Name: "two", Status: record.Failed, FailureReason: "verifier_timeout", FailureMessage: "late", Times: record.Times{Producer: 20, Verifier: 1}},
	}
	negative.TaskID, negative.Score, negative.FailureReason, negative.VerifierMetadata = "negative", new(0.0), "checker_failed", record.Metadata{verifiers.Reward: -1.0}
	forged.TaskID, forged.Score, forged.FailureReason = "forged", new(0.0), "passes_broken_tests"
	must.Do(t, record.WritePrivate(root, &steps, record.Private{Scores: []record.PrivateScore{{Step: "one", Score: 1, Rewards: map[string]float64{"reward": 1, "style": 0.25}}}}))
	must.Do(t, record.WritePrivate(root, &forged, record.Private{Scores: []record.PrivateScore{{Score: 1, Rewards: map[string]float64{"reward": 1}}}}))
	for _, r := range []record.Record{steps, negative, forged} {
		_, err := ledger.Append(r)
		must.Do(t, err)
	}
	must.Do(t, errors.Join(ledger.Seal(record.Seal{Planned: 3}, nil), ledger.Close(), root.Close()))
	for _, private := range []bool{false, true} {
		s, err := report.Open(t.Context(), dir)
		must.Do(t, err)
		s.Private = private
		out := filepath.Join(t.TempDir(), "job")
		must.Do(t, errors.Join(export.Harbor(t.Context(), out, []*report.Source{s}), s.Close()))
		trials := must.Glob(t, filepath.Join(out, "*__*"))
		got := ""
		for _, dir := range trials {
			type verdict struct {
				Name     string                               `json:"step_name"`
				Verifier struct{ Rewards map[string]float64 } `json:"verifier_result"`
				Agent    struct {
					Finished time.Time `json:"finished_at"`
				} `json:"agent_execution"`
				Exception map[string]string `json:"exception_info"`
			}
			var trial struct {
				verdict
				Steps []verdict `json:"step_results"`
			}
			read(t, dir, "result.json", &trial)
			got += fmt.Sprintf("%.5s %v", filepath.Base(dir), trial.Verifier.Rewards)
			for _, step := range trial.Steps {
				got += fmt.Sprintf(" %s %v %v %s", step.Name, step.Verifier.Rewards, step.Agent.Finished.Sub(start), step.Exception["exception_type"])
			}
			got += "\n"
		}
		one := "map[reward:1]"
		if private {
			one = "map[reward:1 style:0.25]"
		}
		if want := "forge map[reward:0]\nnegat map[reward:-1]\nsteps map[reward:0.5] one " + one + " 10s  two map[] 35s VerifierTimeoutError\n"; got != want {
			t.Errorf("private %v: got\n%swant\n%s", private, got, want)
		}
	}
}

// TestRequire: in the forms for other programs, a pass with too weak an assurance has failed.
func TestRequire(t *testing.T) {
	s, err := report.Open(t.Context(), run(t))
	must.Do(t, err)
	defer func() { must.Do(t, s.Close()) }()
	s.Require(verifiers.Sealed)
	var log bytes.Buffer
	out := filepath.Join(t.TempDir(), "job")
	must.Do(t, errors.Join(export.Inspect(t.Context(), &log, s), export.Harbor(t.Context(), out, []*report.Source{s})))
	must.Contains(t, log.String(), "\"value\": 0\n", `"reason": "assurance_too_weak"`)
	if job, err := os.ReadFile(filepath.Join(out, "result.json")); err != nil || !bytes.Contains(job, []byte(`"0": [`)) || bytes.Contains(job, []byte(`"1": [`)) {
		t.Errorf("%v, %s", err, job)
	}
}

// TestInspect: the log has what Inspect's reader requires, and what its viewer shows.
func TestInspect(t *testing.T) {
	s, err := report.Open(t.Context(), run(t))
	must.Do(t, err)
	defer func() { must.Do(t, s.Close()) }()
	var out bytes.Buffer
	must.Do(t, export.Inspect(t.Context(), &out, s))
	type message struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
		Of      string `json:"tool_call_id"`
		Calls   []struct {
			ID, Type, Function string
			Arguments          map[string]any
		} `json:"tool_calls"`
	}
	var l struct {
		Version int
		Status  string
		Eval    struct {
			Created, Task, Model string
			Dataset              struct{ Samples int }
			Config               map[string]any
		}
		Results struct {
			Total     int `json:"total_samples"`
			Completed int `json:"completed_samples"`
			Scores    []struct {
				Metrics map[string]struct{ Value float64 }
			}
		}
		Samples []struct {
			ID     string
			Epoch  int
			Target *string
			Scores map[string]struct{ Value float64 }
			Error  *struct{ Message string }
			Usage  map[string]struct {
				Input int `json:"input_tokens"`
			} `json:"model_usage"`
			Messages []message
		}
	}
	must.Do(t, json.Unmarshal(out.Bytes(), &l))
	if l.Version != 2 || l.Status != "success" || l.Eval.Created != "2026-01-02T03:04:05Z" || l.Eval.Task != "b" || l.Eval.Model != "openai/m" ||
		l.Eval.Dataset.Samples != 3 || l.Eval.Config == nil || l.Results.Total != 3 || l.Results.Completed != 2 || len(l.Samples) != 3 {
		t.Fatalf("%+v", l)
	}
	if m := l.Results.Scores[0].Metrics; m["accuracy"].Value != 0.5 || m["mean"].Value != 0.75 {
		t.Errorf("metrics %v", m)
	}
	one, two, three := l.Samples[0], l.Samples[1], l.Samples[2]
	if one.Target == nil || one.Epoch != 1 || one.Scores["verdict"].Value != 1 || one.Usage["openai/m"].Input != 60 || one.Error != nil {
		t.Errorf("%+v", one)
	}
	if two.Scores["verdict"].Value != 0.5 || three.Scores != nil || three.Error == nil || three.Error.Message != "infrastructure: no disk" {
		t.Errorf("%+v\n%+v", two, three)
	}
	var roles []string
	for i, m := range one.Messages {
		roles = append(roles, m.Role)
		if m.Role == "tool" && m.Of != one.Messages[i-1].Calls[0].ID {
			t.Errorf("%+v answers another call than %+v", m, one.Messages[i-1])
		}
	}
	if want := []string{"user", "assistant", "assistant", "tool", "assistant", "tool", "system", "assistant"}; !slices.Equal(roles, want) {
		t.Errorf("roles %q, want %q", roles, want)
	}
}

func read(t *testing.T, dir, name string, v any) {
	t.Helper()
	text := must.Read(t, filepath.Join(dir, name))
	must.Do(t, json.Unmarshal(text, v))
}

// checkTrajectory checks the rules of ATIF 1.7, and returns the number of steps.
func checkTrajectory(t *testing.T, text []byte) int {
	t.Helper()
	type step struct {
		ID        int     `json:"step_id"`
		Timestamp *string `json:"timestamp"`
		Source    string  `json:"source"`
		Message   *string `json:"message"`
		Reasoning *string `json:"reasoning_content"`
		Calls     []struct {
			ID        string         `json:"tool_call_id"`
			Function  string         `json:"function_name"`
			Arguments map[string]any `json:"arguments"`
		} `json:"tool_calls"`
		Observation *struct {
			Results []struct {
				Call    string  `json:"source_call_id"`
				Content *string `json:"content"`
			} `json:"results"`
		} `json:"observation"`
	}
	var a struct {
		Schema  string `json:"schema_version"`
		Session string `json:"session_id"`
		Agent   struct {
			Name    string  `json:"name"`
			Version string  `json:"version"`
			Model   *string `json:"model_name"`
		} `json:"agent"`
		Steps []step         `json:"steps"`
		Final map[string]any `json:"final_metrics"`
		Extra map[string]any `json:"extra"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // the format refuses other fields
	must.Do(t, d.Decode(&a))
	var wrong []string
	if a.Schema != "ATIF-v1.7" || a.Agent.Name == "" || a.Agent.Version == "" || len(a.Steps) == 0 {
		wrong = append(wrong, "a required field is missing")
	}
	for key := range a.Final {
		if !slices.Contains([]string{"total_prompt_tokens", "total_completion_tokens", "total_cached_tokens", "total_cost_usd", "total_steps"}, key) {
			wrong = append(wrong, "final_metrics has "+key)
		}
	}
	for i, s := range a.Steps {
		if s.ID != i+1 || s.Message == nil || !slices.Contains([]string{"system", "user", "agent"}, s.Source) {
			wrong = append(wrong, fmt.Sprintf("step %d: its id, source or message", i+1))
		}
		if s.Source != "agent" && (s.Reasoning != nil || s.Calls != nil) {
			wrong = append(wrong, fmt.Sprintf("step %d has what only an agent's has", i+1))
		}
		var calls []string
		for _, c := range s.Calls {
			if calls = append(calls, c.ID); c.ID == "" || c.Function == "" || c.Arguments == nil {
				wrong = append(wrong, fmt.Sprintf("step %d: a call is incomplete", i+1))
			}
		}
		if s.Observation == nil {
			continue
		}
		for _, r := range s.Observation.Results {
			if r.Call != "" && !slices.Contains(calls, r.Call) {
				wrong = append(wrong, fmt.Sprintf("step %d: the result is of no call of the step", i+1))
			}
		}
	}
	if len(wrong) > 0 {
		t.Errorf("%s\n%s", strings.Join(wrong, "\n"), text)
	}
	return len(a.Steps)
}
