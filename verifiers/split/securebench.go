package split

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/runtime"
)

// This file has the conversation with the oracle and the adapters of a pack of SecureBench 2.0.

const maxEnvelope = 64 << 10 // bytes of an adapter's response around its observation

// failure is what a candidate did wrong.
type failure struct {
	Source  string `json:"source,omitempty"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// caseEvidence is what an oracle gets of one case.
type caseEvidence struct {
	Format    string `json:"format"`
	CheckID   string `json:"check_id"`
	Challenge struct {
		ID     string `json:"id"`
		Index  int    `json:"index"`
		Digest string `json:"digest"`
	} `json:"challenge"`
	EvaluationID *string `json:"evaluation_id"` // null if there was no sandbox
	Status       string  `json:"status"`        // observed or candidate_error
	Process      struct {
		ExitStatus *int  `json:"exit_status"`
		TimedOut   bool  `json:"timed_out"`
		DurationMS int64 `json:"duration_ms"`
	} `json:"process"`
	Observation      json.RawMessage           `json:"observation"`
	ObservationBytes int                       `json:"observation_bytes"`
	Helpers          struct{}                  `json:"trusted_helper_evidence"`
	Outputs          map[string]outputEvidence `json:"output_artifacts"`
	Failure          *failure                  `json:"failure"`
}

// checkSummary is what a record has of a check.
type checkSummary struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Status   string   `json:"status"`
	Cases    int      `json:"cases"`
	Evidence []string `json:"evidence_digests"`
}

const (
	observed       = "observed"
	candidateError = "candidate_error"
)

// runSecureBench has the oracle of a pack of SecureBench 2.0 judge what was taken of a candidate. The error may be a
// broken.
func (c *check) runSecureBench(ctx context.Context, candidate runtime.Config, taken *capture) (r result, err error) {
	v := c.in.Task.Verification()
	program, problems := c.in.Pack.Oracle(v)
	if len(problems) > 0 {
		return r, problems
	}
	for i, arg := range program.Command {
		program.Command[i] = strings.ReplaceAll(arg, "{python}", "python3")
	}
	oracle, err := c.startOracle(ctx, program.Command)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, oracle.close(ctx)) }()
	digests, err := c.in.Task.Digests()
	if err != nil {
		return r, err
	}
	resources := map[string]any{}
	for id := range v.Resources.Host {
		resources["host."+id] = map[string]any{"source_path": path.Join(compiler.CheckerMount, id, path.Base(v.Resources.Host[id].Path))}
	}
	talk := &conversation{check: c, oracle: oracle, limit: program.Timeout, candidate: candidate, taken: taken}
	row := map[string]any{"id": c.in.Task.ID(), "benchmark_id": c.in.Pack.ID, "family": c.in.Task.Family().Name, "row_digest": digests.Row}
	if err := talk.acknowledged(ctx, map[string]any{"op": "initialize", "row": row, "run_seed": c.seed, "resources": resources}); err != nil {
		return r, err
	}
	var checks []checkSummary
	for _, each := range v.Checks {
		done := checkSummary{ID: each.ID, Type: each.Type}
		if each.Type == compiler.ArtifactCheck {
			err = talk.artifacts(ctx, each, &done)
		} else {
			err = talk.protocol(ctx, v, each, &done)
		}
		if err != nil {
			return r, fmt.Errorf("check %s: %w", each.ID, err)
		}
		checks = append(checks, done)
	}
	if err := oracle.say(ctx, map[string]any{"op": "finalize"}, talk.limit); err != nil {
		return r, err
	}
	last, err := oracle.lastWord(ctx, talk.limit)
	if err != nil {
		return r, err
	}
	r, err = securebenchVerdict(last, checks)
	if err != nil {
		return r, oracle.broken(err.Error())
	}
	r.Checks = map[string]any{"seed": c.seed, "checks": checks, "candidate": map[string]any{"type": v.Candidate.Type, "digest": taken.digest}}
	return r, nil
}

// securebenchVerdict reads the answer to finalize, and sets the status of each check.
func securebenchVerdict(text []byte, checks []checkSummary) (r result, err error) {
	answer, err := parse(text)
	if err != nil {
		return r, err
	}
	v := answer.Get("verdict")
	outcomes, score := v.Get("check_outcomes"), v.Get("score")
	n, ok := score.Float64()
	switch {
	case !answer.Get("type").Is("verdict") || v.Get("passed").Kind() != document.Bool || !ok || n < 0 || n > 1:
		return r, errors.New("it gave no verdict with passed and a score from 0 to 1")
	case outcomes.Len() != len(checks):
		return r, errors.New("its verdict has not one outcome for each check")
	}
	for i := range checks {
		outcome := outcomes.Get(checks[i].ID)
		if outcome.Kind() != document.Bool {
			return r, errors.New("its verdict has not one outcome for each check")
		}
		checks[i].Status = "failed"
		if outcome.IsTrue() {
			checks[i].Status = "passed"
		}
	}
	r.Passed, r.Score = v.Get("passed").IsTrue(), n
	return r, r.setDiagnostics(v.Get("public_diagnostics"))
}

// conversation is one run of an oracle.
type conversation struct {
	*check
	oracle    *oracle
	limit     time.Duration
	candidate runtime.Config
	taken     *capture
}

// ask sends a message and returns the answer, whose type is one of these.
func (t *conversation) ask(ctx context.Context, message map[string]any, types ...string) (document.Value, error) {
	err := t.oracle.say(ctx, message, t.limit)
	var line []byte
	if err == nil {
		line, err = t.oracle.hear(ctx, t.limit)
	}
	if err != nil {
		return document.Value{}, err
	}
	answer, _ := parse(line) // hear has parsed it
	if !slices.Contains(types, answer.Get("type").Text()) {
		return answer, t.oracle.broken(fmt.Sprintf("it answered %s with something other than %s", message["op"], strings.Join(types, " or ")))
	}
	return answer, nil
}

func (t *conversation) acknowledged(ctx context.Context, message map[string]any) error {
	_, err := t.ask(ctx, message, "ack")
	return err
}

// tell sends evidence and notes its digest.
func (t *conversation) tell(ctx context.Context, message map[string]any, done *checkSummary) error {
	text, err := canonical(message["evidence"])
	if err != nil {
		return err
	}
	done.Evidence = append(done.Evidence, digest(text))
	message["evidence"] = json.RawMessage(text)
	return t.acknowledged(ctx, message)
}

// artifacts reads the artifacts of a check and gives them to the oracle.
func (t *conversation) artifacts(ctx context.Context, check compiler.VerificationCheck, done *checkSummary) error {
	for _, a := range check.Artifacts {
		e := artifactEvidence{CheckID: check.ID, ArtifactID: a.ID, observation: t.taken.read(a)}
		if err := t.tell(ctx, map[string]any{"op": "evaluate_artifact", "evidence": e}, done); err != nil {
			return err
		}
	}
	return nil
}

// protocol has the oracle ask its cases, one at a time.
func (t *conversation) protocol(ctx context.Context, v *compiler.Verification, check compiler.VerificationCheck, done *checkSummary) error {
	adapter, problems := t.in.Pack.Adapter(v, check)
	if len(problems) > 0 {
		return problems
	}
	next := map[string]any{
		"op": "next_case", "check_id": check.ID, "challenge_source": check.Challenge.Source,
		"bounds": map[string]any{"max_cases": check.Challenge.MaxCases, "max_case_bytes": check.Challenge.MaxBytes},
	}
	for {
		answer, err := t.ask(ctx, next, "case", "exhausted")
		challenge := answer.Get("challenge")
		switch {
		case err != nil:
			return err
		case answer.Get("type").Is("exhausted") && done.Cases > 0:
			return nil
		case answer.Get("type").Is("exhausted"):
			return t.oracle.broken("it asks no case")
		case done.Cases == check.Challenge.MaxCases:
			return t.oracle.broken("it asks more than max_cases")
		case challenge.Kind() == 0 || len(challenge.AppendSorted(nil)) > int(min(check.Challenge.MaxBytes, maxAnswer)):
			return t.oracle.broken("it asks a case without a challenge, or with one of more than max_case_bytes")
		}
		if err := conforms(adapter.Challenge, challenge); err != nil {
			return t.oracle.broken("it asks a challenge that does not conform to the adapter's schema: " + err.Error())
		}
		evidence, err := t.evaluate(ctx, v, check, adapter, challenge, done.Cases)
		if err != nil {
			return err
		}
		done.Cases++
		message := map[string]any{"op": "evaluate_case", "check_id": check.ID, "case_context": json.RawMessage("null"), "evidence": evidence}
		if context := answer.Get("case_context"); context.Kind() != 0 {
			message["case_context"] = json.RawMessage(context.Raw())
		}
		if err := t.tell(ctx, message, done); err != nil {
			return err
		}
	}
}

// evaluate puts one challenge to the candidate, in a new sandbox.
func (t *conversation) evaluate(ctx context.Context, v *compiler.Verification, check compiler.VerificationCheck, adapter compiler.Adapter, challenge document.Value, index int) (caseEvidence, error) {
	e := caseEvidence{Format: "securebench.challenge-evidence/v1", CheckID: check.ID, Status: candidateError, Outputs: map[string]outputEvidence{}}
	e.Challenge.ID, e.Challenge.Index, e.Challenge.Digest = "challenge-"+rand.Text(), index, digest(challenge.AppendSorted(nil))
	if t.taken.failed != nil {
		e.Failure = &failure{"candidate", t.taken.failed.Code, t.taken.failed.Message}
		return e, nil
	}
	e.EvaluationID = new("evaluation-" + rand.Text())
	request := challenge.Raw()
	if adapter.Format != "" {
		var err error
		request, err = json.Marshal(map[string]any{
			"format": "securebench.adapter-request/v2", "challenge_id": e.Challenge.ID, "evaluation_id": e.EvaluationID, "challenge": json.RawMessage(request), "trusted_helpers": struct{}{},
		})
		if err != nil {
			return e, err
		}
	}
	files := v.Resources.Runtime[strings.TrimPrefix(check.Adapter, "runtime.")]
	d := drive{args: adapter.Args(files.Mount), wall: check.Limits.Wall, output: min(check.Limits.Bytes, maxAnswer) + maxEnvelope, request: request}
	d.stopped = func(s runtime.Sandbox) error { return t.outputs(s, check, adapter, &e) }
	exit, err := t.drive(ctx, t.candidate, d)
	if err != nil {
		return e, err
	}
	e.Process.TimedOut, e.Process.DurationMS = exit.Reason == runtime.WallTime, exit.Wall.Milliseconds()
	if exit.Reason != 0 && exit.Reason != runtime.WallTime {
		e.Process.ExitStatus = &exit.Code
	}
	how := e.observe(exit, adapter, min(check.Limits.Bytes, maxAnswer))
	switch {
	case how == "":
	case adapter.Format == "": // its failures are the candidate's
		e.Observation, e.Failure = nil, &failure{"candidate", "adapter_failed", "the adapter failed: " + how}
	default:
		return e, &broken{Part: driverDir, How: fmt.Sprintf("case %d: the adapter: %s", index, how), Exit: exit}
	}
	return e, nil
}

// observe reads the response of an adapter, or returns how it broke.
func (e *caseEvidence) observe(exit runtime.Exit, adapter compiler.Adapter, most int64) (how string) {
	said, how := answerOf(exit)
	if how != "" {
		return how
	}
	answer, _ := parse(said) // answerOf has parsed it
	observation := answer
	if adapter.Format != "" {
		status, failed := answer.Get("status"), answer.Get("failure")
		switch {
		case !answer.Get("format").Is("securebench.adapter-response/v2") || answer.Len() != 3:
			return "its output is no adapter-response/v2"
		case status.Is(candidateError) && failed.Len() == 2 && failed.Get("code").Text() != "" && failed.Get("message").Kind() == document.String:
			e.Failure = &failure{"candidate", failed.Get("code").Text(), failed.Get("message").Text()}
			return ""
		case !status.Is(observed) || answer.Get("observation").Kind() == 0:
			return "its output has neither an observation nor a failure of the candidate"
		}
		observation = answer.Get("observation")
	}
	compact := observation.AppendSorted(nil)
	if int64(len(compact)) > most {
		return fmt.Sprintf("its observation has more than %d bytes", most)
	}
	if err := conforms(adapter.Observation, observation); err != nil {
		return "its observation does not conform to its schema: " + err.Error()
	}
	e.Status, e.Observation, e.ObservationBytes = observed, compact, len(compact)
	return ""
}

// conforms checks data against a schema of an adapter; the zero Value allows everything.
func conforms(s, v document.Value) error {
	kinds := map[string]document.Kind{
		"object": document.Object, "array": document.Array, "string": document.String, "integer": document.Number, "number": document.Number, "boolean": document.Bool, "null": document.Null,
	}
	kind := s.Get("type").Text()
	most := func(key string) int {
		if n, ok := s.Get(key).Int64(); ok {
			return int(n)
		}
		return math.MaxInt
	}
	switch {
	case s.Kind() == 0:
		return nil
	case v.Kind() != kinds[kind], kind == "integer" && !v.IsInteger():
		return fmt.Errorf("%s is no %s", v.Path(), kind)
	case kind == "string" && len(v.Text()) > most("max_utf8_bytes"), kind == "array" && v.Len() > most("max_items"), kind == "object" && v.Len() > most("max_fields"):
		return fmt.Errorf("%s is too long", v.Path())
	}
	for _, item := range v.Items() {
		if err := conforms(s.Get("items"), item); err != nil {
			return err
		}
	}
	for _, name := range s.Get("required").Items() {
		if v.Get(name.Text()).Kind() == 0 {
			return fmt.Errorf("%s lacks %q", v.Path(), name.Text())
		}
	}
	for key, value := range v.Fields() {
		property := s.Get("properties").Get(key.Text())
		if property.Kind() == 0 && !s.Get("allow_extra_fields").IsTrue() {
			return fmt.Errorf("%s has a field that the schema does not know", v.Path())
		}
		if err := conforms(property, value); err != nil {
			return err
		}
	}
	return nil
}

// canonical returns a value as compact JSON with sorted keys.
func canonical(value any) ([]byte, error) {
	text, err := marshal(value)
	if err != nil {
		return nil, err
	}
	v, err := parseOwn(text)
	return v.AppendSorted(nil), err
}

// marshal returns a value as compact JSON in which < > & are themselves.
func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
