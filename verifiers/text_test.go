package verifiers_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/verifiers"
)

type object = map[string]any

// textTask compiles one row. It returns nil if the compiler refuses the row.
func textTask(t testing.TB, family string, input, eval object) *compiler.Task {
	t.Helper()
	row, err := json.Marshal(object{"id": "r", "family": family, "input": input, "eval": eval})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	manifest, tasks := filepath.Join(dir, "manifest.yaml"), filepath.Join(dir, "tasks.jsonl")
	for name, text := range map[string]string{manifest: "id: p\nversion: 1\n", tasks: string(row) + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pack, err := compiler.OpenPack(manifest, tasks)
	if err != nil {
		t.Fatal(err)
	}
	for task, err := range pack.Tasks() {
		if err != nil {
			return nil
		}
		return task
	}
	return nil
}

// judgeText judges a text with the family's verifier, and checks what holds for every
// verdict.
func judgeText(t testing.TB, task *compiler.Task, text string) verifiers.Verdict {
	t.Helper()
	family := verifiers.For(task)
	if family.Sandboxed {
		t.Fatalf("%s asks for a sandbox", family.Name)
	}
	v, err := family.Verify(context.Background(), nil, verifiers.Input{Task: task, Candidate: candidate.Candidate{Text: text}})
	if err != nil {
		t.Fatal(err)
	}
	if passed := v.Status == verifiers.Passed; passed != (v.Score == 1) || passed != (v.Reason == "") || passed != (v.Message == "") {
		t.Errorf("inconsistent verdict %+v", v)
	}
	return v
}

// checkText compares a verdict with what is wanted: "" for a pass, otherwise
// the reason.
func checkText(t *testing.T, task *compiler.Task, text, want string) {
	t.Helper()
	if task == nil {
		t.Fatal("the row does not compile")
	}
	v := judgeText(t, task, text)
	if v.Reason != want {
		t.Errorf("%.200q: %s with reason %q, want %q", text, v.Status, v.Reason, want)
	}
}

// checkNoSecret fails if a verdict holds a secret.
func checkNoSecret(t *testing.T, v verifiers.Verdict, secrets ...string) {
	t.Helper()
	said, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets {
		if strings.Contains(strings.ToLower(string(said)), strings.ToLower(s)) {
			t.Errorf("the verdict %s holds %q", said, s)
		}
	}
}

// checkFast fails if a verdict on 1 MiB takes far longer than linear time does,
// which is some seconds; quadratic time is hours.
func checkFast(t *testing.T, task *compiler.Task, pieces ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("long answers")
	}
	for i, piece := range pieces {
		if !taken(i) {
			continue
		}
		start := time.Now()
		judgeText(t, task, strings.Repeat(piece, 1<<20/len(piece)))
		if took := time.Since(start); took > 3*time.Minute {
			t.Errorf("1 MiB of %q took %v", piece, took)
		}
	}
}

// shapes returns pieces that are repeated to make long answers.
func shapes() []string {
	return []string{"a", "A ", "A\n", "(", "((a", "**", "the answer is ", "the answer is a\n", "\u0301", "e\u0301\u0323", "\u200b", "\u202e",
		"1", "1,", "1,000,", "1 ", "1e9", "-", "- 1 ", ".", "not ", "\ufdfa", "\xff", "Ａ", "重", "'", "a'", "+", "c+", "\n", " ", "½", "paris ", "paris\n"}
}

// several joins alternatives with each separator of an answer that lists them, in both
// orders.
func several(alternatives []string) []string {
	var out []string
	for _, sep := range []string{", ", " or ", "/", "\n", "; ", " and ", " | ", " ", "\n- ", ".\n", ", or ", " & ", ",", "\t", "\u2028", "\r\n", "\u200b, "} {
		out = append(out, strings.Join(alternatives, sep))
		backwards := slices.Clone(alternatives)
		slices.Reverse(backwards)
		out = append(out, strings.Join(backwards, sep))
	}
	return out
}

// TestTextDigits checks what asciiDigit relies on.
func TestTextDigits(t *testing.T) {
	for _, r := range unicode.Nd.R16 {
		if r.Stride != 1 || (r.Hi-r.Lo+1)%10 != 0 {
			t.Errorf("digits %x to %x are no runs of ten", r.Lo, r.Hi)
		}
	}
	for _, r := range unicode.Nd.R32 {
		if r.Stride != 1 || (r.Hi-r.Lo+1)%10 != 0 {
			t.Errorf("digits %x to %x are no runs of ten", r.Lo, r.Hi)
		}
	}
}
