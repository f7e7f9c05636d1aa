package split

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/securebench"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
)

const maxEnvelope = 64 << 10 // bytes of an adapter's response around its observation

// The statuses of evidence.
const (
	observed       = "observed"
	candidateError = "candidate_error"
)

// object is a JSON object.
type object = map[string]any

// checkSummary is what a record has of a check.
type checkSummary struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Status   string   `json:"status"`
	Cases    int      `json:"cases"`
	Evidence []string `json:"evidence_digests"`
}

// conversation is one run of an oracle of a pack of SecureBench 2.0.
type conversation struct {
	*check
	subject
	spec   *securebench.Verification
	oracle *oracle
}

func (c *check) converseSecureBench(ctx context.Context, s subject) (v verifiers.Verdict, err error) {
	t := &conversation{check: c, subject: s, spec: c.in.Task.Verification()}
	program, problems := securebench.ReadOracle(c.in.Pack.EvalRoot, t.spec)
	if len(problems) > 0 {
		return v, problems
	}
	for i, arg := range program.Command {
		program.Command[i] = strings.ReplaceAll(arg, "{python}", "python3")
	}
	if t.oracle, err = c.startOracle(ctx, program.Command, program.Timeout); err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, t.oracle.close(ctx)) }()
	digests, err := c.in.Task.Digests()
	if err != nil {
		return v, err
	}
	resources := object{}
	for id := range t.spec.Resources.Host {
		resources["host."+id] = object{"source_path": hostPath(t.spec, id)}
	}
	row := object{"id": c.in.Task.ID(), "benchmark_id": c.in.Pack.ID, "family": c.in.Task.Family().Name, "row_digest": digests.Row}
	if _, err := t.ask(ctx, object{"op": "initialize", "row": row, "run_seed": c.seed, "resources": resources}, "ack"); err != nil {
		return v, err
	}
	var checks []checkSummary
	for _, each := range t.spec.Checks {
		done := checkSummary{ID: each.ID, Type: each.Type}
		if each.Type == securebench.ArtifactCheck {
			err = t.artifacts(ctx, each, &done)
		} else {
			err = t.protocol(ctx, each, &done)
		}
		if err != nil {
			return v, fmt.Errorf("check %s: %w", each.ID, err)
		}
		checks = append(checks, done)
	}
	if err := t.oracle.say(ctx, object{"op": "finalize"}); err != nil {
		return v, err
	}
	last, err := t.oracle.lastWord(ctx)
	if err != nil {
		return v, err
	}
	return t.verdict(ctx, last, checks)
}

func (t *conversation) verdict(ctx context.Context, last document.Value, checks []checkSummary) (v verifiers.Verdict, err error) {
	said := last.Get("verdict")
	outcomes := said.Get("check_outcomes")
	if !last.Get("type").Is("verdict") || said.Get("score").Kind() == 0 {
		return v, t.oracle.broken(ctx, "it gave no verdict with a score")
	}
	for i := range checks {
		outcome := outcomes.Get(checks[i].ID)
		if outcome.Kind() != document.Bool || outcomes.Len() != len(checks) {
			return v, t.oracle.broken(ctx, "its verdict has not one outcome for each check")
		}
		checks[i].Status = "failed"
		if outcome.IsTrue() {
			checks[i].Status = "passed"
		}
	}
	v, err = t.oracle.verdict(ctx, said.Get("passed"), said.Get("score"), said.Get("public_diagnostics"))
	return v.With("seed", t.seed).With("checks", checks).With("candidate", object{"type": t.spec.Candidate.Type, "digest": t.taken.digest}), err
}

// ask sends a message and returns the answer, whose type is one of these.
func (t *conversation) ask(ctx context.Context, message object, types ...string) (answer document.Value, err error) {
	if err = t.oracle.say(ctx, message); err == nil {
		answer, err = t.oracle.hear(ctx)
	}
	if err == nil && !slices.ContainsFunc(types, answer.Get("type").Is) {
		err = t.oracle.broken(ctx, fmt.Sprintf("it answered %s with something other than %s", message["op"], strings.Join(types, " or ")))
	}
	return answer, err
}

// tell sends evidence and notes its digest.
func (t *conversation) tell(ctx context.Context, message, evidence object, done *checkSummary) error {
	text, err := document.Marshal(evidence)
	if err != nil {
		return err
	}
	done.Evidence = append(done.Evidence, digest(text))
	message["evidence"] = json.RawMessage(text)
	_, err = t.ask(ctx, message, "ack")
	return err
}

func (t *conversation) artifacts(ctx context.Context, check securebench.Check, done *checkSummary) error {
	for _, a := range check.Artifacts {
		o, err := t.taken.read(ctx, a)
		if err != nil {
			return err
		}
		evidence := object{
			"check_id": check.ID, "artifact_id": a.ID, "status": o.status, "source": object{"kind": o.kind, "digest": o.digest, "size": o.size},
			"parser": a.Parser, "parsed_value": o.value, "error": o.failed,
		}
		if err := t.tell(ctx, object{"op": "evaluate_artifact"}, evidence, done); err != nil {
			return err
		}
	}
	return nil
}

// protocol has the oracle ask its cases, one at a time.
func (t *conversation) protocol(ctx context.Context, check securebench.Check, done *checkSummary) error {
	adapter, problems := securebench.ReadAdapter(t.in.Pack.EvalRoot, t.spec, check)
	if len(problems) > 0 {
		return problems
	}
	next := object{
		"op": "next_case", "check_id": check.ID, "challenge_source": check.Challenge.Source,
		"bounds": object{"max_cases": check.Challenge.MaxCases, "max_case_bytes": check.Challenge.MaxBytes},
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
			return t.oracle.broken(ctx, "it asks no case")
		case done.Cases == check.Challenge.MaxCases:
			return t.oracle.broken(ctx, "it asks more than max_cases")
		case challenge.Kind() == 0 || len(document.Compact(challenge)) > int(min(check.Challenge.MaxBytes, maxAnswer)):
			return t.oracle.broken(ctx, "it asks a case without a challenge, or with one of more than max_case_bytes")
		}
		if err := adapter.Challenge.Check(challenge); err != nil {
			return t.oracle.broken(ctx, "it asks a challenge of which "+err.Error())
		}
		evidence, err := t.evaluate(ctx, check, adapter, challenge, done.Cases)
		if err != nil {
			return err
		}
		done.Cases++
		message := object{"op": "evaluate_case", "check_id": check.ID, "case_context": nil}
		if context := answer.Get("case_context"); context.Kind() != 0 {
			message["case_context"] = json.RawMessage(context.Raw())
		}
		if err := t.tell(ctx, message, evidence, done); err != nil {
			return err
		}
	}
}

// evaluate puts one challenge to the candidate, in a new sandbox, and returns the evidence.
func (t *conversation) evaluate(ctx context.Context, check securebench.Check, adapter securebench.Adapter, challenge document.Value, index int) (object, error) {
	id, evaluation, outputs := "challenge-"+rand.Text(), "evaluation-"+rand.Text(), map[string]object{}
	process := object{"duration_ms": 0, "exit_status": nil, "timed_out": false}
	e := object{
		"format": "securebench.challenge-evidence/v1", "check_id": check.ID, "challenge": object{"id": id, "index": index, "digest": digest(document.Compact(challenge))},
		"evaluation_id": nil, "status": candidateError, "process": process, "observation": nil, "observation_bytes": 0,
		"trusted_helper_evidence": object{}, "output_artifacts": outputs, "failure": nil,
	}
	if failed := t.taken.failed; failed != nil { // there is no sandbox
		e["failure"] = failure{failed.Code, failed.Message, "candidate"}
		return e, nil
	}
	e["evaluation_id"] = evaluation
	request := challenge.Raw()
	if adapter.Format != "" {
		var err error
		request, err = document.Marshal(object{
			"format": "securebench.adapter-request/v2", "challenge_id": id, "evaluation_id": evaluation, "challenge": json.RawMessage(request), "trusted_helpers": object{},
		})
		if err != nil {
			return nil, err
		}
	}
	most := min(check.Limits.Bytes, maxAnswer)
	exit, err := t.drive(ctx, t.subject.config, func(s runtime.Sandbox) error { return t.outputs(ctx, s, check, adapter, outputs) }, runtime.Process{
		Args: adapter.Args(t.spec.Resources.Runtime[strings.TrimPrefix(check.Adapter, "runtime.")].Mount), Wall: check.Limits.Wall, OutputBytes: most + maxEnvelope,
		Stdin: bytes.NewReader(append(slices.Clip(request), '\n')),
	})
	if err != nil {
		return nil, err
	}
	for _, o := range outputs {
		o["challenge_id"], o["evaluation_id"] = id, evaluation
	}
	process["timed_out"], process["duration_ms"] = exit.Reason == runtime.WallTime, exit.Wall.Milliseconds()
	if exit.Reason != "" && exit.Reason != runtime.WallTime {
		process["exit_status"] = exit.Code
	}
	observation, failed, how := observationOf(exit, adapter, most)
	switch {
	case how != "" && adapter.Format != "":
		return nil, &broken{driverDir, fmt.Sprintf("case %d: the adapter: %s", index, how), exit}
	case how != "": // its failures are the candidate's
		failed = &failure{"adapter_failed", "the adapter failed: " + how, "candidate"}
	}
	if failed != nil {
		e["failure"] = failed
		return e, nil
	}
	e["status"], e["observation"], e["observation_bytes"] = observed, observation, len(observation)
	return e, nil
}

// observationOf returns what an adapter observed, or what the candidate did wrong, or how the adapter broke.
func observationOf(exit runtime.Exit, adapter securebench.Adapter, most int64) (compact json.RawMessage, failed *failure, how string) {
	observation, how := answerOf(exit)
	if how != "" {
		return nil, nil, how
	}
	if answer := observation; adapter.Format != "" {
		status, failed := answer.Get("status"), answer.Get("failure")
		observation = answer.Get("observation")
		switch {
		case !answer.Get("format").Is("securebench.adapter-response/v2") || answer.Len() != 3:
			return nil, nil, "its output is no adapter-response/v2"
		case status.Is(candidateError) && failed.Len() == 2 && failed.Get("code").Text() != "" && failed.Get("message").Kind() == document.String:
			return nil, &failure{failed.Get("code").Text(), failed.Get("message").Text(), "candidate"}, ""
		case !status.Is(observed) || observation.Kind() == 0:
			return nil, nil, "its output has neither an observation nor a failure of the candidate"
		}
	}
	if compact = document.Compact(observation); int64(len(compact)) > most {
		return nil, nil, fmt.Sprintf("its observation has more than %d bytes", most)
	}
	if err := adapter.Observation.Check(observation); err != nil {
		return nil, nil, "of its output, " + err.Error()
	}
	return compact, nil, ""
}

func (t *conversation) outputs(ctx context.Context, s runtime.Sandbox, check securebench.Check, adapter securebench.Adapter, evidence map[string]object) error {
	if len(check.Outputs) == 0 {
		return nil
	}
	left := capture{python: t.python}
	dir, err := s.Path(t.in.Task.Environment().Workdir)
	if err == nil {
		left.root, err = os.OpenRoot(dir)
	}
	switch {
	case err == nil:
		defer func() { _ = left.root.Close() }()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	room := maxLine - maxEnvelope - int(min(check.Limits.Bytes, maxAnswer)) // beside the observation
	for _, want := range check.Outputs {
		i := slices.IndexFunc(adapter.Outputs, func(o securebench.Output) bool { return o.Name == want.Name }) // there is one: see ReadAdapter
		o, err := left.observe(ctx, adapter.Outputs[i].Path, adapter.Outputs[i].Kind, want.Parser, want.Limits.Within(adapter.Outputs[i].Limits), room)
		if err != nil {
			return err
		}
		room -= len(o.value)
		evidence[want.Name] = object{"status": o.status, "digest": o.digest, "size": o.size, "parser": want.Parser, "parsed_value": o.value, "failure": o.failed}
	}
	return nil
}
