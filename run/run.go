// Package run runs a benchmark and records the results: it has a harness make a candidate for each
// attempt, has a verifier judge it, and appends a record. As many attempts run at a time as the host's
// resources allow.
//
// [NewPlan] checks what will run and needs no daemon; a [Site] says on which host and engine; [Run]
// does it. The package writes only to the run's directory and to the calibrations of the Site. It
// starts sandboxes only through the Site's engine.
//
//	session.go   a run from the first image to the seal
//	schedule.go  which attempts are made, when, and how often
//	attempt.go   one attempt: harness, verifier, record
//	rejudge.go   the same for the stored candidates of another run
//	record/      the records: their format, chain and signature
//	logs/        what is logged beside the records
//	standin/     the reference, empty and hostile candidates
//	secrets/     what removes secrets from all that is kept
//	steps/       the sum of a task's steps
//	admission/   when the host has room for an attempt
package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/standin"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
)

// Errors that callers distinguish with errors.Is.
var (
	// ErrInfrastructure means that records of status error were written, or that the run could
	// not continue. The candidates are not at fault.
	ErrInfrastructure = errors.New("infrastructure errors")
	// ErrStopped means that the run was asked to stop before its end.
	ErrStopped = errors.New("the run was stopped")
)

// Infrastructure is the failure reason of status error if sbench or the host caused it. Any other
// reason of status error is a fault of the pack or its images.
const Infrastructure = "infrastructure"

// Defaults for what a tester file may set.
const (
	defaultWorkspaceBytes = 2 << 30
	defaultOutputBytes    = 1 << 20
	defaultTimeout        = 10 * time.Minute // of a harness or a checker
)

// Images resolves image references before anything starts.
type Images interface {
	// Resolve returns the local, unpacked image of an environment, changed by its set-up commands. The error is
	// runtime.ErrNotFound without an image, and harness.ErrPreparation if a command fails.
	Resolve(ctx context.Context, env environment.Environment) (runtime.Image, error)
}

// Inputs are what is measured.
type Inputs struct {
	Tester *testerfile.File
	Pack   *compiler.Pack
	Env    map[string]string // values of harness.env by name
}

// A Site is the host, the engine and the services with which a run is made. Every record's provenance
// describes them.
type Site struct {
	Engine       harness.Engine
	Images       Images
	Producer     harness.Producer
	Egress       harness.Egress    // its Log is set for each attempt
	Calibrations string            // directory for calibrations of blind tests; "" keeps them for this run only
	Judge        *Judge            // nil for none
	Degraded     []string          // limits that the host does not enforce
	Isolation    runtime.Isolation // the least of all sandboxes
	Version      record.Version
	Host         record.Host
	GVisor       string // the OCI runtime of sandboxes with that isolation, and its version; "" for none
}

// Options say what a run does with its inputs.
type Options struct {
	StandIn  standin.Kind         // replaces the producer unless it is ""
	Output   string               // directory, made for this user alone if it is missing; "" is the tester file's
	Limit    *int                 // most tasks that run; nil means all
	Select   func(id string) bool // nil selects all
	Progress func(Event)          // nil for none; calls never overlap
	Shard    *Shard               // makes only this part of the selected attempts; nil for all

	// LeaveOut leaves out tasks that cannot be prepared, such as tasks without an image, and runs the
	// rest. LeftOut are the tasks that the caller has left out itself.
	LeaveOut bool
	LeftOut  []LeftOut

	CandidatesExist bool        // the producer needs no sandbox, and so no image
	Jobs            int         // attempts at a time; 0 means as many as the cores can serve
	Attempts        int         // of each task; 0 means one
	Retries         int         // of an attempt that could not be measured
	FailFast        bool        // start nothing more after an attempt with status failed or error
	Resume          bool        // continue the run in Output, if there is one
	Sign            *record.Key // signs the seal; nil for no signature
	// Require is the weakest assurance with which a pass counts as one in the summary; "" for any.
	Require verifiers.Assurance
	// Trust is what the records of a resumed run must prove. If Sign is set, its key must have signed
	// them.
	Trust record.Trust
	// Stop, once closed, ends the run: no attempt starts, sbench ends the harnesses, and verifications
	// in progress finish. Nil never stops the run.
	Stop <-chan struct{}

	original *Original // nil unless its candidates are judged; see Rejudge
}

// A LeftOut is a task that cannot be prepared.
type LeftOut struct {
	Task   string `json:"task"`
	Reason string `json:"reason"` // for people
}

// ErrLeftOut means that tasks were left out; the others were measured.
var ErrLeftOut = errors.New("tasks could not be prepared")

// A Summary counts attempts by the last record of each.
type Summary struct {
	RunID   string `json:"run_id"`
	Total   int    `json:"total"`   // less than Planned if the run was interrupted or stopped early
	Planned int    `json:"planned"` // attempts that the run was to make, including Resumed
	Passed  int    `json:"passed"`
	Failed  int    `json:"failed"`
	Pending int    `json:"pending"` // without a verdict, mostly for lack of a verifier
	Errors  int    `json:"errors"`  // could not be measured
	// Infrastructure counts the attempts of Errors for which the pack is not at fault. Only these attempts can end
	// differently if nothing is changed.
	Infrastructure int `json:"infrastructure,omitempty"`

	Retried int       `json:"retried,omitempty"`  // part of Passed: an earlier try could not be measured
	Resumed int       `json:"resumed,omitempty"`  // part of Total: recorded before this run resumed
	LeftOut []LeftOut `json:"left_out,omitempty"` // see Options.LeaveOut
	Output  string    `json:"output"`             // the records file
}

// Verified returns the number of attempts with a verdict.
func (s Summary) Verified() int { return s.Passed + s.Failed }

// Interrupted reports whether some planned attempts are not recorded.
func (s Summary) Interrupted() bool { return s.Total < s.Planned }

// Verification returns the run's status: complete, pending or partial.
func (s Summary) Verification() string {
	switch {
	case !s.Interrupted() && s.Verified() == s.Total:
		return "complete"
	case s.Verified() == 0:
		return "pending"
	}
	return "partial"
}

// String returns the last line that a run prints.
func (s Summary) String() string {
	planned := ""
	if s.Interrupted() {
		planned = fmt.Sprintf(" planned=%d", s.Planned)
	}
	return fmt.Sprintf("sbench: run_id=%s total=%d%s verification=%s verified=%d passed=%d output=%s",
		s.RunID, s.Total, planned, s.Verification(), s.Verified(), s.Passed, s.Output)
}

// Run does what the plan says. If the error holds compiler.Problems, no attempt has started; after
// [ErrInfrastructure], [ErrStopped] or the cause of ctx, the summary counts what has been recorded.
func Run(ctx context.Context, plan Plan, site Site) (Summary, error) {
	s, err := begin(ctx, plan, site)
	if err != nil {
		return Summary{}, err
	}
	return s.end(ctx, s.makeAttempts(ctx))
}

func outputProblem(plan Plan, err error) error {
	return compiler.Problems{plan.Tester.Problem("$.run.output_dir", "", withHint(err).Error())}
}

// withHint adds to an error what the user can do about it.
func withHint(err error) error {
	switch {
	case errors.Is(err, record.ErrExists):
		return fmt.Errorf("%w: continue with --resume, name another --output-dir, or move it away", err)
	case errors.Is(err, record.ErrUnsigned):
		return fmt.Errorf("%w: --accept-unsigned takes them as they are, and the seal will say so", err)
	}
	return err
}
