package run

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/remove"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/workspace"
)

// attempt produces and verifies a candidate once. See attemptFunc.
func (s *session) attempt(ctx, harness context.Context, t try) (rec record.Record, cause error) {
	t.log = s.newTryLog(t)
	image := s.plan.images[t.task.Environment().Image]
	rec, err := s.newRecord(t, image)
	if err == nil {
		err = s.produceAndVerify(ctx, harness, t, image, &rec)
	}
	return s.complete(rec, t, errors.Join(err, s.removeWorkspace(unjudgedDir, t)))
}

// unmeasured gives a record the status error.
func unmeasured(rec *record.Record, err error) {
	rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = record.Error, Infrastructure, err.Error()
	rec.Passed, rec.Score = nil, nil
}

func (s *session) newRecord(t try, image runtime.Image) (record.Record, error) {
	task := t.task
	provenance, err := s.provenance(task)
	category, _ := task.Metadata()["category"].(string) // by which reports group tasks
	now := time.Now().UTC()
	return record.Record{
		RunID: s.cfg.Tester.Run.ID, TaskID: task.ID(), BenchmarkID: s.cfg.Pack.ID, TaskType: task.Family(), Category: category,
		Attempt: t.attempt, Try: t.n, HiddenValues: redacted, ResourceSummary: task.ResourceSummary(), ProducerMetadata: record.Metadata{},
		NetworkEnabled: s.cfg.networked(), Image: image.Ref, ImageID: image.Digest, Degraded: s.cfg.Degraded,
		StartedAt: now, Times: record.Times{Waited: now.Sub(t.asked).Seconds()}, Provenance: provenance,
	}, err
}

// complete finishes a record: it gives it the status error if cause is not nil, removes
// secrets from its texts, and adds the try's logs. A log that cannot be written is an
// infrastructure error, too.
func (s *session) complete(rec record.Record, t try, cause error) (record.Record, error) {
	if cause != nil {
		unmeasured(&rec, cause)
		rec.CandidateWorkspace, rec.WorkspaceDigest, rec.WorkspaceAttributes = nil, "", ""
	}
	rec.EndedAt = time.Now().UTC()
	// t.log.secrets includes s.secrets: with both in one pass, a short secret is not cut
	// out of a longer one whose rest would stay.
	rec = s.secrets.everything(t.log.secrets.record(rec))
	rec.CandidateDigest = candidateDigest(rec)
	err := t.log.outsource(&rec)
	t.log.fill(&rec)
	if err != nil && cause == nil {
		unmeasured(&rec, err)
	}
	return rec, errors.Join(cause, err)
}

// candidateDigest returns the digest of a record's candidate as it is recorded.
func candidateDigest(rec record.Record) string {
	switch {
	case rec.CandidateText != nil:
		return record.Digest([]byte(*rec.CandidateText))
	case rec.CandidatePatch != nil:
		return record.Digest([]byte(*rec.CandidatePatch))
	}
	return rec.WorkspaceDigest
}

// produceAndVerify judges the candidate as it was produced, and only then removes secrets
// from what is kept.
func (s *session) produceAndVerify(ctx, harness context.Context, t try, image runtime.Image, rec *record.Record) error {
	rec.FailurePhase = "producer"
	if err := s.removeWorkspace(unjudgedDir, t); err != nil {
		return err
	}
	dest := path.Join(unjudgedDir, workspaceName(t))
	if err := s.out.Mkdir(dest, 0o755); err != nil {
		return err
	}
	s.emit(Event{Kind: ProducerStart, Task: t.task.ID(), Attempt: t.attempt})
	begun := time.Now()
	result, err := s.produce(harness, t, image, filepath.Join(s.cfg.Output, dest))
	rec.Times.Producer = time.Since(begun).Seconds()
	rec.Agent, rec.Egress = result.Agent, result.Egress
	s.tellEgress(t, result.Egress)
	if err != nil {
		return err
	}
	s.fillProduced(rec, t, result)
	s.emit(Event{Kind: ProducerDone, Task: t.task.ID(), Attempt: t.attempt, Reason: rec.FailureReason})
	if result.Failure != nil {
		rec.VerificationStatus = record.Failed
	} else if err := s.judge(ctx, t, image, result.Candidate, rec); err != nil {
		return err
	}
	return s.keep(ctx, t, result.Candidate, rec)
}

// tellEgress emits an event with the totals of an attempt's network use.
func (s *session) tellEgress(t try, totals *harness.EgressTotals) {
	if totals == nil {
		return
	}
	e := Event{Kind: Egress, Task: t.task.ID(), Attempt: t.attempt}
	if p := totals.Proxy; p != nil {
		e.Detail = fmt.Sprintf("%d allowed, %d denied", p.Allowed, p.Denied)
	}
	if r := totals.Relay; r != nil {
		e.Tokens = r.Usage.Total()
		e.Detail += fmt.Sprintf(", %d requests to the provider, %d tokens", r.Sent, e.Tokens)
	}
	s.emit(e)
}

// judge verifies a candidate and puts the verdict into the record.
func (s *session) judge(ctx context.Context, t try, image runtime.Image, c candidate.Candidate, rec *record.Record) error {
	rec.FailurePhase = "verifier"
	s.emit(Event{Kind: VerifierStart, Task: t.task.ID(), Attempt: t.attempt})
	begun := time.Now()
	verdict, err := s.verify(ctx, t, image, c)
	rec.Times.Verifier = time.Since(begun).Seconds()
	if err != nil {
		return err
	}
	fillVerdict(rec, verdict, t.log.secrets)
	kind := VerifierDone
	if verdict.Reason == "verifier_dangerous_command_denied" {
		kind = VerifierPolicyDenied
	}
	detail := ""
	if verdict.Contrast != nil && len(verdict.Contrast.Unobserved) > 0 && s.cfg.StandIn == Reference {
		detail = "nothing observes what is expected at " + strings.Join(verdict.Contrast.Unobserved, ", ")
	}
	s.emit(Event{Kind: kind, Task: t.task.ID(), Attempt: t.attempt, Status: rec.VerificationStatus, Reason: verdict.Reason, Detail: detail})
	return nil
}

// unjudgedDir holds workspaces until they are judged and secrets are removed from them.
// They then move to record.WorkspacesDir, where they never change.
const unjudgedDir = "unjudged"

// workspaceName names a try's workspace.
func workspaceName(t try) string {
	name := workspace.TaskDir(t.task.ID())
	if t.attempt > 1 || t.n > 1 {
		name += fmt.Sprint(".", t.attempt)
	}
	if t.n > 1 {
		name += fmt.Sprint(".", t.n)
	}
	return name
}

// removeWorkspace removes a try's workspace in dir, and its attributes file.
func (s *session) removeWorkspace(dir string, t try) error {
	name := path.Join(dir, workspaceName(t))
	return errors.Join(remove.All(s.out, name), remove.All(s.out, name+workspace.AttributesSuffix))
}

// keep removes secrets from a judged workspace and moves it to record.WorkspacesDir.
func (s *session) keep(ctx context.Context, t try, c candidate.Candidate, rec *record.Record) error {
	if c.Workspace == "" {
		return nil
	}
	changed, err := s.scrub(ctx, &c)
	if errors.Is(err, errUnsearchable) { // an agent can cause this
		rec.VerificationStatus, rec.FailureReason, rec.FailurePhase, rec.FailureMessage = record.Failed, "candidate_unreadable", "extraction", err.Error()
		rec.Passed, rec.Score = nil, nil
		return nil
	}
	if err == nil {
		err = s.removeWorkspace(record.WorkspacesDir, t)
	}
	if err != nil {
		return err
	}
	if changed > 0 {
		rec.ProducerMetadata["redacted_entries"] = changed
	}
	from, to := path.Join(unjudgedDir, workspaceName(t)), path.Join(record.WorkspacesDir, workspaceName(t))
	if c.Attributes != "" {
		err = s.out.Rename(from+workspace.AttributesSuffix, to+workspace.AttributesSuffix)
	}
	rec.CandidateWorkspace, rec.WorkspaceDigest, rec.WorkspaceAttributes = &to, c.Digest, c.Attributes
	return errors.Join(err, s.out.Rename(from, to))
}

func (s *session) produce(ctx context.Context, t try, image runtime.Image, dest string) (harness.Result, error) {
	request, err := s.cfg.request(t.task, image)
	if err != nil {
		return harness.Result{}, err
	}
	request.Dest, request.OwnDest, request.Attempt, request.Egress.Log = dest, s.cfg.OwnFiles, t.attempt, t.log.proxyLog(t.n)
	if s.cfg.StandIn != "" {
		return s.standIn(ctx, t, request)
	}
	done, err := s.watch(t, &request)
	if err != nil {
		return harness.Result{}, err
	}
	result, err := s.cfg.Producer.Produce(ctx, s.audited(t, nil), request)
	return result, errors.Join(err, done())
}

func (s *session) verify(ctx context.Context, t try, image runtime.Image, c candidate.Candidate) (verifiers.Verdict, error) {
	task := t.task
	verifier, _ := verifiers.For(task.Family())
	v := s.cfg.Tester.Verification
	policy := s.cfg.policy(task)
	return verifier(ctx, s.audited(t, v.DenyCommands), verifiers.Input{
		Task: task, Pack: s.cfg.Pack, Candidate: c, Reference: s.cfg.StandIn == Reference, Image: image, Limits: policy.Limits,
		Policy:         verifiers.Policy{AllowDangerous: policy.AllowDangerous, Deny: policy.DenyCommands},
		Timeout:        DefaultTimeout,
		Code:           s.code,
		Calibrations:   s.calibrations,
		WorkspaceBytes: policy.WorkspaceBytes,
		OutputBytes:    policy.OutputBytes,
	})
}

func (s *session) fillProduced(rec *record.Record, t try, result harness.Result) {
	c := result.Candidate
	secrets := t.log.secrets
	rec.ProducerStdout, rec.ProducerStderr = secrets.output(result.Exit.Stdout), secrets.output(result.Exit.Stderr)
	rec.ProducerMetadata = exitMetadata(result.Exit)
	if len(c.Dropped) > 0 {
		rec.ProducerMetadata["dropped"] = c.Dropped
	}
	if c.Text != "" {
		rec.CandidateText = &c.Text
	}
	if rec.TaskType == compiler.RepoPatch && result.Failure == nil {
		rec.CandidatePatch = &c.Patch // an empty patch is a candidate, too
	}
	if f := result.Failure; f != nil {
		rec.FailureReason, rec.FailurePhase, rec.FailureMessage = f.Reason, f.Phase, f.Message
	}
}

func fillVerdict(rec *record.Record, v verifiers.Verdict, secrets redactor) {
	rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = record.Status(v.Status), v.Reason, v.Message
	if v.Status == verifiers.Pending {
		rec.FailurePhase = ""
		return
	}
	if v.Status != verifiers.Faulty {
		ok := v.Status == verifiers.Passed
		rec.Passed, rec.Score = &ok, &v.Score
		if ok {
			rec.FailurePhase = ""
		}
	}
	rec.VerifierStdout, rec.VerifierStderr = secrets.output(v.Stdout), secrets.output(v.Stderr)
	rec.VerifierMetadata, rec.Contrast = v.Metadata, v.Contrast
}

// exitMetadata describes how a process ended, for a record.
func exitMetadata(e runtime.Exit) record.Metadata {
	if e.Reason == 0 {
		return record.Metadata{}
	}
	m := record.Metadata{"exit_reason": e.Reason.String(), "exit_code": e.Code, "wall_seconds": e.Wall.Seconds(), "usage": e.Usage,
		"stdout_bytes": e.Stdout.Total, "stderr_bytes": e.Stderr.Total}
	if e.Signal != 0 {
		m["signal"] = e.Signal
	}
	if len(e.Reached) > 0 {
		m["limits_reached"] = e.Reached
	}
	return m
}
