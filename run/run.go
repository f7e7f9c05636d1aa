// Package run takes a benchmark from its files to its records: one attempt
// after the other, each produced, verified and written down.
package run

import (
	"context"
	"errors"
	"fmt"
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

// ErrInfrastructure says that records of status error were written, or that the
// run could not go on. It is not the candidates' fault.
var ErrInfrastructure = errors.New("infrastructure errors")

// Defaults of what a tester file may set.
const (
	DefaultWorkspaceBytes = 2 << 30
	DefaultOutputBytes    = 1 << 20
	DefaultTimeout        = 10 * time.Minute // of a harness or a checker
	recordsFile           = "candidates.jsonl"
	workspacesDir         = "workspaces"
)

// Images resolves references before anything starts.
type Images interface {
	Resolve(ctx context.Context, ref string) (runtime.Image, error)
}

// Config is everything a run needs.
type Config struct {
	Tester   *compiler.Tester
	Pack     *compiler.Pack
	Env      map[string]string // values of harness.env
	Engine   harness.Engine
	Images   Images
	Producer harness.Producer
	Limits   runtime.Limits
	Degraded []string
	Output   string // folder; made if missing
	Limit    int    // tasks at most; 0 means all
	Select   func(id string) bool
	Progress func(Event) // called from one goroutine
}

// A Summary counts a run's records.
type Summary struct {
	RunID  string `json:"run_id"`
	Total  int    `json:"total"`
	Passed int    `json:"passed"`
	Failed int    `json:"failed"`
	// Pending tasks have no verifier; errors were not measured.
	Pending int    `json:"pending"`
	Errors  int    `json:"errors"`
	Output  string `json:"output"` // the records file
}

// Verified counts the records that carry a verdict.
func (s Summary) Verified() int { return s.Passed + s.Failed }

// Verification is the run's status: complete, pending or partial.
func (s Summary) Verification() string {
	switch {
	case s.Total == 0, s.Verified() == s.Total:
		return "complete"
	case s.Verified() == 0:
		return "pending"
	}
	return "partial"
}

// String is the line that ends a run.
func (s Summary) String() string {
	return fmt.Sprintf("sbench: run_id=%s total=%d verification=%s verified=%d passed=%d output=%s",
		s.RunID, s.Total, s.Verification(), s.Verified(), s.Passed, s.Output)
}

// attemptRun is a run in progress.
type attemptRun struct {
	cfg     Config
	plan    plan
	secrets redactor // values of harness.env
	records *recorder
	summary Summary
}

// Run measures. It checks every input first and returns compiler.Problems, with
// all that is wrong, before anything has started or been written. The summary
// counts what was recorded, also when the error is ErrInfrastructure or the
// context's.
func Run(ctx context.Context, cfg Config) (Summary, error) {
	p, err := preflight(ctx, cfg)
	if err != nil {
		return Summary{}, err
	}
	return measure(ctx, cfg, p, (*attemptRun).attempt)
}

// measure makes a record of every task of the plan and writes it down.
func measure(ctx context.Context, cfg Config, p plan, attempt func(*attemptRun, context.Context, *compiler.Task) (Record, error)) (Summary, error) {
	if err := os.MkdirAll(filepath.Join(cfg.Output, workspacesDir), 0o755); err != nil {
		return Summary{}, outputProblem(cfg, err)
	}
	name := filepath.Join(cfg.Output, recordsFile)
	secrets := redactor{}.with(values(cfg.Env)...)
	records, err := createRecords(name, secrets)
	if err != nil {
		return Summary{}, outputProblem(cfg, err)
	}
	r := &attemptRun{cfg: cfg, plan: p, secrets: secrets, records: records, summary: Summary{RunID: cfg.Tester.Run.ID, Output: name}}
	r.emit(Event{Kind: RunStart, Detail: fmt.Sprintf("%d tasks", p.tasks)})
	err = errors.Join(r.all(ctx, attempt), records.close())
	r.emit(Event{Kind: RunDone, Detail: r.summary.Verification()})
	if err == nil && r.summary.Errors > 0 {
		err = fmt.Errorf("%w in %d of %d attempts", ErrInfrastructure, r.summary.Errors, r.summary.Total)
	}
	return r.summary, err
}

func outputProblem(cfg Config, err error) error {
	return compiler.Problems{{File: cfg.Tester.Path, Path: "$.run.output_dir", Message: err.Error()}}
}

func values(m map[string]string) []string {
	var all []string
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

func (r *attemptRun) emit(e Event) {
	if r.cfg.Progress == nil {
		return
	}
	e.Time, e.RunID = time.Now(), r.cfg.Tester.Run.ID
	r.cfg.Progress(e)
}

// all goes through the tasks in the pack's order.
func (r *attemptRun) all(ctx context.Context, attempt func(*attemptRun, context.Context, *compiler.Task) (Record, error)) error {
	for task, err := range r.plan.stream(r.cfg) {
		if err != nil {
			return err // preflight read the same rows
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.emit(Event{Kind: TaskStart, Task: task.ID()})
		rec, cause := attempt(r, ctx, task)
		if cause != nil && ctx.Err() != nil {
			return context.Cause(ctx) // interrupted: not measured, not recorded
		}
		if err := r.records.append(rec); err != nil {
			return err
		}
		r.count(rec)
		r.emit(Event{Kind: TaskDone, Task: task.ID(), Status: rec.VerificationStatus, Reason: rec.FailureReason})
		if errors.Is(cause, runtime.ErrUnavailable) {
			return fmt.Errorf("%w: stopped after %d of %d tasks: %w", ErrInfrastructure, r.summary.Total, r.plan.tasks, cause)
		}
	}
	return nil
}

func (r *attemptRun) count(rec Record) {
	r.summary.Total++
	switch rec.VerificationStatus {
	case Passed:
		r.summary.Passed++
	case Failed:
		r.summary.Failed++
	case Pending:
		r.summary.Pending++
	case Error:
		r.summary.Errors++
	}
}

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
		Image: image.Ref, ImageID: image.Digest, Degraded: r.cfg.Degraded, StartedAt: time.Now().UTC(),
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
	request.Dest = dest
	return r.cfg.Producer.Produce(ctx, r.audited(task.ID(), nil), request)
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
		Env:            pairs(c.Env),
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
		WorkspaceBytes: firstPositive(r.cfg.Tester.Runtime.Limits.WorkspaceBytes, DefaultWorkspaceBytes),
		OutputBytes:    firstPositive(r.cfg.Tester.Runtime.Limits.OutputBytes, DefaultOutputBytes),
	})
}

func (r *attemptRun) fillProduced(rec *Record, task *compiler.Task, result harness.Result, dest string) {
	c := result.Candidate
	secrets := r.secrets.with(task.Secrets()...)
	rec.ProducerStdout, rec.ProducerStderr = secrets.output(result.Exit.Stdout), secrets.output(result.Exit.Stderr)
	rec.ProducerMetadata = exitMetadata(result.Exit)
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
