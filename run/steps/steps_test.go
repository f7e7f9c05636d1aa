package steps_test

import (
	"fmt"
	"testing"

	"github.com/securebench/sbench/internal/test/packtest"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/steps"
)

// TestSum: a task passes if its rewards are 1 on average, and no step that counts has failed. Its
// record has rounded rewards.
func TestSum(t *testing.T) {
	const passed, failed = record.Passed, record.Failed
	type rewards = map[string]float64
	for _, tt := range []struct {
		name    string
		made    []record.Status
		rewards []rewards
		score   float64
		want    record.Status
	}{
		{"six times one", []record.Status{passed, passed, passed, passed, passed, passed}, []rewards{{"reward": 1}, {"reward": 1}, {"reward": 1}, {"reward": 1}, {"reward": 1}, {"reward": 1}}, 1, passed},
		{"ten names", []record.Status{passed}, []rewards{{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1, "j": 1}}, 1, passed},
		{"a half", []record.Status{passed, failed}, []rewards{{"reward": 1}, {"reward": 0}}, 0.5, failed},
		{"many digits", []record.Status{failed}, []rewards{{"reward": 0.123456789}}, 0.1235, failed},
		{"almost one", []record.Status{failed}, []rewards{{"reward": 0.99999999}}, 0.9999, failed},
		{"below zero", []record.Status{failed}, []rewards{{"reward": -0.00000001}}, 0, failed},
		{"two for none", []record.Status{passed, failed}, []rewards{{"reward": 2}, {"reward": 0}}, 1, failed},
		{"a reward that was refused", []record.Status{passed, failed}, []rewards{{"reward": 1}, {"reward": 1}}, 1, failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rows := ""
			for i := range tt.made {
				rows += fmt.Sprintf(`{"id": "t/%d", "family": "terminal_task", "step": {"task": "t"}, "input": {"instructions": "x"}, "eval": {"checker": {"command": "true"}}, "environment": {"image": "x", "candidate": "machine"}}`+"\n", i)
			}
			task, _ := packtest.Task(t, rows)
			var rec record.Record
			for _, status := range tt.made {
				rec.Steps = append(rec.Steps, record.Step{Status: status})
			}
			steps.Sum(&rec, task.Steps(), tt.rewards, "")
			steps.Round(&rec)
			if rec.VerificationStatus != tt.want || *rec.Score != tt.score {
				t.Errorf("%s, %v, %v", rec.VerificationStatus, *rec.Score, rec.VerifierMetadata)
			}
		})
	}
}
