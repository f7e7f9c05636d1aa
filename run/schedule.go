package run

import (
	"context"
	"fmt"
	"iter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/securebench/sbench/run/record"
)

const retryDelay = time.Second // before the first retry; doubled for each that follows

// all makes every attempt that is not recorded yet, in the pack's order, and waits for them.
func (s *session) all(ctx context.Context) error {
	group, work := errgroup.WithContext(ctx)
	producing, stop := context.WithCancelCause(work)
	defer stop(nil)
	go s.watchStop(producing, stop)
	host, err := newAdmission(s.cfg.Output, s.cfg.Jobs)
	if err != nil {
		return err
	}
	for a, todoErr := range s.todo() {
		if err = todoErr; err != nil {
			break
		}
		a.asked = time.Now()
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

// watchStop ends the harnesses when the run is told to stop.
func (s *session) watchStop(ctx context.Context, stop context.CancelCauseFunc) {
	select {
	case <-s.cfg.Stop: // nil: never
		s.emit(Event{Kind: Stopping, Detail: "verifications in progress are completed"})
		stop(ErrStopped)
	case <-ctx.Done():
	}
}

// todo yields every attempt that has to be made, once compareRecorded has returned.
func (s *session) todo() iter.Seq2[attempt, error] {
	return func(yield func(attempt, error) bool) {
		for task, err := range s.cfg.tasks() {
			if err == nil {
				task, err = s.plan.placed(task)
			}
			if err != nil { // preflight read the same rows
				yield(attempt{}, err)
				return
			}
			for _, n := range s.plan.numbers(task.ID(), s.cfg.Attempts) {
				old, known := s.before[key{task.ID(), n}]
				if !known {
					old.why = "not recorded yet"
				}
				if old.why != "" && !yield(attempt{task: task, image: s.plan.image(task), number: n, why: old.why}, nil) {
					return
				}
			}
		}
	}
}

// compareRecorded says why records of earlier sessions do not count, and counts those that do, so
// that the summary is right from the start, even if the run is interrupted.
func (s *session) compareRecorded() error {
	if len(s.before) == 0 {
		return nil
	}
	for task, err := range s.cfg.tasks() {
		if err != nil {
			return err
		}
		for _, n := range s.plan.numbers(task.ID(), s.cfg.Attempts) {
			of := key{task.ID(), n}
			old, known := s.before[of]
			if !known {
				continue
			}
			if now, err := s.provenance(task); err != nil {
				return err
			} else if !old.status.Scored() {
				old.why = "was " + string(old.status)
			} else if now.Inputs != old.inputs {
				old.why = "what it is made from has changed"
			} else {
				s.count(of, old)
				s.summary.Resumed++
			}
			old.checked = true
			s.before[of] = old
		}
	}
	return nil
}

// untilMeasured makes an attempt, and retries it up to cfg.Retries times if the
// infrastructure fails. An error ends the run.
func (s *session) untilMeasured(ctx, producing context.Context, a attempt) error {
	before := s.before[a.key()]
	first, retried := before.tries+1, before.unmeasured()
	delay := retryDelay
	for a.try = first; ; a.try++ {
		s.tell(a, Event{Kind: TaskStart, Try: a.try, Resumed: s.summary.Resumed})
		rec, cause := s.attempt(ctx, producing, a)
		if cause != nil && producing.Err() != nil {
			return s.interrupted(ctx) // not measured, not recorded
		}
		if err := s.write(rec); err != nil {
			return err
		}
		s.spend(rec)
		a.asked = time.Now()
		ended := s.giveUp(cause)
		again := ended == nil && cause != nil && a.try-first < s.cfg.Retries
		last := s.counted(rec)
		last.retried = retried
		retried = retried || cause != nil
		if !again {
			s.count(a.key(), last)
			if s.cfg.FailFast && (last.status == record.Failed || last.status == record.Error) {
				s.failed.Store(true)
			}
		}
		s.tell(a, Event{
			Kind: TaskDone, Try: a.try, Status: rec.VerificationStatus, Reason: rec.FailureReason, FailureMessage: bounded(rec.FailureMessage), Assurance: rec.Sureness(),
			Seconds: rec.EndedAt.Sub(rec.StartedAt).Seconds(), Again: again,
		})
		if !again {
			return ended
		}
		select {
		case <-time.After(delay):
			delay *= 2
		case <-producing.Done():
			s.count(a.key(), last)
			return s.interrupted(ctx)
		}
	}
}

// spend adds what a try has cost, and lets nothing more start once the run has cost what it may.
func (s *session) spend(rec record.Record) {
	if rec.Egress == nil || rec.Egress.Relay == nil {
		return
	}
	s.mu.Lock()
	s.cost += rec.Egress.Relay.CostUSD
	cost := s.cost
	s.mu.Unlock()
	if most := s.cfg.Tester.Run.MaxCostUSD; most > 0 && cost >= most && !s.failed.Swap(true) {
		s.emit(Event{Kind: Notice, Detail: fmt.Sprintf("the run has cost %.2f USD, and run.max_cost_usd is %.2f: no more attempts are started", cost, most)})
	}
}

// interrupted returns nil if the run is only stopping: an error would end other verifications, too.
func (s *session) interrupted(ctx context.Context) error {
	s.cut.Store(true)
	return context.Cause(ctx)
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
	if err := s.compareRecorded(); err != nil {
		return nil, s.summary, err
	}
	var all []PlannedAttempt
	for a, err := range s.todo() {
		if err != nil {
			return all, s.summary, err
		}
		all = append(all, PlannedAttempt{a.task.ID(), a.number, a.why})
	}
	return all, s.summary, nil
}
