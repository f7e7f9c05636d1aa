package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime/remove"
	"github.com/securebench/sbench/runtime/userns"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
)

// attemptFunc makes one try of an attempt, with a context for its harness that may end
// before ctx does. The record is complete in any case; cause is the infrastructure error
// behind a record of status error.
type attemptFunc func(s *session, ctx, harness context.Context, t try) (rec record.Record, cause error)

// try identifies the n-th try of an attempt of a task.
type try struct {
	task    *compiler.Task
	attempt int // from 1
	n       int // from 1
	// asked is when the attempt's turn came, before it waited for room.
	asked time.Time
	log   *tryLog
}

// key names an attempt.
type key struct {
	task    string
	attempt int
}

// earlier is the last record that earlier sessions made of an attempt.
type earlier struct {
	status record.Status
	tries  int
	inputs string // Provenance.Inputs
}

// session is a run in progress.
type session struct {
	cfg      Config
	plan     plan
	perform  attemptFunc
	jobs     int
	attempts int
	secrets  redactor // values of harness.env
	code     *verifiers.CodePool
	// calibrations of changed tests
	calibrations *contrast.Store
	out          *os.Root    // cfg.Output; the ledger closes it
	egress       *egressFile // nil if nothing may leave the sandboxes
	common       record.Provenance
	before       map[key]earlier
	breaker      breaker

	progress sync.Mutex // held while cfg.Progress is called

	failed atomic.Bool // an attempt did not pass, under FailFast
	cut    atomic.Bool // an attempt was ended by a stop

	mu      sync.Mutex // guards what follows
	ledger  *record.Ledger
	summary Summary
}

func newSession(ctx context.Context, cfg Config, p plan, attempt attemptFunc) (*session, error) {
	s := &session{
		cfg: cfg, plan: p, perform: attempt, attempts: max(cfg.Attempts, 1), before: map[key]earlier{},
		secrets: redactor{}.with(slices.Collect(maps.Values(cfg.Env))...), breaker: breaker{limit: breakerLimit},
		summary: Summary{RunID: cfg.Tester.Run.ID, Output: filepath.Join(cfg.Output, record.RecordsFile)},
	}
	s.cfg.OwnFiles = cfg.OwnFiles || userns.Inside()
	s.jobs = cfg.Jobs
	if s.jobs <= 0 {
		s.jobs = p.defaultJobs()
	}
	var err error
	if s.common, err = cfg.provenance(); err != nil {
		return nil, err
	}
	s.cfg.Egress.Limits = descriptors(s.jobs)
	if err := s.openLedger(ctx); err != nil {
		return nil, err
	}
	if err := s.openFiles(); err != nil {
		return nil, errors.Join(err, s.ledger.Close())
	}
	s.calibrations = contrast.NewStore(cfg.Calibrations)
	s.code = verifiers.NewCodePool(s.audited(try{}, cfg.Tester.Verification.DenyCommands))
	return s, nil
}

// openLedger begins the chain of records, or resumes it.
func (s *session) openLedger(ctx context.Context) error {
	if !s.cfg.Resume {
		return s.createLedger(ctx)
	}
	ledger, old, torn, err := record.Resume(s.cfg.Output, s.cfg.resumeTrust(), s.remember)
	if errors.Is(err, os.ErrNotExist) { // a script may pass --resume the first time, too
		return s.createLedger(ctx)
	}
	if err != nil {
		return err
	}
	s.ledger = ledger
	if old.RunID != s.cfg.Tester.Run.ID {
		return errors.Join(fmt.Errorf("the folder belongs to the run %q, not to %q", old.RunID, s.cfg.Tester.Run.ID), ledger.Close())
	}
	s.emit(Event{Kind: Resume, Detail: fmt.Sprintf("%d attempts were recorded before", len(s.before))})
	if torn > 0 {
		s.emit(Event{Kind: Resume, Detail: fmt.Sprintf("cut off %d bytes of a record that a crash left unfinished", torn)})
	}
	return nil
}

func (s *session) createLedger(ctx context.Context) error {
	m, err := s.cfg.manifest(ctx, s.common, s.jobs, s.attempts)
	if err == nil {
		s.ledger, err = record.Create(s.cfg.Output, m)
	}
	return err
}

// remember notes a record of an earlier session.
func (s *session) remember(r record.Record) error {
	s.before[key{r.TaskID, r.Attempt}] = earlier{r.VerificationStatus, r.Try, r.Provenance.Inputs}
	return nil
}

// resumeTrust returns what resumed records must prove. Whoever signs must have signed
// them already: the new signature covers them, too.
func (c Config) resumeTrust() record.Trust {
	t := c.Trust
	t.Resume = true
	if c.Sign != nil {
		t.Key = c.Sign.Public()
	}
	return t
}

// openFiles makes the directories and files that attempts write to, and removes what a
// killed session left unjudged.
func (s *session) openFiles() error {
	s.out = s.ledger.Root()
	err := remove.All(s.out, unjudgedDir)
	for _, dir := range []string{record.WorkspacesDir, record.LogsDir, unjudgedDir} {
		err = errors.Join(err, s.out.MkdirAll(dir, 0o755))
	}
	if err == nil {
		s.egress, err = s.openEgress()
	}
	return err
}

// close seals the chain and releases everything.
func (s *session) close(ctx context.Context) error {
	return errors.Join(
		s.code.Close(ctx), s.egress.close(), remove.All(s.out, unjudgedDir),
		s.ledger.Seal(record.Seal{At: time.Now().UTC(), AcceptedUnsigned: s.cfg.accepted}, s.cfg.Sign), s.ledger.Close(),
	)
}

func (s *session) emit(e Event) {
	if s.cfg.Progress == nil {
		return
	}
	e.Time, e.RunID = time.Now(), s.cfg.Tester.Run.ID
	s.progress.Lock()
	defer s.progress.Unlock()
	s.cfg.Progress(e)
}

// write appends a record.
func (s *session) write(rec record.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.ledger.Append(s.secrets.everything(rec)); err != nil {
		return fmt.Errorf("%w: %w", ErrInfrastructure, err)
	}
	return nil
}

// count adds the last record of an attempt to the summary.
func (s *session) count(status record.Status, try int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.summary.count(status, try)
	if s.cfg.FailFast && (status == record.Failed || status == record.Error) {
		s.failed.Store(true)
	}
}
