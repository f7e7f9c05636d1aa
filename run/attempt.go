package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/run/logs"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/secrets"
	"github.com/securebench/sbench/run/standin"
	"github.com/securebench/sbench/run/steps"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/remove"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/verifiers/families"
	"github.com/securebench/sbench/workspace"
)

// An attempt takes a task from the harness to a record. If it could not be measured, it is retried:
// the retry has the same number and the next try.
type attempt struct {
	*shared
	task   *compiler.Task
	part   *compiler.Task       // what is solved now: the task or, if it has steps, one of them
	before *candidate.Candidate // with which a step begins; nil for the image
	image  runtime.Image
	number int           // of the attempt within the task, from 1
	why    string        // the reason to make it; see PlannedAttempt
	try    int           // 1, or more for a retry
	asked  time.Time     // when its turn came, before it waited for resources
	began  time.Time     // when it was started; attempts are started one after the other
	log    *logs.Attempt // of this try
}

func (a attempt) key() record.AttemptKey {
	return record.AttemptKey{Task: a.task.ID(), Number: a.number}
}

// run makes one try; the harness runs under producing, which may end before ctx does. The record is complete in
// any case; err is the infrastructure error behind a record of status error.
func (a attempt) run(ctx, producing context.Context) (rec record.Record, err error) {
	if a.cfg.original != nil {
		return a.judgeAgain(ctx)
	}
	rec, err = a.newRecord()
	var left candidate.Candidate
	switch {
	case err != nil:
	case a.task.Stepped():
		left, err = a.steps(ctx, producing, &rec)
	default:
		left, err = a.solve(ctx, producing, &rec)
	}
	if err == nil {
		err = a.storeWorkspace(ctx, left, &rec)
	}
	return a.complete(rec, errors.Join(err, a.removeWorkspace(unjudgedDir)))
}

// solve runs the harness, and judges what it left.
func (a attempt) solve(ctx, producing context.Context, rec *record.Record) (candidate.Candidate, error) {
	produced, err := a.produce(ctx, producing, rec)
	if err == nil && rec.VerificationStatus == "" {
		err = a.verify(ctx, produced.Candidate, nil, rec)
	}
	// A text, code or patch is judged although its command failed, which may be why it is bad.
	if end := produced.Exit; rec.VerificationStatus == record.Failed && rec.ProducerFailure == nil && end.Reason != "" && !end.Success() {
		rec.FailureMessage += "; the harness " + end.String()
	}
	return produced.Candidate, err
}

// produce runs the harness in sandbox A, then kills every process there unless the task keeps them, and
// extracts the candidate, which is only data from then on.
func (a attempt) produce(ctx, producing context.Context, rec *record.Record) (harness.Result, error) {
	rec.FailurePhase = "producer"
	dest := path.Join(unjudgedDir, a.workspaceName())
	err := a.removeWorkspace(unjudgedDir)
	if err == nil {
		err = a.out.Mkdir(dest, 0o755)
	}
	if err != nil {
		return harness.Result{}, err
	}
	a.emit(Event{Kind: ProducerStart})
	begun := time.Now()
	request, err := a.cfg.request(a.part, a.images)
	if err != nil {
		return harness.Result{}, err
	}
	request.Dest = filepath.Join(a.cfg.Output, dest)
	request.Before, request.Attempt, request.Egress.Log = a.before, a.number, a.log.Proxy()
	trace, err := a.openTrace(&request)
	if err != nil {
		return harness.Result{}, err
	}
	producer := a.cfg.Producer
	if a.cfg.StandIn != "" {
		producer = standin.Producer{Kind: a.cfg.StandIn, Family: families.For(a.part), Task: a.part, Pack: a.cfg.Pack}
	}
	produced := func(result harness.Result) {
		fillProduced(rec, request.Kind, result, a.secrets)
		a.emit(Event{Kind: ProducerDone, Reason: cmp.Or(result.Ended, result.Failure, &candidate.Failure{}).Reason})
	}
	request.Judge = func(result harness.Result, left runtime.Sandbox) error {
		if produced(result); rec.VerificationStatus == record.Failed {
			return nil
		}
		return a.verify(ctx, result.Candidate, left, rec)
	}
	result, err := producer.Produce(producing, observed{a.cfg.Engine, a.shared, &a, nil}, request)
	err = errors.Join(err, trace.Close())
	rec.Times.Producer = time.Since(begun).Seconds() - rec.Times.Verifier
	rec.Agent, rec.Egress = result.Agent, result.Egress
	if e := result.Egress; e != nil && e.Relay != nil {
		rec.Times.ProviderWait = e.Relay.ProviderWait
	}
	a.emitEgress(result.Egress)
	if err != nil {
		return result, err
	}
	if rec.VerificationStatus == "" {
		produced(result)
	} else { // how the harness ended may be known only now
		fillProduced(rec, request.Kind, result, a.secrets)
	}
	return result, nil
}

// verify judges the candidate. left is the harness's sandbox if processes in it still run, else nil.
func (a attempt) verify(ctx context.Context, c candidate.Candidate, left runtime.Sandbox, rec *record.Record) error {
	rec.FailurePhase = "verifier"
	a.emit(Event{Kind: VerifierStart})
	begun := time.Now()
	policy := rec.Provenance.Policy
	family := families.For(a.part)
	var engine verifiers.Engine
	if family.Sandboxed {
		engine = observed{a.cfg.Engine, a.shared, &a, policy.DenyCommands}
	}
	verdict, err := family.Verify(ctx, engine, verifiers.Input{
		Task: a.part, Pack: a.cfg.Pack, Candidate: c, Reference: a.cfg.StandIn == standin.Reference, Image: a.image, CheckerImage: a.cfg.checkerImage(a.images, a.part),
		Sidecars: a.images.sidecars(a.task), Limits: policy.Limits,
		Network: a.checkerNetwork(left != nil), Left: left,
		Permissions: verifiers.Permissions{AllowDangerous: policy.AllowDangerous, Deny: policy.DenyCommands},
		Timeout:     defaultTimeout, Code: a.code, Calibrations: a.calibrations, Contrast: contrast.Effort(policy.Contrast), Pace: pace{a, begun}, Judge: a.judge, Model: a.asker(),
		WorkspaceBytes: policy.WorkspaceBytes, OutputBytes: policy.OutputBytes,
	})
	rec.Times.Verifier = time.Since(begun).Seconds()
	if err != nil {
		return err
	}
	fillVerdict(rec, verdict)
	step := ""
	if a.log.Step != "" {
		step = a.part.Step().Name
	}
	a.log.Keep(verdict, step)
	done := Event{Kind: VerifierDone, Status: rec.VerificationStatus, Reason: verdict.Reason, Assurance: rec.PassAssurance()}
	if verdict.Reason == verifiers.CommandDenied {
		done.Kind = VerifierPolicyDenied
	}
	if a.cfg.StandIn == standin.Reference {
		done.Detail = weaknesses(verdict)
	}
	a.emit(done)
	return nil
}

// pace is the verifiers.Pace of an attempt.
type pace struct {
	attempt
	begun time.Time // when the verification began
}

// Spare implements verifiers.Pace.
func (p pace) Spare() (give func(), ok bool) {
	need := p.cfg.sandboxNeed(p.task)
	return func() { p.host.Give(need) }, p.host.Spare(need)
}

// Doing implements verifiers.Pace.
func (p pace) Doing(what string) {
	p.emit(Event{Kind: VerifierRun, Detail: what, Seconds: time.Since(p.begun).Seconds()})
}

// checkerNetwork returns what opens the network access of checkers; nil if the tester file allows none. A checker that
// shares a network namespace has to use the proxy.
func (a attempt) checkerNetwork(shared bool) func() (runtime.Access, error) {
	domains := a.cfg.Tester.Verification.AllowedDomains
	if domains == nil || len(*domains) == 0 {
		return nil
	}
	egress := a.cfg.Egress
	egress.Domains, egress.Log, egress.Transparent = *domains, a.log.Checker(), egress.Transparent && !shared
	for _, s := range a.task.Environment().Sidecars {
		egress.Sidecars = append(egress.Sidecars, s.Names()...)
	}
	return func() (runtime.Access, error) { return egress.Open(a.task.ID(), a.number) }
}

// shownPlaces bounds the places of assertions in a warning.
const shownPlaces = 10

// weaknesses tells the pack's author what the run of a reference showed; "" if nothing.
func weaknesses(v verifiers.Verdict) string {
	var parts []string
	if v.Contrast != nil && len(v.Contrast.Places) > 0 {
		places := v.Contrast.Places
		if more := len(places) - shownPlaces; more > 0 {
			places = append(places[:shownPlaces:shownPlaces], fmt.Sprintf("and %d more places", more))
		}
		parts = append(parts, "a candidate can find what is asserted in "+strings.Join(places, ", "))
	}
	if branches, _ := v.Metadata["branches"].([]string); len(branches) > 0 {
		parts = append(parts, "the image's repository has later commits, which an agent can read: "+strings.Join(branches, ", "))
	}
	return strings.Join(parts, "; ")
}

// storeWorkspace removes secrets from a judged workspace and moves it to record.WorkspacesDir.
func (a attempt) storeWorkspace(ctx context.Context, c candidate.Candidate, rec *record.Record) error {
	if c.Workspace == "" {
		return nil
	}
	changed, err := a.secrets.Scrub(ctx, &c)
	if errors.Is(err, secrets.ErrUnsearchable) { // an agent can cause this
		rec.Fail(candidate.Failure{Reason: "candidate_unreadable", Phase: "extraction", Message: err.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	if changed > 0 {
		rec.ProducerMetadata["redacted_entries"] = changed
	}
	to, err := a.moveWorkspace(c, record.WorkspacesDir)
	rec.CandidateWorkspace, rec.WorkspaceDigest, rec.WorkspaceAttributes, rec.LayerDigest = &to, c.Digest, c.Attributes, c.Layer
	rec.Workdir = a.task.Environment().Workdir
	return err
}

// moveWorkspace moves the unjudged workspace of c, and what belongs to it, to the directory dir. It returns its new path.
func (a attempt) moveWorkspace(c candidate.Candidate, dir string) (to string, err error) {
	from, to := path.Join(unjudgedDir, a.workspaceName()), path.Join(dir, a.workspaceName())
	err = errors.Join(a.removeWorkspace(dir), a.out.MkdirAll(dir, 0o755))
	for suffix, digest := range map[string]string{"": c.Digest, workspace.AttributesSuffix: c.Attributes, layer.Suffix: c.Layer} {
		if digest != "" {
			err = errors.Join(err, a.out.Rename(from+suffix, to+suffix))
		}
	}
	return to, err
}

// openTrace stores an agent's prompt and the tester's own descriptor, and sends the request's events to the
// attempt's trace and the progress. The trace is nil unless the harness is an agent.
func (a attempt) openTrace(request *harness.Request) (*logs.File, error) {
	producer := a.cfg.producer()
	if !producer.Prompted {
		return nil, nil
	}
	err := a.log.Text("prompt.txt", harness.Prompt(*request, producer.TaskFile))
	if err == nil && producer.Descriptor != nil {
		err = a.log.Text(record.AgentFile, string(producer.Descriptor))
	}
	if err != nil {
		return nil, err
	}
	f, err := a.log.Create(record.TraceFile)
	if err != nil {
		return nil, err
	}
	request.Trace = f
	request.OnStep = func(text string) { a.emit(Event{Kind: AgentOutput, Detail: a.secrets.Text(text)}) }
	return f, nil
}

// complete finishes a record: it sets the status error if cause is not nil or a log cannot be
// written, removes secrets from the record's texts, and adds the attempt's logs.
func (a attempt) complete(rec record.Record, cause error) (record.Record, error) {
	if cause != nil {
		setError(&rec, cause)
		rec.CandidateWorkspace, rec.Workdir, rec.WorkspaceDigest, rec.WorkspaceAttributes, rec.LayerDigest = nil, "", "", "", ""
	}
	rec.EndedAt = time.Now().UTC()
	steps.Round(&rec)
	private := a.log.WritePrivate(&rec)
	rec = a.secrets.Record(rec)
	rec.CandidateDigest = rec.DigestCandidate()
	err := errors.Join(private, a.log.Fill(&rec))
	if err != nil && cause == nil {
		setError(&rec, err)
	}
	return rec, errors.Join(cause, err)
}

// unjudgedDir holds workspaces until they are judged and free of secrets. They then move to
// record.WorkspacesDir, where they never change.
const unjudgedDir = "unjudged"

func (a attempt) workspaceName() string { return record.WorkspaceName(a.task.ID(), a.number, a.try) }

func (a attempt) removeWorkspace(dir string) error {
	name := path.Join(dir, a.workspaceName())
	return errors.Join(remove.All(a.out, name), remove.All(a.out, name+workspace.AttributesSuffix), remove.All(a.out, name+layer.Suffix))
}

func (a attempt) newRecord() (record.Record, error) {
	task := a.task
	provenance, err := a.provenance(task)
	category, _ := task.Metadata()["category"].(string) // by which reports group tasks
	networked := a.cfg.producer().Relay != nil || len(a.cfg.Egress.Domains) > 0 && !task.Environment().NetworkNone
	return record.Record{
		RunID: a.cfg.Tester.Run.ID, TaskID: task.ID(), BenchmarkID: a.cfg.Pack.ID, TaskType: task.Family().Name, Category: category,
		Attempt: a.number, Try: a.try, HiddenValues: secrets.Redacted, ResourceSummary: task.ResourceSummary(), ProducerMetadata: record.Metadata{},
		NetworkEnabled: networked, Image: a.image.Ref, ImageID: a.image.Digest, Sidecars: a.images.sidecarImages(a.task), Degraded: a.cfg.Degraded,
		StartedAt: a.began.UTC(), Times: record.Times{Waited: a.began.Sub(a.asked).Seconds()}, Provenance: provenance,
	}, err
}

// fillProduced records what the harness did. A bad end is a failure unless the policy has the candidate judged.
func fillProduced(rec *record.Record, kind compiler.CandidateKind, result harness.Result, secrets secrets.Redactor) {
	c := result.Candidate
	rec.ProducerStdout, rec.ProducerStderr = secrets.Output(result.Exit.Stdout), secrets.Output(result.Exit.Stderr)
	rec.ProducerMetadata = result.Exit.Metadata()
	if len(c.Dropped) > 0 {
		rec.ProducerMetadata["dropped"] = c.Dropped
	}
	if c.Text != "" {
		rec.CandidateText = &c.Text
	}
	if kind == compiler.CandidatePatch && result.Failure == nil {
		rec.CandidatePatch = &c.Patch // an empty patch is a candidate, too
	}
	rec.ProducerFailure = result.Ended
	notStarted := result.Ended != nil && result.Ended.Reason == harness.PrepareFailed
	if result.Failure != nil || notStarted || result.Ended != nil && !rec.Provenance.Policy.AfterTimeout {
		rec.Fail(*cmp.Or(result.Ended, result.Failure))
	}
}

// fillVerdict records a verdict without anything that the verifier printed or read.
func fillVerdict(rec *record.Record, v verifiers.Verdict) {
	rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = record.Status(v.Status), v.Reason, v.Message
	passed := v.Status == verifiers.Passed
	if passed || v.Status == verifiers.Pending {
		rec.FailurePhase = ""
	}
	if passed || v.Status == verifiers.Failed {
		rec.Passed, rec.Score = &passed, &v.Score
	}
	rec.VerifierMetadata, rec.Assurance, rec.Contrast = v.Metadata, v.Assurance, v.Contrast
}

// setError gives a record the status error.
func setError(rec *record.Record, err error) {
	rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = record.Error, Infrastructure, err.Error()
	rec.Passed, rec.Score, rec.Assurance = nil, nil, ""
}
