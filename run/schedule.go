package run

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
)

const (
	maxLost    = 3           // attempts in a row that find no daemon before the run gives up
	retryDelay = time.Second // before the first retry; doubled for each that follows
)

// all makes every attempt that is not recorded yet, in the pack's order, and waits for
// them.
func (s *session) all(ctx context.Context) error {
	group, work := errgroup.WithContext(ctx)
	producing, stop := context.WithCancelCause(work)
	defer stop(nil)
	go s.watchStop(producing, stop)
	host, err := newAdmission(s.cfg.Output, s.cfg.Jobs)
	if err != nil {
		return err
	}
	for next, nextErr := range s.todo() {
		if err = nextErr; err != nil {
			break
		}
		a := attempt{task: next.task, image: s.plan.images[next.task.Environment().Image], number: next.attempt, asked: time.Now()}
		need := s.cfg.need(a.task)
		if err = host.take(producing, need, func(short string) { s.emit(Event{Kind: Waiting, Task: a.task.ID(), Detail: short}) }); err != nil {
			break
		}
		if err = context.Cause(producing); err != nil || s.failed.Load() { // what happened meanwhile
			break
		}
		group.Go(func() error {
			defer host.give(need)
			return s.untilMeasured(work, producing, a)
		})
	}
	// If an attempt failed, its error is why the loop ended.
	if failed := group.Wait(); failed != nil {
		return failed
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && s.cut.Load():
		return context.Cause(producing)
	}
	return err
}

// watchStop ends the harnesses when the run is asked to stop.
func (s *session) watchStop(ctx context.Context, stop context.CancelCauseFunc) {
	select {
	case <-s.cfg.Stop: // nil: never
		s.emit(Event{Kind: Stopping, Detail: "what is being verified comes to its end"})
		stop(ErrStopped)
	case <-ctx.Done():
	}
}

// planned is an attempt that has to be made.
type planned struct {
	task    *compiler.Task
	attempt int
	why     string
}

// todo yields every attempt that has to be made. It adds those that need not to the summary.
func (s *session) todo() iter.Seq2[planned, error] {
	return func(yield func(planned, error) bool) {
		for task, err := range s.plan.stream(s.cfg) {
			if err != nil { // preflight read the same rows
				yield(planned{}, err)
				return
			}
			for n := 1; n <= s.cfg.Attempts; n++ {
				done, why, err := s.recorded(task, n)
				if !done && !yield(planned{task, n, why}, err) || err != nil {
					return
				}
			}
		}
	}
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
	s.count(old.status, old.tries)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.summary.Resumed++
	return true, "", nil
}

// untilMeasured makes an attempt, and retries it up to cfg.Retries times if the
// infrastructure fails. An error ends the run.
func (s *session) untilMeasured(ctx, producing context.Context, a attempt) error {
	first := s.before[key{a.task.ID(), a.number}].tries + 1
	delay := retryDelay
	for a.try = first; ; a.try++ {
		s.tell(a, Event{Kind: TaskStart, Resumed: s.resumed()})
		rec, cause := s.attempt(ctx, producing, a)
		if cause != nil && producing.Err() != nil {
			return s.interrupted(ctx) // not measured, not recorded
		}
		if err := s.write(rec); err != nil {
			return err
		}
		a.asked = time.Now()
		again := cause != nil && a.try-first < s.cfg.Retries
		s.tell(a, Event{Kind: TaskDone, Status: rec.VerificationStatus, Reason: rec.FailureReason, Again: again})
		ended := s.lostDaemon(cause)
		if ended == nil && again {
			select {
			case <-time.After(delay):
				delay *= 2
				continue
			case <-producing.Done():
				ended = s.interrupted(ctx)
			}
		}
		s.count(rec.VerificationStatus, a.try)
		return ended
	}
}

// interrupted returns nil if the run is only being stopped: an error would also end the
// verifications of other attempts.
func (s *session) interrupted(ctx context.Context) error {
	s.cut.Store(true)
	return context.Cause(ctx)
}

// lostDaemon ends a run whose daemon is gone, instead of recording an error for every
// attempt that is left. The error cause is that of the latest attempt.
func (s *session) lostDaemon(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(cause, runtime.ErrUnavailable) {
		s.lost = 0
		return nil
	}
	if s.lost++; s.lost < maxLost {
		return nil
	}
	return fmt.Errorf("%w: stopped after %d failures of the daemon in a row: %w", ErrInfrastructure, s.lost, cause)
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
	s, err := newSession(ctx, cfg)
	if err != nil {
		return nil, Summary{}, err
	}
	if cfg.Resume {
		if _, err := record.Read(cfg.Output, cfg.resumeTrust(), s.remember); err != nil {
			return nil, Summary{}, outputProblem(cfg, err)
		}
	}
	var all []PlannedAttempt
	for next, err := range s.todo() {
		if err != nil {
			return all, s.summary, err
		}
		all = append(all, PlannedAttempt{next.task.ID(), next.attempt, next.why})
	}
	return all, s.summary, nil
}
