// Package export writes the results of runs in the forms of other programs: as a job directory of Harbor and as
// a log of Inspect, which their viewers show, as JUnit XML, and as CSV.
package export

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/verifiers"
)

// maxTexts bounds the texts of one attempt, in bytes.
const maxTexts = 8 << 20

// An object is an object of JSON.
type object = map[string]any

// A trial is an attempt as Harbor's viewer reads it.
type trial struct {
	name      string
	agent     agent
	exception string // the type of the exception that ended it; "" for none
	message   string // of the exception
	rewards   map[string]float64
	result    object // the content of result.json
}

// An evaluation sums up the trials of an agent with a model on a benchmark.
type evaluation struct {
	Trials     int                            `json:"n_trials"`
	Errors     int                            `json:"n_errors"`
	Metrics    []map[string]float64           `json:"metrics"`
	PassAtK    map[string]float64             `json:"pass_at_k"`
	Rewards    map[string]map[string][]string `json:"reward_stats"`
	Exceptions map[string][]string            `json:"exception_stats"`

	sums map[string]float64 // of rewards, by name
}

// A job sums up all trials.
type job struct {
	started, finished time.Time
	trials, errors    int
	evaluations       map[string]*evaluation
}

// Harbor writes the runs as a new directory dir, one job with a trial for each attempt. Trajectories lie
// beside the agents' own output. The private parts of records are in it if the sources show them.
func Harbor(ctx context.Context, dir string, sources []*report.Source) (err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: name another directory", dir)
	} else if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	all := job{evaluations: map[string]*evaluation{}}
	for _, s := range sources {
		for at := range s.Attempts {
			if err := all.add(ctx, dir, s, at); err != nil {
				return err
			}
		}
	}
	for _, e := range all.evaluations {
		e.Metrics = []map[string]float64{e.means()}
	}
	return errors.Join(writeJSON(dir, "config.json", object{}), writeJSON(dir, "lock.json", object{}), writeJSON(dir, "result.json", object{
		"id": uuid(dir), "started_at": all.started, "finished_at": all.finished, "n_total_trials": all.trials,
		"stats": object{"n_completed_trials": all.trials, "n_errored_trials": all.errors, "evals": all.evaluations},
	}))
}

// add writes the trial of an attempt, and counts it.
func (j *job) add(ctx context.Context, dir string, s *report.Source, at int) error {
	a := s.Attempts[at]
	d, err := s.Detail(ctx, at, maxTexts)
	if err != nil {
		return err
	}
	rec := d.Record
	t := trialOf(dir, rec, d.Scores)
	trialDir := filepath.Join(dir, t.name)
	j.count(t, rec)
	for _, sub := range []string{"agent", "verifier", "artifacts"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(trialDir, sub), 0o755))
	}
	err = errors.Join(err,
		writeJSON(trialDir, "config.json", t.result["config"]), writeJSON(trialDir, "lock.json", object{}), writeJSON(trialDir, "result.json", t.result),
		writeJSON(trialDir, "agent/trajectory.json", trajectoryOf(uuid(rec.Digest), a, d, t.agent)),
		writeText(trialDir, "verifier/test-stdout.txt", whole(d.Verifier.Stdout)), writeText(trialDir, "verifier/test-stderr.txt", whole(d.Verifier.Stderr)),
		writeText(trialDir, "agent/stdout.txt", whole(d.Producer.Stdout)), writeText(trialDir, "agent/stderr.txt", whole(d.Producer.Stderr)),
	)
	if t.exception != "" {
		err = errors.Join(err, writeText(trialDir, "exception.txt", t.exception+": "+t.message))
	}
	if rec.CandidateText != nil {
		err = errors.Join(err, writeText(trialDir, "artifacts/candidate.txt", *rec.CandidateText))
	}
	if rec.CandidatePatch != nil {
		err = errors.Join(err, writeText(trialDir, "artifacts/candidate.patch", *rec.CandidatePatch))
	}
	for _, l := range d.Logs {
		err = errors.Join(err, writeText(trialDir, "verifier/"+strings.ReplaceAll(l.Name, "/", "+"), whole(l.Text)))
	}
	for _, l := range rec.Logs {
		if path.Base(l.Path) == record.TraceFile && err == nil {
			err = s.CopyLog(l, filepath.Join(trialDir, "agent", stepName(l.Path)))
		}
	}
	return err
}

// stepName returns the name of a log, with the name of its step's directory before it, if it has one.
func stepName(name string) string {
	if dir := path.Base(path.Dir(name)); strings.HasPrefix(dir, record.StepPrefix) {
		return dir + "+" + path.Base(name)
	}
	return path.Base(name)
}

// otherBytes matches what a trial's name has no place for.
var otherBytes = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// trialOf returns the trial of a record. exact are the scores of its private part, if that is shown.
func trialOf(dir string, rec record.Record, exact []record.PrivateScore) trial {
	sum := sha256.Sum256([]byte(rec.Digest)) // runs of a pack can share their id
	h := rec.Provenance.Harness
	t := trial{
		name:  fmt.Sprintf("%.32s__%x", otherBytes.ReplaceAllString(rec.TaskID, "-"), sum[:4]),
		agent: agent{Name: h.Type, Version: cmp.Or(h.Version, "unknown")},
	}
	task, done := object{"path": rec.TaskID}, rec.StartedAt.Add(seconds(rec.Times.Producer))
	info := object{"name": t.agent.Name, "version": t.agent.Version, "model_info": nil}
	t.result = object{
		"id": uuid(rec.Digest), "task_name": rec.TaskID, "trial_name": t.name, "trial_uri": "file://" + filepath.Join(dir, t.name), "task_id": task,
		"task_checksum": strings.TrimPrefix(rec.Provenance.Row, "sha256:"), "config": object{"task": task}, "agent_info": info,
		"started_at": rec.StartedAt, "finished_at": rec.EndedAt, "agent_execution": object{"started_at": rec.StartedAt, "finished_at": done},
		"agent_result": nil, "verifier_result": nil, "verifier": nil,
	}
	if rec.Agent != nil && rec.Agent.Model != "" {
		t.agent.Model = rec.Agent.Model
		info["model_info"] = object{"name": rec.Agent.Model, "provider": providerOf(rec.Agent.Name)}
	}
	if rec.Egress != nil && rec.Egress.Relay != nil {
		u := rec.Egress.Relay.Usage
		t.result["agent_result"] = object{"n_input_tokens": u.Input, "n_cache_tokens": u.Cached, "n_output_tokens": u.Output, "cost_usd": rec.Egress.Relay.CostUSD}
	}
	if rec.Score != nil {
		left, ok := rec.VerifierMetadata[verifiers.Reward].(float64)
		if !ok {
			left = *rec.Score
		}
		if t.rewards = rewardsOf(*rec.Score, left, "", exact); rec.FailureReason != verifierTimeout || rec.Steps != nil {
			t.result["verifier_result"] = object{"rewards": t.rewards}
		}
		t.result["verifier"] = object{"started_at": done, "finished_at": done.Add(seconds(rec.Times.Verifier))}
	}
	if len(rec.Steps) > 0 {
		t.result["step_results"] = stepsOf(rec, exact)
	}
	t.exception, t.message = exceptionOf(rec.VerificationStatus, rec.FailureReason, rec.FailureMessage, rec.ProducerFailure)
	t.result["exception_info"] = exceptionInfo(t.exception, t.message, rec.EndedAt)
	return t
}

// stepsOf returns the results of a record's steps.
func stepsOf(rec record.Record, exact []record.PrivateScore) (all []object) {
	at := rec.StartedAt
	during := func(n float64) object {
		begun := at
		at = at.Add(seconds(n))
		return object{"started_at": begun, "finished_at": at}
	}
	for _, s := range rec.Steps {
		r := object{"step_name": s.Name, "agent_result": nil, "verifier_result": nil, "agent_execution": during(s.Times.Producer), "verifier": nil}
		if s.Status.Scored() {
			r["verifier"] = during(s.Times.Verifier)
		}
		if s.Status.Scored() && s.FailureReason != verifierTimeout {
			r["verifier_result"] = object{"rewards": rewardsOf(s.Score, s.Score, s.Name, exact)}
		}
		exception, message := exceptionOf(s.Status, s.FailureReason, s.FailureMessage, s.ProducerFailure)
		r["exception_info"] = exceptionInfo(exception, message, at)
		all = append(all, r)
	}
	return all
}

// rewardsOf returns the rewards by name of a scored trial or step: from exact, or else the checker's. A score
// that does not come from the reward, as for a forged candidate, is the only reward.
func rewardsOf(score, left float64, step string, exact []record.PrivateScore) map[string]float64 {
	i := slices.IndexFunc(exact, func(p record.PrivateScore) bool {
		return p.Step == step && verifiers.Rounded(p.Score) == score && len(p.Rewards) > 0
	})
	switch {
	case i >= 0:
		return exact[i].Rewards
	case min(max(left, 0), 1) == score:
		return map[string]float64{"reward": left}
	}
	return map[string]float64{"reward": score}
}

// verifierTimeout is the reason of a checker that reached its time limit. Harbor has no result of it.
const verifierTimeout = "verifier_timeout"

// exceptionOf returns the exception that Harbor has for the end of a trial or a step, and its message; "" for none.
func exceptionOf(status record.Status, reason, message string, producer *candidate.Failure) (name, text string) {
	switch {
	case status == record.Error || status == record.Pending:
		return reason, message
	case producer != nil && producer.Reason == "producer_timeout":
		return "AgentTimeoutError", producer.Message
	case producer != nil:
		return "NonZeroAgentExitCodeError", producer.Message
	case reason == verifierTimeout:
		return "VerifierTimeoutError", message
	}
	return "", ""
}

// exceptionInfo returns what a result says of an exception; nil for none.
func exceptionInfo(name, message string, at time.Time) any {
	if name == "" {
		return nil
	}
	return object{"exception_type": name, "exception_message": message, "exception_traceback": "", "occurred_at": at}
}

func providerOf(name string) string {
	if c, ok := harness.CLIOf(name); ok {
		return string(c.Provider)
	}
	return "unknown"
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func (j *job) count(t trial, rec record.Record) {
	if j.trials == 0 || rec.StartedAt.Before(j.started) {
		j.started = rec.StartedAt
	}
	if rec.EndedAt.After(j.finished) {
		j.finished = rec.EndedAt
	}
	j.trials++
	names := []string{t.agent.Name, t.agent.Model, rec.BenchmarkID}
	if t.agent.Model == "" {
		names = slices.Delete(names, 1, 2)
	}
	name := strings.Join(names, "__")
	e := j.evaluations[name]
	if e == nil {
		e = &evaluation{PassAtK: map[string]float64{}, Rewards: map[string]map[string][]string{}, Exceptions: map[string][]string{}, sums: map[string]float64{}}
		j.evaluations[name] = e
	}
	e.Trials++
	if t.exception != "" {
		j.errors++
		e.Errors++
		e.Exceptions[t.exception] = append(e.Exceptions[t.exception], t.name)
	}
	for key, n := range t.rewards {
		if e.Rewards[key] == nil {
			e.Rewards[key] = map[string][]string{}
		}
		value := strconv.FormatFloat(n, 'g', -1, 64)
		e.Rewards[key][value] = append(e.Rewards[key][value], t.name)
		e.sums[key] += n
	}
}

// means returns the mean of the only reward, or the means of all rewards by name. A trial without a reward counts as 0.
func (e *evaluation) means() map[string]float64 {
	means := map[string]float64{}
	for key, sum := range e.sums {
		if len(e.sums) == 1 {
			key = "mean"
		}
		means[key] = sum / float64(e.Trials)
	}
	if len(means) == 0 {
		means["mean"] = 0
	}
	return means
}

// uuid returns a UUID (RFC 9562, version 8) made of a text.
func uuid(text string) string {
	b := sha256.Sum256([]byte(text))
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

func writeJSON(dir, name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), append(text, '\n'), 0o644)
}

// writeText writes a text; none if it is empty.
func writeText(dir, name, text string) error {
	if text == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
}
