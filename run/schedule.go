package run

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/run/admission"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
)

const retryDelay = time.Second // before the first retry; doubled before each further retry

// makeAttempts starts every attempt that is not recorded yet, in the pack's order, and waits for all.
func (s *session) makeAttempts(ctx context.Context) error {
	group, work := errgroup.WithContext(ctx)
	producing, stop := context.WithCancelCause(work)
	defer stop(nil)
	go s.watchStop(producing, stop)
	var err error
	if s.host, err = admission.New(s.cfg.Output, s.cfg.Jobs); err != nil {
		return fmt.Errorf("%w: %w", ErrInfrastructure, err)
	}
	for a, todoErr := range s.todo() {
		if err = todoErr; err != nil {
			break
		}
		a.asked = time.Now()
		need := s.cfg.need(a.task)
		if err = s.host.Take(producing, need, func(short string) { s.emit(Event{Kind: Waiting, Task: a.task.ID(), Detail: short}) }); err != nil {
			break
		}
		if err = context.Cause(producing); err != nil || s.startNoMore.Load() { // what happened meanwhile
			break
		}
		a.began = time.Now()
		group.Go(func() error {
			defer s.host.Give(need)
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
	case err == nil && s.cutShort.Load():
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
		for task, err := range s.cfg.rows() {
			if err == nil {
				task, err = s.images.inImage(task)
			}
			if err != nil { // NewPlan read the same rows, and resolve found the same images
				yield(attempt{}, err)
				return
			}
			for _, n := range s.cfg.attemptNumbers(task.ID()) {
				old, known := s.before[record.AttemptKey{Task: task.ID(), Number: n}]
				if !known {
					old.why = "not recorded yet"
				}
				if old.why != "" && !yield(attempt{shared: &s.shared, task: task, part: task, image: s.images.image(task), number: n, why: old.why}, nil) {
					return
				}
			}
		}
	}
}

// compareRecorded counts the records of earlier sessions that are still valid, so that the summary is
// right even if the run is interrupted, and notes why the others are not.
func (s *session) compareRecorded() error {
	if len(s.before) == 0 {
		return nil
	}
	for task, err := range s.cfg.rows() {
		if err != nil {
			return err
		}
		for _, n := range s.cfg.attemptNumbers(task.ID()) {
			of := record.AttemptKey{Task: task.ID(), Number: n}
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
				s.count(old)
				s.summary.Resumed++
			}
			old.checked = true
			s.before[of] = old
		}
	}
	return nil
}

// untilMeasured makes an attempt and, if the infrastructure fails, its retries. An error ends the run.
func (s *session) untilMeasured(ctx, producing context.Context, a attempt) error {
	before := s.before[a.key()]
	first, retried := max(before.tries, s.logs.Before.Tries[a.key()])+1, before.hadError()
	delay := retryDelay
	for a.try = first; ; a.try++ {
		a.log = s.logs.Attempt(a.task.ID(), a.number, a.try)
		a.emit(Event{Kind: TaskStart, Try: a.try, Resumed: s.summary.Resumed})
		rec, cause := a.run(ctx, producing)
		if cause != nil && producing.Err() != nil {
			return s.interrupted(ctx) // not measured, not recorded
		}
		ended, err := s.write(rec, cause)
		if err != nil {
			return err
		}
		if e := rec.Egress; e != nil && e.Relay != nil {
			s.spend(e.Relay.CostUSD)
		}
		a.asked = time.Now()
		again := ended == nil && cause != nil && a.try-first < s.cfg.Retries
		last := s.counted(rec)
		last.retried = retried
		retried = retried || cause != nil
		if !again {
			s.count(last)
			if s.cfg.FailFast && (last.status == record.Failed || last.status == record.Error) {
				s.startNoMore.Store(true)
			}
		}
		a.emit(Event{
			Kind: TaskDone, Try: a.try, Status: rec.VerificationStatus, Reason: rec.FailureReason, FailureMessage: bounded(rec.FailureMessage), Assurance: rec.PassAssurance(),
			Seconds: time.Since(a.began).Seconds(), Again: again, // by the clock that never jumps
		})
		if !again {
			return ended
		}
		select {
		case <-time.After(delay):
			delay *= 2
			a.began = time.Now()
		case <-producing.Done():
			s.count(last)
			return s.interrupted(ctx)
		}
	}
}

// spend adds a cost in US dollars. Once the run has cost run.max_cost_usd, no attempt starts.
func (s *session) spend(usd float64) {
	s.mu.Lock()
	s.cost += usd
	cost := s.cost
	s.mu.Unlock()
	if most := s.cfg.Tester.Run.MaxCostUSD; most > 0 && cost >= most && !s.startNoMore.Swap(true) {
		s.emit(Event{Kind: Notice, Detail: fmt.Sprintf("the run has cost %.4f USD, and run.max_cost_usd is %g: no more attempts are started", cost, most)})
	}
}

// interrupted returns nil if the run is stopping but ctx goes on: an error would end the other
// verifications, too.
func (s *session) interrupted(ctx context.Context) error {
	s.cutShort.Store(true)
	return context.Cause(ctx)
}

// A PlannedAttempt is an attempt that a run would make.
type PlannedAttempt struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Why     string `json:"why"` // why no record makes it superfluous
}

// Todo returns the attempts that [Run] would make, without making them. The summary
// counts those that are recorded.
func Todo(ctx context.Context, plan Plan, site Site) ([]PlannedAttempt, Summary, error) {
	s, err := newSession(ctx, plan, site)
	if err != nil {
		return nil, Summary{}, err
	}
	if plan.Resume {
		if err := s.readBefore(); err != nil {
			return nil, Summary{}, outputProblem(plan, err)
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

// readBefore reads what earlier sessions have left, and changes nothing.
func (s *session) readBefore() error {
	if _, _, err := record.Read(s.cfg.Output, s.cfg.resumeTrust(), s.remember); err != nil {
		return err
	}
	root, err := os.OpenRoot(s.cfg.Output)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	logged, err := record.ReadLogged(root)
	s.spend(logged.CostUSD)
	return err
}

// maxMessage bounds a failure message in progress, in bytes; the record has it in full.
const maxMessage = 2000

// bounded returns at most maxMessage bytes of a message.
func bounded(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "")
}

// How many tries in a row may fail for the same shared cause.
const (
	maxAlike      = 3  // before anything has been measured, and at any time for lack of a daemon
	maxAlikeLater = 10 // afterwards, for each concurrent attempt: a short outage of a provider fails them all
)

// A streak is a row of tries that could not be measured for the same shared cause. A try that fails
// for a cause of its own task, such as the image, does not end the streak.
type streak struct {
	measured bool // this session has measured at least one try
	kind     string
	n        int
}

// add counts a try; cause is why it was not measured, nil if it was. The error, which ends the run, says that too many
// tries in a row failed for a cause that all tasks share, such as a wrong key.
func (k *streak) add(cause error, jobs int) error {
	if cause == nil {
		*k = streak{measured: true}
		return nil
	}
	kind, what, most := record.CauseOf(cause.Error()), "tries failed in a row for the same cause", maxAlike
	switch {
	case errors.Is(cause, runtime.ErrUnavailable):
		kind, what = "daemon", "failures of the daemon in a row"
	case !errors.Is(cause, harness.ErrProvider) && !errors.Is(cause, harness.ErrNotInstalled):
		return nil
	case k.measured:
		most = maxAlikeLater * jobs
	}
	if kind != k.kind {
		k.kind, k.n = kind, 0
	}
	if k.n++; k.n < most {
		return nil
	}
	return fmt.Errorf("%w: stopped after %d %s: %w", ErrInfrastructure, k.n, what, cause)
}
