// Package run takes a benchmark from its files to its records: one attempt
// after the other, each produced, verified and written down.
package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
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
	egressFile            = "egress.jsonl"
	traceFile             = "agent-trace.log"
	workspacesDir         = "workspaces"
	logsDir               = "logs"
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
	Egress   harness.Egress // without its log
	StandIn  StandIn        // instead of Producer
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
	cells   *verifiers.CellPool
	records *recorder
	egress  *proxy.Log // nil if nothing may leave
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
	log, err := r.openEgress()
	if err != nil {
		return Summary{}, errors.Join(outputProblem(cfg, err), records.close())
	}
	r.cells = verifiers.NewCellPool(r.audited("", cfg.Tester.Verification.DenyCommands))
	r.emit(Event{Kind: RunStart, Detail: fmt.Sprintf("%d tasks", p.tasks)})
	err = errors.Join(r.all(ctx, attempt), r.cells.Close(ctx), records.close(), log.Close())
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
