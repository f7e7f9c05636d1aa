package export

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run/record"
)

// The log of Inspect, version 2 in its JSON form. Keys for which Inspect has a default may be missing.
type (
	inspectLog struct {
		Version int            `json:"version"`
		Status  string         `json:"status"`
		Eval    inspectEval    `json:"eval"`
		Plan    inspectPlan    `json:"plan"`
		Results inspectResults `json:"results"`
		Stats   inspectStats   `json:"stats"`
		Samples []sample       `json:"samples"`
	}
	inspectEval struct {
		ID      string         `json:"eval_id"`
		RunID   string         `json:"run_id"`
		Created time.Time      `json:"created"`
		Task    string         `json:"task"`
		TaskID  string         `json:"task_id"`
		Solver  string         `json:"solver"`
		Dataset inspectDataset `json:"dataset"`
		Model   string         `json:"model"`
		Config  struct {
			Epochs int `json:"epochs"`
		} `json:"config"`
		Packages map[string]string `json:"packages"`
	}
	inspectDataset struct {
		Name    string   `json:"name"`
		Samples int      `json:"samples"`
		IDs     []string `json:"sample_ids"`
	}
	inspectPlan struct {
		Name   string     `json:"name"`
		Steps  []struct{} `json:"steps"`
		Config struct{}   `json:"config"`
	}
	inspectResults struct {
		Total     int            `json:"total_samples"`
		Completed int            `json:"completed_samples"`
		Scores    []inspectScore `json:"scores"`
	}
	inspectScore struct {
		Name     string            `json:"name"`
		Scorer   string            `json:"scorer"`
		Scored   int               `json:"scored_samples"`
		Unscored int               `json:"unscored_samples"`
		Params   struct{}          `json:"params"`
		Metrics  map[string]metric `json:"metrics"`
	}
	metric struct {
		Name   string   `json:"name"`
		Value  float64  `json:"value"`
		Params struct{} `json:"params"`
	}
	inspectStats struct {
		Started   time.Time             `json:"started_at"`
		Completed time.Time             `json:"completed_at"`
		Usage     map[string]modelUsage `json:"model_usage"`
	}
	modelUsage struct {
		Input  int64 `json:"input_tokens"` // without cached ones
		Output int64 `json:"output_tokens"`
		Total  int64 `json:"total_tokens"`
		Cached int64 `json:"input_tokens_cache_read"`
	}
	sample struct {
		ID          string                 `json:"id"`
		Epoch       int                    `json:"epoch"`
		Input       string                 `json:"input"`
		Target      string                 `json:"target"` // always "": it is hidden
		Messages    []chatMessage          `json:"messages"`
		Output      modelOutput            `json:"output"`
		Scores      map[string]sampleScore `json:"scores"` // nil without a verdict
		Metadata    map[string]any         `json:"metadata"`
		Store       struct{}               `json:"store"`
		Events      []struct{}             `json:"events"`
		Usage       map[string]modelUsage  `json:"model_usage"`
		Total       float64                `json:"total_time"` // seconds
		Working     float64                `json:"working_time"`
		UUID        string                 `json:"uuid"`
		Error       *sampleError           `json:"error"`
		Attachments struct{}               `json:"attachments"`
	}
	chatMessage struct {
		ID       string     `json:"id"`
		Role     string     `json:"role"`
		Content  any        `json:"content"` // text, or a list of reasoning
		Calls    []chatCall `json:"tool_calls,omitempty"`
		Of       string     `json:"tool_call_id,omitempty"`
		Function string     `json:"function,omitempty"`
	}
	reasoning struct {
		Type string `json:"type"`
		Text string `json:"reasoning"`
	}
	chatCall struct {
		ID        string         `json:"id"`
		Type      string         `json:"type"`
		Function  string         `json:"function"`
		Arguments map[string]any `json:"arguments"`
	}
	modelOutput struct {
		Model      string   `json:"model"`
		Choices    []choice `json:"choices"`
		Completion string   `json:"completion"`
	}
	choice struct {
		Message    chatMessage `json:"message"`
		StopReason string      `json:"stop_reason"`
	}
	sampleScore struct {
		Value       float64        `json:"value"`
		Answer      string         `json:"answer"`
		Explanation string         `json:"explanation"`
		Metadata    map[string]any `json:"metadata"`
	}
	sampleError struct {
		Message   string `json:"message"`
		Traceback string `json:"traceback"`
		ANSI      string `json:"traceback_ansi"`
	}
)

// verdict is the name of the only score.
const verdict = "verdict"

// Inspect writes a run as a log of Inspect, a sample for each attempt. The private parts of records are
// never in it.
func Inspect(ctx context.Context, w io.Writer, s *report.Source) error {
	l := inspectLog{Version: 2, Status: "success", Plan: inspectPlan{Name: "plan", Steps: []struct{}{}}, Samples: []sample{}}
	if s.Planned == nil || *s.Planned > len(s.Attempts) {
		l.Status = "cancelled"
	}
	l.Eval.Task, l.Eval.Packages, l.Stats.Usage = "sbench", map[string]string{}, map[string]modelUsage{}
	passed, scored, sum := 0, 0, 0.0
	for at := range s.Attempts {
		rec, err := s.Record(at)
		if err != nil {
			return err
		}
		d, err := s.Detail(ctx, at, maxTexts)
		if err != nil {
			return err
		}
		l.describe(rec)
		one := sampleOf(rec, trajectoryOf("", s.Attempts[at], d, agent{}))
		if one.Scores != nil {
			scored++
			sum += one.Scores[verdict].Value
		}
		if rec.VerificationStatus == record.Passed {
			passed++
		}
		l.Samples = append(l.Samples, one)
	}
	l.Eval.Dataset.Samples = len(l.Eval.Dataset.IDs)
	l.Results = inspectResults{len(l.Samples), scored, []inspectScore{{
		Name: verdict, Scorer: "sbench", Scored: scored, Unscored: len(l.Samples) - scored,
		Metrics: map[string]metric{
			"accuracy": {Name: "accuracy", Value: float64(passed) / float64(max(1, scored))},
			"mean":     {Name: "mean", Value: sum / float64(max(1, scored))},
		},
	}}}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(l)
}

// describe adds an attempt to what the log says of the whole run.
func (l *inspectLog) describe(rec record.Record) {
	e := &l.Eval
	if e.RunID == "" {
		e.ID, e.RunID, e.TaskID, e.Task, e.Dataset.Name = uuid(rec.RunID), rec.RunID, uuid(rec.BenchmarkID), rec.BenchmarkID, rec.BenchmarkID
		e.Solver, e.Model = rec.Provenance.Harness.Type, modelOf(rec)
		e.Created, l.Stats.Started = rec.StartedAt, rec.StartedAt
	}
	if rec.Attempt == 1 {
		e.Dataset.IDs = append(e.Dataset.IDs, rec.TaskID)
	}
	e.Config.Epochs = max(e.Config.Epochs, rec.Attempt)
	if rec.EndedAt.After(l.Stats.Completed) {
		l.Stats.Completed = rec.EndedAt
	}
	for model, u := range usageOf(rec) {
		sum := l.Stats.Usage[model]
		l.Stats.Usage[model] = modelUsage{sum.Input + u.Input, sum.Output + u.Output, sum.Total + u.Total, sum.Cached + u.Cached}
	}
}

// modelOf returns the model of an attempt's agent, or the harness if there is no agent.
func modelOf(rec record.Record) string {
	if rec.Agent == nil || rec.Agent.Model == "" {
		return rec.Provenance.Harness.Type
	}
	return providerOf(rec.Agent.Name) + "/" + rec.Agent.Model
}

// usageOf returns what the relay counted.
func usageOf(rec record.Record) map[string]modelUsage {
	if rec.Egress == nil || rec.Egress.Relay == nil {
		return map[string]modelUsage{}
	}
	u := rec.Egress.Relay.Usage
	return map[string]modelUsage{modelOf(rec): {u.Input - u.Cached, u.Output, u.Input + u.Output, u.Cached}}
}

func sampleOf(rec record.Record, t trajectory) sample {
	s := sample{
		ID: rec.TaskID, Epoch: rec.Attempt, Input: t.Steps[0].Message, Events: []struct{}{}, Usage: usageOf(rec), UUID: uuid(rec.Digest),
		Total: rec.EndedAt.Sub(rec.StartedAt).Seconds(), Working: rec.Times.Producer + rec.Times.Verifier,
		Metadata: map[string]any{"family": rec.TaskType, "status": rec.VerificationStatus, "try": rec.Try},
	}
	for _, step := range t.Steps {
		s.Messages = append(s.Messages, messagesOf(step)...)
	}
	answer := ""
	switch {
	case rec.CandidateText != nil:
		answer = *rec.CandidateText
	case rec.CandidatePatch != nil:
		answer = *rec.CandidatePatch
	}
	s.Output = modelOutput{modelOf(rec), []choice{{chatMessage{ID: "answer", Role: "assistant", Content: answer}, "stop"}}, answer}
	why := map[string]any{"assurance": rec.Assurance, "reason": rec.FailureReason, "phase": rec.FailurePhase}
	if rec.Score != nil {
		s.Scores = map[string]sampleScore{verdict: {*rec.Score, answer, rec.FailureMessage, why}}
	} else {
		s.Error = &sampleError{Message: rec.FailureReason + ": " + rec.FailureMessage}
	}
	return s
}

// messagesOf returns a step as messages of a chat: a call of a tool and its result are one each.
func messagesOf(s step) []chatMessage {
	role := map[string]string{fromUser: "user", fromSystem: "system", fromAgent: "assistant"}[s.Source]
	first := chatMessage{ID: fmt.Sprintf("step_%d", s.ID), Role: role, Content: s.Message}
	if s.Reasoning != "" {
		first.Content = []reasoning{{"reasoning", s.Reasoning}}
	}
	for _, c := range s.Calls {
		first.Calls = append(first.Calls, chatCall{c.ID, "function", c.Function, c.Arguments})
	}
	all := []chatMessage{first}
	if s.Observation != nil {
		for _, r := range s.Observation.Results {
			all = append(all, chatMessage{ID: "result of " + r.Call, Role: "tool", Content: r.Content, Of: r.Call, Function: s.Calls[0].Function})
		}
	}
	return all
}
