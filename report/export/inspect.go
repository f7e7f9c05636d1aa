package export

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run/record"
)

// inspectLog is a log of Inspect, version 2 in its JSON form. Inspect reads the keys in this order, up to the samples.
// Keys for which it has a default may be missing.
type inspectLog struct {
	Version int      `json:"version"`
	Status  string   `json:"status"`
	Eval    object   `json:"eval"`
	Plan    object   `json:"plan"`
	Results object   `json:"results"`
	Stats   object   `json:"stats"`
	Samples []object `json:"samples"`
}

// modelUsage is what a model has used. Input does not include Cached.
type modelUsage struct {
	Input  int64 `json:"input_tokens"`
	Output int64 `json:"output_tokens"`
	Total  int64 `json:"total_tokens"`
	Cached int64 `json:"input_tokens_cache_read"`
}

// verdict is the name of the only score.
const verdict = "verdict"

// Inspect writes a run as a log of Inspect, a sample for each attempt. The private parts of records are
// never in it.
func Inspect(ctx context.Context, w io.Writer, s *report.Source) error {
	var first record.Record
	var end time.Time
	passed, scored, sum, epochs := 0, 0, 0.0, 0
	samples, ids, usage := []object{}, []string{}, map[string]modelUsage{}
	for at := range s.Attempts {
		d, err := s.Detail(ctx, at, maxTexts)
		if err != nil {
			return err
		}
		rec := d.Record
		if at == 0 {
			first = rec
		}
		if rec.Attempt == 1 {
			ids = append(ids, rec.TaskID)
		}
		if rec.EndedAt.After(end) {
			end = rec.EndedAt
		}
		if rec.Score != nil {
			scored++
			sum += *rec.Score
		}
		if rec.VerificationStatus == record.Passed {
			passed++
		}
		for model, u := range usageOf(rec) {
			all := usage[model]
			usage[model] = modelUsage{all.Input + u.Input, all.Output + u.Output, all.Total + u.Total, all.Cached + u.Cached}
		}
		epochs = max(epochs, rec.Attempt)
		samples = append(samples, sampleOf(rec, trajectoryOf("", s.Attempts[at], d, agent{})))
	}
	status := "success"
	if s.Planned == 0 || s.Planned > len(s.Attempts) {
		status = "cancelled"
	}
	metric := func(name string, sum float64) object {
		return object{"name": name, "value": sum / float64(max(1, scored)), "params": object{}}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(inspectLog{
		Version: 2, Status: status,
		Eval: object{
			"eval_id": uuid(first.RunID), "run_id": first.RunID, "created": first.StartedAt, "task": cmp.Or(first.BenchmarkID, "sbench"), "task_id": uuid(first.BenchmarkID),
			"solver": first.Provenance.Harness.Type, "model": modelOf(first), "config": object{"epochs": epochs}, "packages": object{},
			"dataset": object{"name": first.BenchmarkID, "samples": len(ids), "sample_ids": ids},
		},
		Plan: object{"name": "plan", "steps": []object{}, "config": object{}},
		Results: object{"total_samples": len(samples), "completed_samples": scored, "scores": []object{{
			"name": verdict, "scorer": "sbench", "scored_samples": scored, "unscored_samples": len(samples) - scored, "params": object{},
			"metrics": object{"accuracy": metric("accuracy", float64(passed)), "mean": metric("mean", sum)},
		}}},
		Stats:   object{"started_at": first.StartedAt, "completed_at": end, "model_usage": usage},
		Samples: samples,
	})
}

// modelOf returns the model of an attempt's agent, or the harness if there is no agent.
func modelOf(rec record.Record) string {
	if rec.Agent == nil || rec.Agent.Model == "" {
		return rec.Provenance.Harness.Type
	}
	return providerOf(rec.Agent.Name) + "/" + rec.Agent.Model
}

func usageOf(rec record.Record) map[string]modelUsage {
	if rec.Egress == nil || rec.Egress.Relay == nil {
		return map[string]modelUsage{}
	}
	u := rec.Egress.Relay.Usage
	return map[string]modelUsage{modelOf(rec): {u.Input - u.Cached, u.Output, u.Input + u.Output, u.Cached}}
}

// sampleOf returns an attempt as a sample. Its target is hidden.
func sampleOf(rec record.Record, t trajectory) object {
	messages, answer := []object{}, ""
	for _, step := range t.Steps {
		messages = append(messages, messagesOf(step)...)
	}
	switch {
	case rec.CandidateText != nil:
		answer = *rec.CandidateText
	case rec.CandidatePatch != nil:
		answer = *rec.CandidatePatch
	}
	last := object{"message": object{"id": "answer", "role": "assistant", "content": answer}, "stop_reason": "stop"}
	s := object{
		"id": rec.TaskID, "epoch": rec.Attempt, "uuid": uuid(rec.Digest), "input": t.Steps[0].Message, "target": "", "messages": messages,
		"output":   object{"model": modelOf(rec), "choices": []object{last}, "completion": answer},
		"metadata": object{"family": rec.TaskType, "status": rec.VerificationStatus, "try": rec.Try},
		"store":    object{}, "events": []object{}, "attachments": object{}, "model_usage": usageOf(rec), "scores": nil, "error": nil,
		"total_time": rec.EndedAt.Sub(rec.StartedAt).Seconds(), "working_time": rec.Times.Producer + rec.Times.Verifier,
	}
	if rec.Score == nil {
		s["error"] = object{"message": rec.FailureReason + ": " + rec.FailureMessage, "traceback": "", "traceback_ansi": ""}
		return s
	}
	why := object{"assurance": rec.Assurance, "reason": rec.FailureReason, "phase": rec.FailurePhase}
	s["scores"] = object{verdict: object{"value": *rec.Score, "answer": answer, "explanation": rec.FailureMessage, "metadata": why}}
	return s
}

// messagesOf returns a step as messages of a chat: a call of a tool and its result are one each.
func messagesOf(s step) []object {
	role := map[string]string{fromUser: "user", fromSystem: "system", fromAgent: "assistant"}[s.Source]
	first := object{"id": fmt.Sprintf("step_%d", s.ID), "role": role, "content": s.Message}
	if s.Reasoning != "" {
		first["content"] = []object{{"type": "reasoning", "reasoning": s.Reasoning}}
	}
	var calls []object
	for _, c := range s.Calls {
		calls = append(calls, object{"id": c.ID, "type": "function", "function": c.Function, "arguments": c.Arguments})
	}
	if calls != nil {
		first["tool_calls"] = calls
	}
	all := []object{first}
	if s.Observation != nil {
		for _, r := range s.Observation.Results {
			all = append(all, object{"id": "result of " + r.Call, "role": "tool", "content": r.Content, "tool_call_id": r.Call, "function": s.Calls[0].Function})
		}
	}
	return all
}
