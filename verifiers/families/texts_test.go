package families_test

import (
	"context"
	"testing"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/families"
)

// TestTexts: a row's values reach the judging of its answers, and the verdict says what was read.
func TestTexts(t *testing.T) {
	type object = map[string]any
	choices := object{"question": "?", "choices": []string{"London", "Paris"}}
	for _, tt := range []struct {
		name, family string
		input, eval  object
		text         string
		status       verifiers.Status
		reason       string
		read, rule   string
	}{
		{"label", "multiple_choice", choices, object{"answer": "B"}, "The answer is B. It is large.", verifiers.Passed, "", "B. It is large.", "announced"},
		{"index", "multiple_choice", choices, object{"answer": []any{0, 1}}, "Paris", verifiers.Passed, "", "Paris", "whole"},
		{"other text", "multiple_choice", choices, object{"answer": "Rome"}, "Rome", verifiers.Passed, "", "Rome", "whole"},
		{"other text has no label", "multiple_choice", choices, object{"answer": "Rome"}, "C", verifiers.Failed, "no_answer", "C", "whole"},
		{"wrong", "multiple_choice", choices, object{"answer": "B"}, "A", verifiers.Failed, "wrong_answer", "A", "whole"},
		{"pattern", "multiple_choice", choices, object{"answer": "B", "answer_pattern": `\[(.)\]`}, "A [B]", verifiers.Passed, "", "B", "pattern"},
		{"tolerance", "short_answer", object{"question": "?"}, object{"accepted_answers": []any{4.2}, "tolerance": 0.3}, "4.5", verifiers.Passed, "", "4.5", "whole"},
		{"no tolerance", "short_answer", object{"question": "?"}, object{"accepted_answers": []any{42}}, "42.01", verifiers.Failed, "wrong_answer", "42.01", "whole"},
		{"short pattern", "short_answer", object{"question": "?"}, object{"accepted_answers": []any{42}, "answer_pattern": `=(\d+)`}, "=42 or 43", verifiers.Passed, "", "42", "pattern"},
		{"free", "free_response", object{"prompt": "?"}, object{"rubric": object{"type": "contains_any", "accepted_answers": []string{"x"}, "rejected_answers": []string{"y"}}}, "x, y", verifiers.Failed, "rejected_answer", "x, y", "whole"},
		{"prose", "free_response", object{"prompt": "?"}, object{"rubric": "good style"}, "x", verifiers.Pending, "no_structured_rubric", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			task := textTask(t, tt.family, tt.input, tt.eval)
			v, err := families.For(task).Verify(context.Background(), nil, verifiers.Input{Task: task, Candidate: candidate.Candidate{Text: tt.text}})
			must.Do(t, err)
			read, _ := v.Metadata["read"].(string)
			rule, _ := v.Metadata["rule"].(string)
			if v.Status != tt.status || v.Reason != tt.reason || read != tt.read || rule != tt.rule || (v.Status == verifiers.Passed) != (v.Message == "") {
				t.Errorf("%+v", v)
			}
		})
	}
}

func textTask(t *testing.T, name string, input, eval any) *compiler.Task {
	t.Helper()
	row := must.JSON(t, map[string]any{"id": "r", "family": name, "input": input, "eval": eval})
	task, _ := packtest.Task(t, string(row))
	return task
}
