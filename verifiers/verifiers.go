// Package verifiers is the contract between a run and what judges its candidates: what a verifier gets
// ([Input], [Engine]) and what it says ([Verdict]).
//
// A verifier runs after every process of the harness is dead, in sandboxes that the harness
// has never touched. Only a task with Environment.KeepProcesses is judged while they run. A task's
// checker or test command passes by its exit status or the reward that it leaves, never by its output.
// Whatever a candidate can cause makes it Failed; an error means that nothing was judged.
//
// The package families finds the verifier of a task. Every other package below this directory has one job:
//
//	families   the list of verifiers, and the verifiers of answers in words
//	code       the verifier of code_completion; pool keeps its sandboxes
//	repo       the verifier of repo_patch
//	terminal   the verifier of terminal_task; machine decides what a checker sees of a changed machine
//	split      the verifier of tasks of any family with a driver and an oracle
//	suite      hidden tests, as repo and terminal run them: unchanged, and changed so that they must fail
//	contrast   changes to tests in Python
//	text       answers in words
//	judge      answers that a model judges
package verifiers

import (
	"cmp"
	"context"
	"errors"
	"math"
	"path"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/verifiers/judge"
	"github.com/securebench/sbench/verifiers/pool"
	"github.com/securebench/sbench/workspace"
)

// Status is the outcome of a verification. The zero Status is invalid.
type Status string

// The statuses a verifier can reach.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Pending Status = "pending" // there is no verifier for such a task yet
	// Faulty means that a defect of the pack or its image kept anything from being measured.
	// No candidate can cause that, and a retry would not help.
	Faulty Status = "error"
)

// An Assurance says how sure a pass is: where the candidate's code ran, compared with where
// the expectation was. It is the zero Assurance unless the verdict is a pass.
type Assurance string

const (
	// Sealed means that no code of the candidate was where the expectation is.
	Sealed Assurance = "sealed"
	// Contrasted means that the candidate, beside the tests, answers as the reference solution does while the tests
	// do not say what they expect.
	Contrasted Assurance = "contrasted"
	// Executed means that the command succeeded, and does not succeed whatever happens.
	Executed Assurance = "executed"
)

// A Verdict is the result of a verification. The zero Verdict is invalid.
type Verdict struct {
	Status    Status
	Score     float64   // 0 to 1; 1 if Status is Passed, and else 0, unless an oracle says otherwise
	Assurance Assurance // how sure the pass is; "" unless Status is Passed
	Reason    string    // one word, such as "checker_failed"; "" if it passed
	Message   string    // the reason for people; of what a process printed, at most the last line of a checker
	// Stdout and Stderr are the output of the checker, for people.
	Stdout, Stderr runtime.Output
	// Contrast says how the candidate answered blind tests; nil if it was asked nothing.
	Contrast *contrast.Summary
	Metadata map[string]any // more entries for the record; nil if there are none
	Logs     []Log          // what a checker left in /logs/verifier, for people
}

// A Log is a file of a checker.
type Log struct {
	Name string // of letters, digits, ".", "_" and "-"
	Text string
}

// Rounded returns a number from a checker, which has read hidden tests, as the public record has it: from -1000
// to 1000, with four decimal digits. What is below 1 stays below 1.
func Rounded(n float64) float64 {
	rounded := math.Round(min(max(n, -1000), 1000)*1e4) / 1e4
	if n < 1 {
		rounded = min(rounded, 0.9999)
	}
	return rounded + 0 // never -0
}

// Keys of Verdict.Metadata, and so of a record's verifier_metadata.
const (
	Reward   = "reward"   // the rewards by name that a checker left; in a record, the one that counts
	Read     = "read"     // the answer that was read in a text, or the first line of the code
	Rule     = "rule"     // by which Read was found
	Doubtful = "doubtful" // true if the candidate gave some wrong answers to blind tests
)

// CommandDenied is the reason if the tester file forbids a command that a task needs.
const CommandDenied = "verifier_dangerous_command_denied"

// Pass returns a pass without an assurance.
func Pass() Verdict { return Verdict{Status: Passed, Score: 1} }

// Fail returns a verdict on a candidate that does not solve its task.
func Fail(reason, message string) Verdict {
	return Verdict{Status: Failed, Reason: reason, Message: message}
}

// Fault returns a verdict on a task that cannot be measured.
func Fault(reason, message string) Verdict {
	return Verdict{Status: Faulty, Reason: reason, Message: message}
}

// OfExit returns the verdict on a candidate for whom a checker ended so.
func OfExit(exit runtime.Exit) Verdict {
	v := Pass()
	switch {
	case exit.Success():
	case exit.Reason == runtime.WallTime:
		v = Fail("verifier_timeout", "the checker was "+exit.String())
	case exit.Reason == runtime.OutOfMemory:
		v = Fail("verifier_out_of_memory", "the checker "+exit.String())
	case exit.Reason == runtime.PidsLimit:
		v = Fail("verifier_pids_limit", "the checker "+exit.String())
	default:
		v = Fail("checker_failed", "the checker "+exit.String())
	}
	v.Stdout, v.Stderr = exit.Stdout, exit.Stderr
	v.Metadata = exit.Metadata()
	return v
}

// With returns the verdict with one more entry in its metadata.
func (v Verdict) With(key string, value any) Verdict {
	if v.Metadata == nil {
		v.Metadata = map[string]any{}
	}
	v.Metadata[key] = value
	return v
}

// Engine is what a verifier needs from the runtime.
type Engine = candidate.Engine

// Pace is what a verification of several runs asks and tells. Its methods are safe for concurrent use.
type Pace interface {
	// Spare takes room for one more of the verification's sandboxes at the same time, if the host has it
	// and nothing else waits for it. give returns the room.
	Spare() (give func(), ok bool)
	// Doing says what is being done, for people.
	Doing(what string)
}

// Permissions says which dangerous commands the operator permits. The zero Permissions
// permits none.
type Permissions struct {
	// AllowDangerous permits the dangerous commands that a task needs.
	AllowDangerous bool
	Deny           []string // names; takes precedence over AllowDangerous
}

// An Input describes one verification.
type Input struct {
	Task      *compiler.Task
	Pack      *compiler.Pack
	Candidate candidate.Candidate
	// Reference says that the candidate is the task's own solution, by which blind tests
	// can be calibrated.
	Reference bool
	Image     runtime.Image
	// CheckerImage is the image of a checker that has its own; the zero Image otherwise.
	CheckerImage runtime.Image
	Sidecars     []service.Sidecar // which a terminal_task has beside its checker
	Limits       runtime.Limits
	Permissions  Permissions
	// Left is the harness's sandbox, with the processes that it left; nil if they have ended.
	Left runtime.Sandbox
	// Network opens network access for a sandbox of a checker that needs it; nil means none.
	Network func() (runtime.Access, error)
	Timeout time.Duration // of a check for which the task sets none
	// Code provides the sandboxes of code_completion; nil means new ones each time.
	Code *pool.Pool
	// Calibrations stores calibrations of blind tests; nil stores none.
	Calibrations *contrast.Store
	// Contrast says how much is done against candidates that follow their tests.
	Contrast contrast.Effort
	Pace     Pace // nil if nobody is told, and only one sandbox of the verification runs at a time
	// Judge judges free responses by rubrics in prose, by what Model says; nil judges none.
	Judge *judge.Judge
	Model judge.Model
	// WorkspaceBytes bounds the temporary copy of the workspace, OutputBytes what is kept of
	// each stream.
	WorkspaceBytes int64
	OutputBytes    int64
}

// stageInodes bounds the files of a [Input.Stage].
const stageInodes = 65536

// Stage makes a volume for files that the candidate must not change. The caller closes it.
func (in Input) Stage(ctx context.Context, e Engine) (runtime.Volume, error) {
	return e.NewVolume(ctx, runtime.VolumeConfig{Bytes: in.WorkspaceBytes, Inodes: stageInodes})
}

// Wall returns the time limit of a run of tests.
func (in Input) Wall() time.Duration { return cmp.Or(in.Task.Environment().Timeout, in.Timeout) }

// Dir makes a working directory absolute that the task names; "" stays "", the sandbox's.
func (in Input) Dir(dir string) string {
	switch {
	case dir == "":
		return ""
	case path.IsAbs(dir):
		return path.Clean(dir)
	}
	return path.Join(in.Task.Environment().Dir(), dir)
}

// Sandbox returns the configuration of a sandbox without anything of the candidate.
func (in Input) Sandbox(name string) runtime.Config {
	env := in.Task.Environment()
	return runtime.Config{Name: name, Image: in.Image, Limits: in.Limits, User: env.User, Env: environment.Environ(env.Env)}
}

// Run runs tests in a new sandbox, beside which the task's sidecars run. p names their directory
// as the task does, and their own time limit, if any.
func (in Input) Run(ctx context.Context, e Engine, cfg runtime.Config, p runtime.Process) (runtime.Exit, error) {
	sandbox, err := service.Create(ctx, e, cfg, in.Sidecars)
	if err != nil {
		return runtime.Exit{}, err
	}
	p.Dir, p.Wall, p.OutputBytes = in.Dir(p.Dir), cmp.Or(p.Wall, in.Wall()), in.OutputBytes
	exit, err := sandbox.Exec(ctx, p)
	return exit, errors.Join(err, sandbox.Close(ctx))
}

// Entrypoint returns the service that the entry point of an image is, if the task wants it. If the image is the checker's
// own, the task's command and ready check do not apply: they are for the task's image.
func (in Input) Entrypoint(image runtime.Image, own bool) []service.Service {
	e := in.Task.Environment().Entrypoint
	if e != nil && own {
		e = new(environment.Entrypoint)
	}
	args, ready := e.Of(image.Entrypoint, image.Health)
	if args == nil {
		return nil
	}
	return []service.Service{{Args: args, Ready: ready, Wait: cmp.Or(e.Timeout, image.HealthWait)}}
}

// Beside is [service.Beside] for a command that the tester file may deny: the engine sees only with-services.
func (in Input) Beside(services []service.Service, args []string, cfg *runtime.Config) ([]string, error) {
	if len(services) > 0 {
		if err := (runtime.CommandPolicy{Allow: []string{"*"}, Deny: in.Permissions.Deny}).Decide(args).Check(); err != nil {
			return nil, err
		}
	}
	return service.Beside(services, args, cfg)
}

// A Verifier judges one candidate in sandboxes of e. An error means that nothing was
// judged and that a retry may help. Verifiers are safe for concurrent use.
type Verifier func(ctx context.Context, e Engine, in Input) (Verdict, error)

// The files of a solution that a script makes.
const (
	SolutionDir    = "solution" // the directory that a plan puts them in
	SolutionScript = "solve.sh" // in it: the script
)

// A Family is a family of tasks with what judges their candidates, and the candidate that each
// task has of its own.
type Family struct {
	*compiler.Family
	Verify Verifier
	// Sandboxed says that Verify needs sandboxes. Otherwise its Engine is nil.
	Sandboxed bool
	// Reference returns a task's own solution if that is a text, code or a patch; the zero
	// Candidate if it has none. Nil if no task has one.
	Reference func(t *compiler.Task) candidate.Candidate
	// Solution plans the files of a task's own solution if a script makes it: SolutionDir
	// with SolutionScript. The plan is empty if there is none. Nil if no task has one.
	Solution func(t *compiler.Task, p *compiler.Pack) (workspace.Plan, error)
}

// By returns a verifier that judges by what a task has for it.
func By[E any](of func(*compiler.Task) E, judge func(context.Context, Engine, Input, E) (Verdict, error)) Verifier {
	return func(ctx context.Context, e Engine, in Input) (Verdict, error) { return judge(ctx, e, in, of(in.Task)) }
}
