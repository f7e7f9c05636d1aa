package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
)

const (
	// breakerLimit is how many attempts in a row may find no daemon before the run
	// gives up.
	breakerLimit = 3
	retryDelay   = time.Second // before the first retry; doubled for each that follows
)

// all makes every attempt that is not recorded yet, in the pack's order, and waits for
// them.
func (s *session) all(ctx context.Context) error {
	harnesses, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go s.watchStop(harnesses, stop)
	room, err := newRoom(s.cfg.Output, s.jobs)
	if err != nil {
		return err
	}
	group, work := errgroup.WithContext(ctx)
	harnesses, release := joined(harnesses, work)
	defer release()
	err = s.eachAttempt(func(task *compiler.Task, attempt int, _ string) error {
		t := try{task: task, attempt: attempt, asked: time.Now()}
		need := s.cfg.need(task)
		if err := room.take(harnesses, need, func(waits string) { s.emit(Event{Kind: Waiting, Task: task.ID(), Detail: waits}) }); err != nil {
			return err
		}
		switch { // what happened meanwhile
		case harnesses.Err() != nil:
			return context.Cause(harnesses)
		case s.failed.Load():
			return errFailFast
		}
		group.Go(func() error {
			defer room.give(need)
			return s.tryUntilMeasured(work, harnesses, t)
		})
		return nil
	})
	// If a goroutine failed, its error is why the loop ended.
	if failed := group.Wait(); failed != nil {
		return failed
	}
	switch {
	case errors.Is(err, errFailFast):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && s.cut.Load():
		return context.Cause(harnesses)
	}
	return err
}

var errFailFast = errors.New("an attempt did not pass, and --fail-fast")

// watchStop ends the harnesses when the run is asked to stop.
func (s *session) watchStop(ctx context.Context, stop context.CancelCauseFunc) {
	select {
	case <-s.cfg.Stop: // nil: never
		s.emit(Event{Kind: Stopping, Detail: "what is being verified comes to its end"})
		stop(ErrStopped)
	case <-ctx.Done():
	}
}

// joined returns a context that is done when either of the two is.
func joined(ctx, other context.Context) (context.Context, func()) {
	both, cancel := context.WithCancelCause(ctx)
	undo := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return both, func() { undo(); cancel(nil) }
}

// eachAttempt calls f for every attempt that has to be made, with the reason.
func (s *session) eachAttempt(f func(task *compiler.Task, attempt int, why string) error) error {
	for task, err := range s.plan.stream(s.cfg) {
		if err != nil {
			return err // preflight read the same rows
		}
		for attempt := 1; attempt <= s.attempts; attempt++ {
			done, why, err := s.recorded(task, attempt)
			if err == nil && !done {
				err = f(task, attempt, why)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// recorded reports whether an earlier session measured the attempt from the same inputs,
// and adds it to the summary. If not, why is the reason.
func (s *session) recorded(task *compiler.Task, attempt int) (done bool, why string, err error) {
	old, known := s.before[key{task.ID(), attempt}]
	if !known {
		return false, "not recorded yet", nil
	}
	if !old.status.Scored() {
		return false, "was " + string(old.status), nil
	}
	now, err := s.provenance(task)
	if err != nil {
		return false, "", err
	}
	if now.Inputs != old.inputs {
		return false, "what it is made from has changed", nil
	}
	s.mu.Lock()
	s.summary.Resumed++
	s.mu.Unlock()
	s.count(old.status, old.tries)
	return true, "", nil
}

// resumed returns the number of attempts found recorded so far.
func (s *session) resumed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.summary.Resumed
}

// tryUntilMeasured makes an attempt, and repeats it up to cfg.Retries times if the
// infrastructure fails. An error ends the run.
func (s *session) tryUntilMeasured(ctx, harness context.Context, t try) error {
	first := s.before[key{t.task.ID(), t.attempt}].tries + 1
	delay := retryDelay
	for t.n = first; ; t.n++ {
		s.emit(Event{Kind: TaskStart, Task: t.task.ID(), Attempt: t.attempt, Resumed: s.resumed()})
		rec, cause := s.perform(s, ctx, harness, t)
		if cause != nil && harness.Err() != nil {
			return s.interrupted(ctx) // not measured, not recorded
		}
		if err := s.write(rec); err != nil {
			return err
		}
		again := cause != nil && t.n-first < s.cfg.Retries
		s.emit(Event{Kind: TaskDone, Task: t.task.ID(), Attempt: t.attempt, Status: rec.VerificationStatus, Reason: rec.FailureReason, Again: again})
		t.asked = time.Now()
		ended := s.breaker.add(cause)
		if ended == nil && again {
			select {
			case <-time.After(delay):
				delay *= 2
				continue
			case <-harness.Done():
				ended = s.interrupted(ctx)
			}
		}
		s.count(rec.VerificationStatus, t.n)
		return ended
	}
}

// interrupted returns nil if the run is only being stopped: an error would also end the
// verifications of other attempts.
func (s *session) interrupted(ctx context.Context) error {
	s.cut.Store(true)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// breaker ends a run whose daemon is gone, instead of recording an error for every
// attempt that is left.
type breaker struct {
	limit int
	mu    sync.Mutex
	count int
}

func (b *breaker) add(cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !errors.Is(cause, runtime.ErrUnavailable) {
		b.count = 0
		return nil
	}
	if b.count++; b.count < b.limit {
		return nil
	}
	return fmt.Errorf("%w: stopped after %d failures of the daemon in a row: %w", ErrInfrastructure, b.count, cause)
}

// A PlannedAttempt is an attempt that a run would make.
type PlannedAttempt struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Why     string `json:"why"` // why it is not taken from the records
}

// Plan returns the attempts that [Run] would make, without making them. The summary
// counts those that are recorded.
func Plan(ctx context.Context, cfg Config) ([]PlannedAttempt, Summary, error) {
	p, err := preflight(ctx, cfg)
	if err != nil {
		return nil, Summary{}, err
	}
	s := &session{cfg: cfg, plan: p, attempts: max(cfg.Attempts, 1), before: map[key]earlier{}, summary: Summary{RunID: cfg.Tester.Run.ID}}
	if s.common, err = cfg.provenance(); err != nil {
		return nil, Summary{}, err
	}
	if cfg.Resume {
		if _, err := record.Read(cfg.Output, cfg.resumeTrust(), s.remember); err != nil {
			return nil, Summary{}, outputProblem(cfg, err)
		}
	}
	var all []PlannedAttempt
	err = s.eachAttempt(func(task *compiler.Task, attempt int, why string) error {
		all = append(all, PlannedAttempt{task.ID(), attempt, why})
		return nil
	})
	return all, s.summary, err
}
