package run

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/workspace"
)

// attempt produces and verifies one task. The record is complete whatever
// happens; cause is the infrastructure's error behind a record of status error.
func (r *attemptRun) attempt(ctx context.Context, task *compiler.Task) (rec Record, cause error) {
	image := r.plan.images[task.Environment().Image]
	rec = r.newRecord(task, image)
	dest, err := r.resetWorkspace(task)
	if err == nil {
		err = r.produceAndVerify(ctx, task, image, dest, &rec)
	}
	return r.finish(rec, task, err), err
}

func (r *attemptRun) newRecord(task *compiler.Task, image runtime.Image) Record {
	return Record{
		RunID: r.cfg.Tester.Run.ID, TaskID: task.ID(), BenchmarkID: r.cfg.Pack.ID, TaskType: task.Family(),
		HiddenValues: redacted, ResourceSummary: task.ResourceSummary(), ProducerMetadata: Metadata{},
		NetworkEnabled: r.cfg.networked(), Image: image.Ref, ImageID: image.Digest, Degraded: r.cfg.Degraded, StartedAt: time.Now().UTC(),
	}
}

// finish makes a record of what could not be measured one of status error, and
// cuts secrets out of its texts.
func (r *attemptRun) finish(rec Record, task *compiler.Task, err error) Record {
	if err != nil {
		rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = Error, "infrastructure", err.Error()
		rec.Passed, rec.Score = nil, nil
	}
	rec.EndedAt = time.Now().UTC()
	// All at once: cutting a short secret out first would leave the rest of a
	// longer one that holds it.
	return r.secrets.with(task.Secrets()...).record(rec)
}

func (r *attemptRun) produceAndVerify(ctx context.Context, task *compiler.Task, image runtime.Image, dest string, rec *Record) error {
	rec.FailurePhase = "producer"
	r.emit(Event{Kind: ProducerStart, Task: task.ID()})
	result, err := r.produce(ctx, task, image, dest)
	rec.Agent, rec.Egress = result.Agent, result.Egress
	if err != nil {
		return err
	}
	r.fillProduced(rec, task, result, dest)
	r.emit(Event{Kind: ProducerDone, Task: task.ID(), Reason: rec.FailureReason})
	if result.Failure != nil {
		rec.VerificationStatus = Failed
		return nil
	}
	return r.judge(ctx, task, image, result.Candidate, rec)
}

// judge verifies a candidate and fills the verdict in.
func (r *attemptRun) judge(ctx context.Context, task *compiler.Task, image runtime.Image, c candidate.Candidate, rec *Record) error {
	rec.FailurePhase = "verifier"
	r.emit(Event{Kind: VerifierStart, Task: task.ID()})
	verdict, err := r.verify(ctx, task, image, c)
	if err != nil {
		return err
	}
	fillVerdict(rec, verdict, r.secrets.with(task.Secrets()...))
	kind := VerifierDone
	if verdict.Reason == "verifier_dangerous_command_denied" {
		kind = VerifierPolicyDenied
	}
	r.emit(Event{Kind: kind, Task: task.ID(), Status: rec.VerificationStatus, Reason: verdict.Reason})
	return nil
}

// resetWorkspace empties the folder that keeps the task's candidate.
func (r *attemptRun) resetWorkspace(task *compiler.Task) (string, error) {
	root, err := os.OpenRoot(filepath.Join(r.cfg.Output, workspacesDir))
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	name := workspace.TaskDir(task.ID())
	if err := workspace.RemoveAll(root, name); err != nil {
		return "", err
	}
	return filepath.Join(r.cfg.Output, workspacesDir, name), root.Mkdir(name, 0o755)
}

func (r *attemptRun) produce(ctx context.Context, task *compiler.Task, image runtime.Image, dest string) (harness.Result, error) {
	request, err := r.cfg.request(task, image)
	if err != nil {
		return harness.Result{}, err
	}
	request.Dest, request.Egress.Log = dest, r.egress
	if r.cfg.StandIn != "" {
		return r.standIn(ctx, task, request)
	}
	trace, err := r.watch(task, &request)
	if err != nil {
		return harness.Result{}, err
	}
	result, err := r.cfg.Producer.Produce(ctx, r.audited(task.ID(), nil), request)
	return result, errors.Join(err, trace.Close())
}

// request is what a producer is handed for a task, but for the destination.
func (c Config) request(task *compiler.Task, image runtime.Image) (harness.Request, error) {
	plan, err := workspace.PlanAgent(task, c.Pack)
	if err != nil {
		return harness.Request{}, err
	}
	env := task.Environment()
	return harness.Request{
		Task: task.AgentView(), Kind: task.CandidateKind(), Plan: plan, Image: image,
		Timeout: smaller(env.Timeout, c.Tester.Harness.Config.Timeout), Limits: c.limits(env),
		WorkspaceBytes: firstPositive(c.Tester.Runtime.Limits.WorkspaceBytes, DefaultWorkspaceBytes),
		OutputBytes:    firstPositive(c.Tester.Runtime.Limits.OutputBytes, DefaultOutputBytes),
		Env:            pairs(c.Env), Attempt: 1, Egress: c.Egress,
	}, nil
}

// A TaskRequest is what the harness would be handed for a task.
type TaskRequest struct {
	ID      string
	Request harness.Request
}

// Requests checks everything as Run does and then yields the requests in the
// pack's order. Their Dest is empty.
func Requests(ctx context.Context, cfg Config) iter.Seq2[TaskRequest, error] {
	return func(yield func(TaskRequest, error) bool) {
		p, err := preflight(ctx, cfg)
		if err != nil {
			yield(TaskRequest{}, err)
			return
		}
		for task, err := range p.stream(cfg) {
			var r TaskRequest
			if err == nil {
				r.ID = task.ID()
				r.Request, err = cfg.request(task, p.images[task.Environment().Image])
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// smaller of the two time limits that are set, else the default.
func smaller(a, b time.Duration) time.Duration {
	limits := slices.DeleteFunc([]time.Duration{a, b}, func(d time.Duration) bool { return d <= 0 })
	if len(limits) == 0 {
		return DefaultTimeout
	}
	return slices.Min(limits)
}

func firstPositive(a, b int64) int64 {
	if a > 0 {
		return a
	}
	return b
}

func pairs(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// limits are the task's, else the tester's, else the defaults; but no task gets
// more than the tester's file says.
func (c Config) limits(env compiler.Environment) runtime.Limits {
	l := runtime.Limits{Memory: env.Resources.Memory, CPUs: env.Resources.CPUs, Pids: env.Resources.Pids}.Over(c.Limits)
	most := c.Tester.Runtime.Limits
	l.Memory, l.CPUs, l.Pids = bounded(l.Memory, most.Memory), bounded(l.CPUs, most.CPUs), bounded(l.Pids, most.Pids)
	return l
}

// bounded is value, at most most unless that is not set.
func bounded[T int64 | float64](value, most T) T {
	if most > 0 {
		return min(value, most)
	}
	return value
}

func (r *attemptRun) verify(ctx context.Context, task *compiler.Task, image runtime.Image, c candidate.Candidate) (verifiers.Verdict, error) {
	verifier, _ := verifiers.For(task.Family())
	v := r.cfg.Tester.Verification
	return verifier(ctx, r.audited(task.ID(), v.DenyCommands), verifiers.Input{
		Task: task, Pack: r.cfg.Pack, Candidate: c, Image: image, Limits: r.cfg.limits(task.Environment()),
		Policy:         verifiers.Policy{AllowDangerous: !v.DisallowDangerousCommands, Deny: v.DenyCommands},
		Timeout:        DefaultTimeout,
		Cells:          r.cells,
		WorkspaceBytes: firstPositive(r.cfg.Tester.Runtime.Limits.WorkspaceBytes, DefaultWorkspaceBytes),
		OutputBytes:    firstPositive(r.cfg.Tester.Runtime.Limits.OutputBytes, DefaultOutputBytes),
	})
}

func (r *attemptRun) fillProduced(rec *Record, task *compiler.Task, result harness.Result, dest string) {
	c := result.Candidate
	secrets := r.secrets.with(task.Secrets()...)
	rec.ProducerStdout, rec.ProducerStderr = secrets.output(result.Exit.Stdout), secrets.output(result.Exit.Stderr)
	rec.ProducerMetadata = exitMetadata(result.Exit)
	if r.cfg.StandIn != "" { // nobody takes it for an agent's
		rec.ProducerMetadata["stand_in"] = r.cfg.StandIn
	}
	if len(c.Dropped) > 0 {
		rec.ProducerMetadata["dropped"] = c.Dropped
	}
	if c.Text != "" {
		rec.CandidateText = &c.Text
	}
	if rec.TaskType == compiler.RepoPatch && result.Failure == nil {
		rec.CandidatePatch = &c.Patch // an empty one is a candidate too
	}
	if c.Workspace != "" {
		rel := filepath.Join(workspacesDir, filepath.Base(dest))
		rec.CandidateWorkspace, rec.CandidateDigest = &rel, c.Digest
	}
	if f := result.Failure; f != nil {
		rec.FailureReason, rec.FailurePhase, rec.FailureMessage = f.Reason, f.Phase, f.Message
	}
}

func fillVerdict(rec *Record, v verifiers.Verdict, secrets redactor) {
	rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = Status(v.Status), v.Reason, v.Message
	if v.Status == verifiers.Pending {
		rec.FailurePhase = ""
		return
	}
	ok := v.Status == verifiers.Passed
	rec.Passed, rec.Score = &ok, &v.Score
	if ok {
		rec.FailurePhase = ""
	}
	rec.VerifierStdout, rec.VerifierStderr = secrets.output(v.Stdout), secrets.output(v.Stderr)
	rec.VerifierMetadata = v.Metadata
}
