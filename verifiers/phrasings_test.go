package verifiers_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/verifiers"
)

// A phrasing is one answer to a task, as testdata/texts/README.md describes it.
type phrasing struct {
	at    string // file and line
	task  *compiler.Task
	text  string
	right bool
	known bool // the verifier is known to be wrong about it
}

func readPhrasings(t testing.TB, set string) []phrasing {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "texts", set+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	var all []phrasing
	var fields map[string]string
	var task *compiler.Task
	for i, line := range strings.Split(string(data), "\n") {
		at := fmt.Sprintf("%s.txt:%d", set, i+1)
		mark, text, _ := strings.Cut(line, " ")
		switch mark {
		case "", "#":
		case "+", "-", "+!", "-!":
			if task == nil {
				task = phrasedTask(t, at, fields)
			}
			all = append(all, phrasing{at, task, strings.ReplaceAll(text, "⏎", "\n"), mark[0] == '+', strings.HasSuffix(mark, "!")})
		default:
			key := strings.TrimSuffix(mark, ":")
			if strings.Contains(key, "_") {
				fields, task = map[string]string{"family": key, "question": text}, nil
			} else {
				fields[key] = text
			}
		}
	}
	return all
}

// phrasedTask makes the task that the fields of a block describe.
func phrasedTask(t testing.TB, at string, fields map[string]string) *compiler.Task {
	t.Helper()
	input, eval := object{"question": fields["question"]}, object{}
	list := func(key string) []string { return strings.Split(fields[key], " | ") }
	number := func(key string) json.Number { return json.Number(fields[key]) }
	family := fields["family"]
	switch family {
	case "short_answer":
		eval["accepted_answers"] = list("accept")
		if fields["tolerance"] != "" {
			eval["tolerance"] = number("tolerance")
		}
	case "multiple_choice":
		input["choices"], eval["answer"] = list("choices"), fields["answer"]
	case "free_response":
		input = object{"prompt": fields["question"]}
		rubric := object{"type": "contains_any", "accepted_answers": list("accept")}
		if fields["reject"] != "" {
			rubric["rejected_answers"] = list("reject")
		}
		if fields["f1"] != "" {
			rubric["min_token_f1"] = number("f1")
		}
		eval["rubric"] = rubric
	}
	task := textTask(t, family, input, eval)
	if task == nil {
		t.Fatalf("%s: the task of this block does not compile", at)
	}
	return task
}

// A tally counts the answers that passed, that are right, and both.
type tally struct{ passed, right, both int }

func (n tally) precision() float64 { return float64(n.both) / float64(n.passed) }
func (n tally) recall() float64    { return float64(n.both) / float64(n.right) }

func (n *tally) add(right, passed bool) {
	if passed {
		n.passed++
	}
	if right {
		n.right++
	}
	if passed && right {
		n.both++
	}
}

// TestPhrasings: each answer is judged as its line says, known errors included.
func TestPhrasings(t *testing.T) {
	for _, set := range []string{"tuned", "heldout"} {
		t.Run(set, func(t *testing.T) {
			var sum tally
			all := readPhrasings(t, set)
			for _, p := range all {
				v := judgeText(t, p.task, p.text)
				passed := v.Status == verifiers.Passed
				sum.add(p.right, passed)
				if wrong := passed != p.right; wrong != p.known {
					t.Errorf("%s: %q: %s %s, known error %t", p.at, p.text, v.Status, v.Reason, p.known)
				}
			}
			t.Logf("%d answers, precision %.4f, recall %.4f", len(all), sum.precision(), sum.recall())
		})
	}
}

// BenchmarkPhrasings reports precision and recall of the verifiers of texts.
func BenchmarkPhrasings(b *testing.B) {
	for _, set := range []string{"tuned", "heldout"} {
		b.Run(set, func(b *testing.B) {
			all := readPhrasings(b, set)
			var sum tally
			for b.Loop() {
				sum = tally{}
				for _, p := range all {
					sum.add(p.right, judgeText(b, p.task, p.text).Status == verifiers.Passed)
				}
			}
			b.ReportMetric(sum.precision(), "precision")
			b.ReportMetric(sum.recall(), "recall")
			b.ReportMetric(float64(len(all)), "answers")
		})
	}
}
