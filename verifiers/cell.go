package verifiers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/securebench/sbench/runtime"
)

// Exit statuses of cell/judge.py, and of cell/warden.py for a process of its own
// that the kernel killed.
const (
	judgeFailed    = 40
	judgeRaised    = 41
	judgeUnloaded  = 42
	judgeGone      = 43
	judgeProtocol  = 44
	judgeBroken    = 45
	judgeTooBig    = 46
	judgeBroke     = 47
	wardenKilled   = 48
	cellGrace      = time.Millisecond // for processes that are told to end
	testsFolder    = "tests"
	candidateDir   = "candidate"
	sharedDir      = "shared"
	cellBytes      = 1 << 20 // of a stage, beside its files
	cellBlockBytes = 4096
)

// errJudged stops the candidate's cell once the tests have ended, errStopped both
// when the exchange has failed, errOvertime both when the time is over.
var (
	errJudged   = errors.New("the tests have ended")
	errStopped  = errors.New("the exchange has failed")
	errOvertime = errors.New("the time of the tests is over")
)

// cells makes and runs the sandboxes of one verification.
type cells struct {
	engine Engine
	in     Input
	stage  string        // folder that has one for each cell
	call   time.Duration // limit of one call
}

// judge runs both cells and carries messages between them. The tests' cell is
// tests, which returns when the tests have ended.
func (c cells) judge(ctx context.Context, in *mailbox, tests func(context.Context, *exchange) cellEnd) (Verdict, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x := newExchange(c.call, in, func() { cancel(errStopped) })
	defer x.close()
	var candidate, judged cellEnd
	var wg sync.WaitGroup
	wg.Go(func() {
		candidate = c.candidate(ctx, x)
		x.gone()
		if candidate.trouble() != nil {
			cancel(errStopped)
		}
	})
	wg.Go(func() {
		judged = tests(ctx, x)
		cancel(errJudged)
	})
	wg.Wait()
	if err := errors.Join(judged.trouble(), candidate.trouble()); err != nil {
		return Verdict{}, err
	}
	return c.verdict(x, judged, candidate)
}

// cellEnd is how a cell ended: by an exit or by an error.
type cellEnd struct {
	exit runtime.Exit
	err  error
}

// trouble returns the error, unless it is that we stopped the cell.
func (e cellEnd) trouble() error {
	for _, ours := range []error{errJudged, errStopped, errOvertime} {
		if errors.Is(e.err, ours) && !errors.Is(e.err, runtime.ErrStillAlive) {
			return nil
		}
	}
	return e.err
}

// candidate takes the candidate's cell through its whole life.
func (c cells) candidate(ctx context.Context, x *exchange) cellEnd {
	return c.run(ctx, candidateDir, runtime.Process{Args: pythonArgs("server.py"), Stdin: x.candidate.in, Stdout: x.candidate}, x.begin)
}

// freshTests takes a tests' cell of its own through its whole life.
func (c cells) freshTests(ctx context.Context, x *exchange) cellEnd {
	defer x.tests.in.close()
	return c.run(ctx, testsFolder, runtime.Process{Args: pythonArgs("judge.py"), Stdin: x.tests.in, Stdout: x.tests}, func() {})
}

// run takes a sandbox through its whole life; begin is called before its process
// starts.
func (c cells) run(ctx context.Context, folder string, p runtime.Process, begin func()) cellEnd {
	box, err := c.engine.Create(ctx, c.config(folder, c.stage))
	if err != nil {
		return cellEnd{err: because(ctx, err)}
	}
	begin()
	p.Wall, p.Grace, p.OutputBytes = c.wall(), cellGrace, c.in.OutputBytes
	exit, err := box.Exec(ctx, p)
	if closed := box.Close(ctx); closed != nil {
		// Not to be taken for our stopping the cell.
		return cellEnd{err: fmt.Errorf("close the cell of the %s: %w", folder, closed)}
	}
	return cellEnd{exit: exit, err: because(ctx, missingPython(err))}
}

// because adds to an error why the context was cancelled, if it was.
func because(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// config describes the sandbox of a cell.
func (c cells) config(folder, stage string) runtime.Config {
	env := c.in.Task.Environment()
	limits := c.in.Limits
	limits.LayerBytes = min(limits.LayerBytes, cellLayer)
	return runtime.Config{
		Name: "verifier-" + folder, Image: c.in.Image, Limits: limits,
		Mounts:  []runtime.Mount{{Source: filepath.Join(stage, folder), Dest: cellMount}},
		Workdir: "/tmp", User: env.User, Env: environ(env.Env),
	}
}

func (c cells) wall() time.Duration { return timeout(c.in.Task.Environment().Timeout, c.in.Timeout) }

// verdict maps the end of the tests' process.
func (c cells) verdict(x *exchange, tests, candidate cellEnd) (Verdict, error) {
	exit := tests.exit
	v := passed()
	failure := x.failure()
	switch {
	case failure != nil:
		v = *failure
	case exit.Reason == runtime.WallTime || errors.Is(tests.err, errOvertime):
		v = failed("verifier_timeout", fmt.Sprintf("the tests did not end within %s", c.wall()))
	case exit.Reason == runtime.OutOfMemory:
		v = failed("verifier_out_of_memory", "the tests' process "+exit.String())
	case exit.Reason == runtime.PidsLimit:
		v = failed("verifier_pids_limit", "the tests' process "+exit.String())
	case exit.Success():
	case exit.Reason != runtime.Exited || exit.Signal != 0:
		v = failed("tests_ended", "the tests' process "+exit.String())
	case exit.Code == judgeBroken:
		return Verdict{}, fmt.Errorf("the tests of task %q do not compile", c.in.Task.ID())
	case exit.Code == judgeGone:
		v = gone(candidate)
	default:
		v = failed(judgeReason(exit.Code))
	}
	v.Stderr = exit.Stderr
	v.Metadata = map[string]any{"messages": x.messages()}
	if exit.Reason != 0 {
		v.Metadata["exit_reason"], v.Metadata["exit_code"], v.Metadata["wall_seconds"] = exit.Reason.String(), exit.Code, exit.Wall.Seconds()
	}
	if candidate.err == nil {
		v.Metadata["candidate_exit"], v.Metadata["candidate_usage"] = candidate.exit.String(), candidate.exit.Usage
	}
	return v, nil
}

// judgeReason returns the reason and message of a status that does not pass.
func judgeReason(code int) (reason, message string) {
	switch code {
	case judgeFailed:
		return "tests_failed", "an assertion of the tests does not hold"
	case judgeRaised:
		return "tests_raised", "an exception ended the tests"
	case judgeUnloaded:
		return "candidate_not_loaded", "the candidate raised an exception when it was loaded"
	case judgeProtocol:
		return "candidate_protocol_violation", "the candidate's cell sent what is no message"
	case judgeBroke:
		return "tests_interrupted", "the tests broke off a call of the candidate"
	case judgeTooBig:
		return "message_too_big", fmt.Sprintf("a call or result is larger than %d bytes, or nested too deeply", maxFrame)
	}
	return "tests_ended", fmt.Sprintf("the tests ended their process with exit status %d", code)
}

// gone says why the candidate's cell ended before the tests did.
func gone(candidate cellEnd) Verdict {
	switch candidate.exit.Reason {
	case runtime.OutOfMemory:
		return failed("candidate_out_of_memory", "the candidate's process "+candidate.exit.String())
	case runtime.PidsLimit:
		return failed("candidate_pids_limit", "the candidate's process "+candidate.exit.String())
	case runtime.WallTime:
		return failed("verifier_timeout", "the candidate's process was "+candidate.exit.String())
	case runtime.Exited, runtime.Signaled:
		return failed("candidate_gone", "the candidate's process ended during a call: it "+candidate.exit.String())
	}
	return failed("candidate_gone", "the candidate's process ended during a call")
}
