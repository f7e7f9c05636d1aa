// Package export writes the results of runs in the forms of other programs: as a job directory of Harbor and as
// a log of Inspect, which their viewers show, as JUnit XML, and as CSV.
package export

import (
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

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run/record"
)

// maxTexts bounds the texts of one attempt, in bytes.
const maxTexts = 8 << 20

type taskID struct {
	Path string `json:"path"`
}

type modelInfo struct {
	Name     string `json:"name"`
	Provider string `json:"provider"`
}

type agentInfo struct {
	Name    string     `json:"name"`
	Version string     `json:"version"`
	Model   *modelInfo `json:"model_info"`
}

type agentResult struct {
	Input  int64   `json:"n_input_tokens"`
	Cached int64   `json:"n_cache_tokens"`
	Output int64   `json:"n_output_tokens"`
	Cost   float64 `json:"cost_usd"`
}

type verifierResult struct {
	Rewards map[string]float64 `json:"rewards"`
}

type exceptionInfo struct {
	Type      string    `json:"exception_type"`
	Message   string    `json:"exception_message"`
	Traceback string    `json:"exception_traceback"`
	At        time.Time `json:"occurred_at"`
}

type timing struct {
	Started  time.Time `json:"started_at"`
	Finished time.Time `json:"finished_at"`
}

type trialConfig struct {
	Task taskID `json:"task"`
}

type trial struct {
	ID        string          `json:"id"`
	Task      string          `json:"task_name"`
	Name      string          `json:"trial_name"`
	URI       string          `json:"trial_uri"`
	TaskID    taskID          `json:"task_id"`
	Checksum  string          `json:"task_checksum"`
	Config    trialConfig     `json:"config"`
	Agent     agentInfo       `json:"agent_info"`
	Result    *agentResult    `json:"agent_result"`
	Verifier  *verifierResult `json:"verifier_result"`
	Exception *exceptionInfo  `json:"exception_info"`
	timing
	AgentTime    *timing `json:"agent_execution"`
	VerifierTime *timing `json:"verifier"`
}

type evaluation struct {
	Trials     int                            `json:"n_trials"`
	Errors     int                            `json:"n_errors"`
	Metrics    []map[string]float64           `json:"metrics"`
	PassAtK    map[string]float64             `json:"pass_at_k"`
	Rewards    map[string]map[string][]string `json:"reward_stats"`
	Exceptions map[string][]string            `json:"exception_stats"`

	sum float64 // of rewards
}

type stats struct {
	Completed   int                    `json:"n_completed_trials"`
	Errored     int                    `json:"n_errored_trials"`
	Evaluations map[string]*evaluation `json:"evals"`
}

type job struct {
	ID string `json:"id"`
	timing
	Trials int   `json:"n_total_trials"`
	Stats  stats `json:"stats"`
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
	all := job{ID: uuid(dir), Stats: stats{Evaluations: map[string]*evaluation{}}}
	for _, s := range sources {
		for at := range s.Attempts {
			if err := all.add(ctx, dir, s, at); err != nil {
				return err
			}
		}
	}
	for _, e := range all.Stats.Evaluations {
		e.Metrics = []map[string]float64{{"mean": e.sum / float64(e.Trials)}}
	}
	return errors.Join(writeJSON(dir, "config.json", struct{}{}), writeJSON(dir, "lock.json", struct{}{}), writeJSON(dir, "result.json", all))
}

// add writes the trial of an attempt, and counts it.
func (j *job) add(ctx context.Context, dir string, s *report.Source, at int) error {
	a := s.Attempts[at]
	d, err := s.Detail(ctx, at, maxTexts)
	if err != nil {
		return err
	}
	rec, err := s.Record(at)
	if err != nil {
		return err
	}
	t := trialOf(dir, rec)
	trialDir := filepath.Join(dir, t.Name)
	j.count(t, rec.BenchmarkID)
	for _, sub := range []string{"agent", "verifier", "artifacts"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(trialDir, sub), 0o755))
	}
	by := agent{Name: t.Agent.Name, Version: t.Agent.Version}
	if t.Agent.Model != nil {
		by.Model = t.Agent.Model.Name
	}
	err = errors.Join(err,
		writeJSON(trialDir, "config.json", t.Config), writeJSON(trialDir, "lock.json", struct{}{}), writeJSON(trialDir, "result.json", t),
		writeJSON(trialDir, "agent/trajectory.json", trajectoryOf(t.ID, a, d, by)),
		writeText(trialDir, "verifier/test-stdout.txt", whole(d.Verifier.Stdout)), writeText(trialDir, "verifier/test-stderr.txt", whole(d.Verifier.Stderr)),
		writeText(trialDir, "agent/stdout.txt", whole(d.Producer.Stdout)), writeText(trialDir, "agent/stderr.txt", whole(d.Producer.Stderr)),
	)
	if t.Exception != nil {
		err = errors.Join(err, writeText(trialDir, "exception.txt", t.Exception.Type+": "+t.Exception.Message))
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

func trialOf(dir string, rec record.Record) trial {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", rec.RunID, rec.TaskID, rec.Attempt))
	name := fmt.Sprintf("%.32s__%x", otherBytes.ReplaceAllString(rec.TaskID, "-"), sum[:4])
	t := trial{
		ID: uuid(rec.Digest), Task: rec.TaskID, Name: name, URI: "file://" + filepath.Join(dir, name), TaskID: taskID{rec.TaskID},
		Checksum: strings.TrimPrefix(rec.Provenance.Row, "sha256:"), Config: trialConfig{taskID{rec.TaskID}},
		Agent:  agentInfo{Name: rec.Provenance.Harness.Type, Version: rec.Provenance.Harness.Version},
		timing: timing{rec.StartedAt, rec.EndedAt},
	}
	if t.Agent.Version == "" {
		t.Agent.Version = "unknown"
	}
	if rec.Agent != nil && rec.Agent.Model != "" {
		t.Agent.Model = &modelInfo{rec.Agent.Model, providerOf(rec.Agent.Name)}
	}
	if rec.Egress != nil && rec.Egress.Relay != nil {
		u := rec.Egress.Relay.Usage
		t.Result = &agentResult{u.Input, u.Cached, u.Output, rec.Egress.Relay.CostUSD}
	}
	done := rec.StartedAt.Add(seconds(rec.Times.Producer))
	t.AgentTime = &timing{rec.StartedAt, done}
	if rec.Score != nil {
		t.Verifier, t.VerifierTime = &verifierResult{map[string]float64{"reward": *rec.Score}}, &timing{done, done.Add(seconds(rec.Times.Verifier))}
	}
	kind, message := "", rec.FailureMessage
	switch {
	case rec.VerificationStatus == record.Error || rec.VerificationStatus == record.Pending:
		kind = rec.FailureReason
	case rec.ProducerFailure != nil && rec.ProducerFailure.Reason == "producer_timeout":
		kind, message = "AgentTimeoutError", rec.ProducerFailure.Message
	case rec.ProducerFailure != nil:
		kind, message = "NonZeroAgentExitCodeError", rec.ProducerFailure.Message
	case rec.FailureReason == "verifier_timeout":
		kind = "VerifierTimeoutError"
	}
	if kind != "" {
		t.Exception = &exceptionInfo{Type: kind, Message: message, At: rec.EndedAt}
	}
	return t
}

// providerOf returns the provider of an agent that sbench knows.
func providerOf(name string) string {
	if c, ok := harness.CLIOf(name); ok {
		return string(c.Provider)
	}
	return "unknown"
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// count adds a trial to the job's totals.
func (j *job) count(t trial, benchmark string) {
	if j.Trials == 0 || t.Started.Before(j.Started) {
		j.Started = t.Started
	}
	if t.Finished.After(j.Finished) {
		j.Finished = t.Finished
	}
	j.Trials++
	j.Stats.Completed++
	names := []string{t.Agent.Name, benchmark}
	if t.Agent.Model != nil {
		names = slices.Insert(names, 1, t.Agent.Model.Name)
	}
	name := strings.Join(names, "__")
	e := j.Stats.Evaluations[name]
	if e == nil {
		e = &evaluation{PassAtK: map[string]float64{}, Rewards: map[string]map[string][]string{}, Exceptions: map[string][]string{}}
		j.Stats.Evaluations[name] = e
	}
	e.Trials++
	if t.Exception != nil {
		j.Stats.Errored++
		e.Errors++
		e.Exceptions[t.Exception.Type] = append(e.Exceptions[t.Exception.Type], t.Name)
	}
	if t.Verifier == nil {
		return
	}
	for key, n := range t.Verifier.Rewards {
		if e.Rewards[key] == nil {
			e.Rewards[key] = map[string][]string{}
		}
		value := strconv.FormatFloat(n, 'g', -1, 64)
		e.Rewards[key][value] = append(e.Rewards[key][value], t.Name)
		e.sum += n
	}
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
