package text_test

import (
	"fmt"
	"math/big"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/verifiers/text"
)

// A judge judges a text of any family.
type judge interface {
	Judge(text string) text.Verdict
}

// A form is one answer to a task, as testdata/README.md describes it.
type form struct {
	at     string // file and line
	family string
	task   judge
	text   string
	right  bool
	known  bool      // the verifier is known to be wrong about it
	rule   text.Rule // by which it is read; "" if the line does not say
}

func readForms(t testing.TB, file string) (all []form) {
	t.Helper()
	data := must.Read(t, filepath.Join("testdata", file))
	var fields map[string]string
	var task judge
	for i, line := range strings.Split(string(data), "\n") {
		at := fmt.Sprintf("%s:%d", file, i+1)
		mark, said, _ := strings.Cut(line, " ")
		switch mark {
		case "", "#":
		case "+", "-", "+!", "-!":
			if task == nil {
				task = taskOf(t, at, fields)
			}
			f := form{at: at, family: fields["family"], task: task, right: mark[0] == '+', known: strings.HasSuffix(mark, "!")}
			if rule, rest, ok := strings.Cut(said, " ¦ "); ok {
				f.rule, said = text.Rule(strings.TrimSpace(rule)), rest
			}
			f.text = strings.ReplaceAll(said, "⏎", "\n")
			all = append(all, f)
		default:
			key := strings.TrimSuffix(mark, ":")
			if strings.Contains(key, "_") {
				fields, task = map[string]string{"family": key, "question": said}, nil
			} else {
				fields[key] = said
			}
		}
	}
	return all
}

func taskOf(t testing.TB, at string, fields map[string]string) judge {
	t.Helper()
	list := func(key string) []string {
		if fields[key] == "" {
			return nil
		}
		return strings.Split(fields[key], " | ")
	}
	switch fields["family"] {
	case "multiple_choice":
		task := choiceOf(int(fields["answer"][0]-'A'), list("choices")...)
		return task
	case "short_answer":
		tolerance, _ := new(big.Rat).SetString(fields["tolerance"]) // nil if there is none
		return text.Short{Question: fields["question"], Accepted: list("accept"), Tolerance: tolerance}
	case "free_response":
		f1, err := strconv.ParseFloat("0"+fields["f1"], 64)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		if fields["f1"] == "" {
			f1 = 1
		}
		return text.Free{Accepted: list("accept"), Rejected: list("reject"), MinF1: f1}
	}
	t.Fatalf("%s: no family %q", at, fields["family"])
	return nil
}

func choiceOf(right int, choices ...string) text.Choice {
	return text.Choice{Choices: choices, Labels: len(choices), Right: []int{right}}
}

// TestAnswerForms: each answer of the tables is judged as its line says, known errors included.
func TestAnswerForms(t *testing.T) {
	for _, file := range []string{"forms.txt", "heldout.txt"} {
		t.Run(file, func(t *testing.T) {
			var right, wrong, lost, forged int
			rules := map[text.Rule]bool{}
			for _, f := range readForms(t, file) {
				v := f.task.Judge(f.text)
				passed := v.Reason == ""
				kind, result := "honest", "failed"
				if f.right {
					right++
				} else {
					wrong++
					kind = "forged"
				}
				if passed {
					result = "sealed"
				}
				t.Attr("verdict", f.family+" "+kind+" "+result)
				switch {
				case f.right && !passed:
					lost++
				case !f.right && passed:
					forged++
				}
				if (passed != f.right) != f.known {
					t.Errorf("%s: %q: reason %q, read %q by %s", f.at, f.text, v.Reason, v.Read, v.Rule)
				}
				if rules[f.rule] = true; f.rule != "" && v.Rule != f.rule {
					t.Errorf("%s: %q is read by %s, want %s", f.at, f.text, v.Rule, f.rule)
				}
			}
			t.Logf("%d of %d right answers fail, %d of %d wrong ones pass", lost, right, forged, wrong)
			if file == "forms.txt" {
				for _, rule := range []text.Rule{text.AnswerTag, text.Boxed, text.Hashes, text.Announced, text.JSON, text.Whole, text.FirstLine, text.LastLine} {
					if !rules[rule] {
						t.Errorf("no form is read by %s", rule)
					}
				}
			}
		})
	}
}
