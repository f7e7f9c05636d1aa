package verifiers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/securebench/sbench/runtime"
)

// Exit statuses of cell/judge.py.
const (
	judgePassed   = 0
	judgeFailed   = 40
	judgeRaised   = 41
	judgeUnloaded = 42
	judgeGone     = 43
	judgeProtocol = 44
	judgeBroken   = 45
	judgeTooBig   = 46
	judgeBroke    = 47
)

// errJudged stops the candidate's cell once the tests have ended, errStopped both
// when the exchange has failed.
var (
	errJudged  = errors.New("the tests have ended")
	errStopped = errors.New("the exchange has failed")
)

// judge runs both cells and carries messages between them.
func (c cells) judge(ctx context.Context) (Verdict, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x := newExchange(c.call, func() { cancel(errStopped) })
	defer x.close()
	var candidate, tests cellEnd
	var wg sync.WaitGroup
	wg.Go(func() {
		candidate = c.run(ctx, "candidate", "server.py", x.candidate)
		x.tests.in.close()
		if candidate.failed() {
			cancel(errStopped)
		}
	})
	wg.Go(func() {
		tests = c.run(ctx, "tests", "judge.py", x.tests)
		cancel(errJudged)
	})
	wg.Wait()
	if err := errors.Join(tests.trouble(), candidate.trouble()); err != nil {
		return Verdict{}, err
	}
	return c.verdict(x, tests.exit, candidate)
}

// cellEnd is how a cell ended: by an exit or by an error.
type cellEnd struct {
	exit runtime.Exit
	err  error
}

// trouble returns the error unless it is that we stopped the cell.
func (e cellEnd) trouble() error {
	if e.stopped() {
		return nil
	}
	return e.err
}

func (e cellEnd) stopped() bool {
	return (errors.Is(e.err, errJudged) || errors.Is(e.err, errStopped)) && !errors.Is(e.err, runtime.ErrStillAlive)
}

func (e cellEnd) failed() bool { return e.err != nil && !e.stopped() }

// run takes one cell through its whole life.
func (c cells) run(ctx context.Context, folder, program string, end *endpoint) cellEnd {
	box, err := c.create(ctx, folder)
	if err != nil {
		return cellEnd{err: because(ctx, err)}
	}
	end.begin()
	exit, err := box.Exec(ctx, runtime.Process{
		Args: pythonArgs(program), Stdin: end.in, Stdout: end, Wall: c.wall(), Grace: time.Millisecond, OutputBytes: c.in.OutputBytes,
	})
	closed := box.Close(ctx)
	if closed != nil {
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

// verdict maps the end of the tests' process.
func (c cells) verdict(x *exchange, exit runtime.Exit, candidate cellEnd) (Verdict, error) {
	v := passed()
	failure := x.failure()
	switch {
	case failure != nil:
		v = *failure
	case exit.Reason == runtime.WallTime:
		v = failed("verifier_timeout", "the tests were "+exit.String())
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
	v.Metadata = map[string]any{
		"exit_reason": exit.Reason.String(), "exit_code": exit.Code, "wall_seconds": exit.Wall.Seconds(), "usage": exit.Usage,
		"messages": x.messages(),
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
