package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/cmd/sbench/interrupt"
	"github.com/securebench/sbench/harness/predictions"
	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/record"
)

func lines(t *testing.T, name string, values ...any) string {
	t.Helper()
	var text strings.Builder
	for _, v := range values {
		must.Do(t, json.NewEncoder(&text).Encode(v))
	}
	file := filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(file, []byte(text.String()), 0o644))
	return file
}

// TestGrade judges HumanEval's own solutions as samples, twice. The right ones pass.
func TestGrade(t *testing.T) {
	containerdtest.Open(t)
	pack := filepath.Join(t.TempDir(), "pack")
	expect(t, codeMeasured, "imported 3 task(s)", "pack", "import", "--out", pack, "humaneval", fixture(t, "humaneval"))
	tester := filepath.Join(pack, "tester-command.yaml")
	text := must.Read(t, filepath.Join(pack, "tasks.jsonl"))
	var samples []any
	for line := range strings.Lines(string(text)) {
		var row struct {
			ID   string
			Eval struct {
				Canonical string `json:"canonical_solution"`
			}
		}
		must.Do(t, json.Unmarshal([]byte(line), &row))
		samples = append(samples, map[string]any{"task_id": row.ID, "completion": row.Eval.Canonical}, map[string]any{"task_id": row.ID, "completion": "    return None\n", "model": "x"})
	}
	out := filepath.Join(t.TempDir(), "out")
	file := lines(t, "samples.jsonl", samples...)
	expect(t, codeMeasured, "total=6 verification=complete verified=6 passed=3", "grade", "-c", tester, file, "-o", out, "--progress=none")
	expect(t, codeMeasured, "", "verify", out)
	for _, r := range recordsOf(t, out) {
		if r.Provenance.Harness.Type != predictions.Type || r.NetworkEnabled || (r.Attempt == 1) != (r.VerificationStatus == record.Passed) {
			t.Errorf("%s attempt %d: %s by %+v, network %v", r.TaskID, r.Attempt, r.VerificationStatus, r.Provenance.Harness, r.NetworkEnabled)
		}
	}
	expect(t, codeMeasured, "total=6", "grade", "-c", tester, file, "-o", out, "--resume", "--progress=none")
	again := filepath.Join(t.TempDir(), "again")
	expect(t, codeMeasured, "verified=6 passed=3", "grade", "-c", tester, out, "-o", again, "--progress=none")

	code, stdout, stderr := sbench(t, "grade", "-c", tester, lines(t, "one.jsonl", samples[0]), "-o", filepath.Join(t.TempDir(), "one"), "--progress=none")
	if code != codeMeasured || !strings.Contains(stdout, "verified=3 passed=1") || !strings.Contains(stderr, "2 of the selected tasks have no candidate") {
		t.Errorf("one of three: exit code %d\n%s%s", code, stdout, stderr)
	}
	untouched := filepath.Join(t.TempDir(), "untouched")
	broken := filepath.Join(t.TempDir(), "broken.jsonl")
	must.Do(t, os.WriteFile(broken, []byte("{\"task_id\": \"HumanEval/0\", \"completion\": \"x\"}\n{\"task_id\"\n"), 0o644))
	code, _, stderr = sbench(t, "grade", "-c", tester, broken, "-o", untouched, "--progress=none")
	if _, err := os.Stat(untouched); code != codeUsage || !strings.Contains(stderr, "broken.jsonl:2: ") || err == nil {
		t.Errorf("a broken line: exit code %d, %v\n%s", code, err, stderr)
	}
}

// TestGradeNetwork: checkers of graded candidates get the network that the tester file describes. The harness
// does not run, and so may reach nothing.
func TestGradeNetwork(t *testing.T) {
	a := &app{stderr: t.Output(), interrupts: &interrupt.Interruption{}}
	dir := agreeingPack(t, map[string]string{
		"tasks.jsonl": `{"id": "a", "family": "short_answer", "input": {"question": "x"}, "eval": {"accepted_answers": ["1"]}}` + "\n",
		"tester.yaml": testerWith("harness: {type: command, config: {command: x, allowed_domains: [example.org]}}\nruntime: {network: {transparent: true, ca_bundle: ca.pem}}\n"),
	})
	in, err := loadTester(a, testerSource{path: filepath.Join(dir, "tester.yaml")})
	must.Do(t, err)
	cmd := &runCmd{graded: &gradeCmd{Source: lines(t, "one.jsonl", map[string]string{"id": "a", "answer": "1"})}}
	_, base, err := cmd.options(t.Context(), a, in, nil)
	must.Do(t, err)
	if e := base.Egress; !e.Transparent || e.CABundle != filepath.Join(dir, "ca.pem") || len(e.Domains) > 0 {
		t.Errorf("%+v", e)
	}
}

// TestGradeTexts: texts are judged without a sandbox, so that their image need not be here. They may be predictions,
// a run of SecureBench, or a run of sbench.
func TestGradeTexts(t *testing.T) {
	containerdtest.Open(t)
	dir := agreeingPack(t, map[string]string{
		"tasks.jsonl": `{"id": "a", "family": "short_answer", "input": {"question": "x"}, "eval": {"accepted_answers": ["1"]}}` + "\n",
	})
	predicted := lines(t, "one.jsonl", map[string]string{"id": "a", "answer": "1"})
	before := filepath.Dir(lines(t, record.RecordsFile, map[string]any{"task_id": "a", "candidate_text": "1", "candidate_patch": nil, "hidden_values": "<redacted>"}))
	again := filepath.Join(t.TempDir(), "of predictions")
	for _, source := range []string{predicted, again, before} {
		out := again
		if source != predicted {
			out = filepath.Join(t.TempDir(), "out")
		}
		expect(t, codeMeasured, "verified=1 passed=1", "grade", "-c", filepath.Join(dir, "tester.yaml"), source, "-o", out, "--progress=none")
	}
}

// TestGradeWorkspaces judges the directories and layers of an agent that ran elsewhere.
func TestGradeWorkspaces(t *testing.T) {
	forgetBuilt(t, containerdtest.Open(t))
	tester := setupPack(t, "useradd -m tool; echo one > /etc/setup")
	left := filepath.Join(t.TempDir(), "left")
	expect(t, codeMeasured, "passed=1", "run", tester, "-o", left, "--progress=none")
	out := filepath.Join(t.TempDir(), "out")
	expect(t, codeMeasured, "verified=1 passed=1", "grade", "-c", tester, filepath.Join(left, "workspaces"), "-o", out, "--progress=none")
	expect(t, codeMeasured, "", "verify", out)
	again := filepath.Join(t.TempDir(), "again")
	expect(t, codeMeasured, "verified=1 passed=1", "grade", "-c", tester, left, "-o", again, "--progress=none")
	layers := must.Glob(t, filepath.Join(left, "workspaces", "*.tar.zst"))
	must.Do(t, os.WriteFile(layers[0], []byte("no archive"), 0o644))
	bad := filepath.Join(t.TempDir(), "bad")
	expect(t, codeMeasured, "verification=complete verified=1 passed=0", "grade", "-c", tester, filepath.Join(left, "workspaces"), "-o", bad, "--progress=none")
	if r := recordsOf(t, bad)[0]; r.FailureReason != "candidate_unreadable" {
		t.Errorf("a layer that is no archive: %s: %s", r.FailureReason, r.FailureMessage)
	}
	expect(t, codeMeasured, "", "verify", bad)
	must.Do(t, os.Remove(layers[0]))
	expect(t, codeMeasured, "verified=1 passed=0", "grade", "-c", tester, filepath.Join(left, "workspaces"), "-o", filepath.Join(t.TempDir(), "without"), "--progress=none")
	code, _, stderr := sbench(t, "grade", "-c", tester, left, "-o", filepath.Join(t.TempDir(), "gone"), "--progress=none")
	if code == codeMeasured {
		t.Errorf("without the layer of the record: exit code %d\n%s", code, stderr)
	}
}
