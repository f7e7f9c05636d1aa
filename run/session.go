package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/securebench/sbench/run/admission"
	"github.com/securebench/sbench/run/logs"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/secrets"
	"github.com/securebench/sbench/runtime/remove"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/verifiers/judge"
	"github.com/securebench/sbench/verifiers/pool"
)

// lastRecord is what a session needs of the last record of an attempt.
type lastRecord struct {
	status  record.Status
	reason  string
	tries   int
	retried bool   // a try before this one could not be measured
	inputs  string // Provenance.Inputs
	checked bool   // compareRecorded has seen it: this session plans the attempt
	why     string // why it does not count; "" if it does
}

// hadError reports whether this try or one before it could not be measured.
func (e lastRecord) hadError() bool { return e.retried || e.status == record.Error }

// shared is what all attempts of a run use. Nothing in it changes once attempts are made.
type shared struct {
	cfg          config // Jobs has its effective value
	images       images
	secrets      secrets.Redactor // values of harness.env
	host         *admission.Host  // set once attempts are made
	code         *pool.Pool
	calibrations *contrast.Store // of blind tests
	judge        *judge.Judge    // nil for none
	out          *os.Root        // cfg.Output; closed by the ledger
	common       record.Provenance
	progress     sync.Mutex // locked while cfg.Progress runs
}

// session is a run in progress: what was recorded before, which attempts are made, and what they add up to.
type session struct {
	shared
	logs   *logs.Run
	ledger *record.Ledger
	before map[record.AttemptKey]lastRecord

	startNoMore atomic.Bool // under FailFast an attempt did not pass, or the run has reached its cost limit
	cutShort    atomic.Bool // the end of the run interrupted an attempt

	mu      sync.Mutex // guards what follows
	summary Summary
	cost    float64 // of all tries, in US dollars
	streak  streak
}

// config is a plan at a site.
type config struct {
	Plan
	Site
}

// newSession finds every image, and writes nothing.
func newSession(ctx context.Context, plan Plan, site Site) (*session, error) {
	cfg := config{plan, site}
	found, err := cfg.resolve(ctx)
	if err != nil {
		return nil, err
	}
	if cfg.Jobs <= 0 {
		cfg.Jobs = cfg.defaultJobs()
	}
	cfg.Egress.Limits = descriptors(cfg.Jobs)
	common, err := cfg.provenance()
	redactor := secrets.New(slices.Collect(maps.Values(cfg.Env))...)
	common.Settings = cfg.settings(redactor)
	var grader *judge.Judge
	if cfg.Judge != nil {
		grader = &judge.Judge{Votes: cfg.Judge.Votes}
	}
	return &session{
		shared:  shared{cfg: cfg, judge: grader, images: found, common: common, calibrations: contrast.NewStore(cfg.Calibrations), secrets: redactor},
		before:  map[record.AttemptKey]lastRecord{},
		summary: Summary{RunID: cfg.Tester.Run.ID, LeftOut: cfg.LeftOut, Planned: cfg.attempts(), Output: filepath.Join(cfg.Output, record.RecordsFile)},
	}, err
}

// begin finds every image and opens the output directory. The caller calls end.
func begin(ctx context.Context, plan Plan, site Site) (*session, error) {
	s, err := newSession(ctx, plan, site)
	if err != nil {
		return nil, err
	}
	if err := s.openLedger(ctx); err != nil {
		return nil, outputProblem(plan, err)
	}
	if err := s.openFiles(); err != nil {
		return nil, outputProblem(plan, errors.Join(err, s.ledger.Close()))
	}
	s.spend(s.logs.Before.CostUSD)
	err = s.compareRecorded()
	if err == nil { // the manifest of a resumed run may have planned less, and no manifest is signed
		if err = s.seal(true); err != nil {
			err = outputProblem(plan, err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.logs.Close(), s.ledger.Close())
	}
	s.code = pool.New(observed{s.cfg.Engine, &s.shared, nil, plan.Tester.Verification.DenyCommands})
	tasks, attempts, jobs := len(s.cfg.tasks), s.cfg.Attempts, s.cfg.Jobs
	detail := fmt.Sprintf("tasks: %d, attempts of each: %d, at a time: %d", tasks, attempts, jobs)
	if s.cfg.StandIn != "" {
		detail += ", candidates: " + string(s.cfg.StandIn)
	}
	s.emit(Event{Kind: RunStart, Tasks: tasks, Attempts: s.summary.Planned, Resumed: s.summary.Resumed, Detail: detail})
	if cores, used := float64(goruntime.NumCPU()), float64(jobs)*s.cfg.cpus(); used > cores && jobs > 1 {
		s.emit(Event{Kind: Notice, Detail: fmt.Sprintf("%d attempts at a time may use %g cores, and there are %g: they will be slower, and their time limits stay the same", jobs, used, cores)})
	}
	return s, nil
}

// end seals the records and releases everything that begin opened. err is the error of the attempts.
func (s *session) end(ctx context.Context, err error) (Summary, error) {
	if failed := errors.Join(s.code.Close(ctx), s.logs.Close(), remove.All(s.out, unjudgedDir), s.seal(false), s.ledger.Close()); failed != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", ErrInfrastructure, failed))
	}
	summary := s.summary
	s.emit(Event{Kind: RunDone, Resumed: summary.Resumed, Detail: summary.Verification(), Summary: &summary})
	switch n := summary.Infrastructure; {
	case err == nil && n > 0:
		err = fmt.Errorf("%w in %d of %d attempts", ErrInfrastructure, n, summary.Total)
	case err == nil && summary.Errors > 0:
		err = PackFault{fmt.Errorf("the pack or its image is at fault in %d of %d attempts, which were not measured", summary.Errors, summary.Total)}
	}
	if left := s.summary.LeftOut; err == nil && len(left) > 0 {
		var names []string
		for _, l := range left[:min(len(left), 10)] {
			names = append(names, l.Task)
		}
		if len(left) > len(names) {
			names = append(names, "…")
		}
		err = fmt.Errorf("%d %w: %s", len(left), ErrLeftOut, strings.Join(names, ", "))
	}
	return s.summary, err
}

// A PackFault is an ErrInfrastructure for which only the pack or its images are at fault.
type PackFault struct{ Err error }

// Error implements error.
func (f PackFault) Error() string { return f.Err.Error() }

// Is makes the error an ErrInfrastructure.
func (PackFault) Is(target error) bool { return target == ErrInfrastructure }

// seal seals the recorded chain, states how many attempts are planned, and whether the session goes on.
func (s *session) seal(open bool) error {
	seal := record.Seal{At: time.Now().UTC(), Planned: s.totalPlanned(), Open: open}
	if s.cfg.original != nil {
		seal.AcceptedUnsigned = s.cfg.original.seal.AcceptedUnsigned
	}
	return s.ledger.Seal(seal, s.cfg.Sign)
}

// totalPlanned returns how many attempts the run is to have in total; see record.Seal.
func (s *session) totalPlanned() int {
	n := s.summary.Planned
	for _, old := range s.before {
		if !old.checked { // an attempt that this session does not plan
			n++
		}
	}
	if o := s.cfg.original; o != nil && s.cfg.shard == nil { // what the original lacks is missing here, too
		n += min(max(o.seal.Planned-len(o.tasks)*o.attempts, 0), len(o.lacks)*o.attempts)
	}
	return n
}

// openLedger begins the chain of records, or resumes it.
func (s *session) openLedger(ctx context.Context) error {
	var old record.Manifest
	var torn int64
	err := fs.ErrNotExist
	if s.cfg.Resume {
		s.ledger, old, torn, err = record.Resume(s.cfg.Output, s.cfg.resumeTrust(), s.remember)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // lets a script always pass --resume
		m, err := s.manifest(ctx)
		if err == nil {
			s.ledger, err = record.Create(s.cfg.Output, m)
		}
		return err
	case err != nil:
		return err
	case old.RunID != s.cfg.Tester.Run.ID:
		return errors.Join(fmt.Errorf("the directory belongs to the run %q, not to %q", old.RunID, s.cfg.Tester.Run.ID), s.ledger.Close())
	}
	if before, now := shardName(old.Shard), shardName(s.cfg.shard); before != now {
		return errors.Join(fmt.Errorf("the directory belongs to %s, not to %s", before, now), s.ledger.Close())
	}
	s.emit(Event{Kind: Resume, Detail: fmt.Sprintf("%d attempts were recorded before", len(s.before))})
	if torn > 0 {
		s.emit(Event{Kind: Resume, Detail: fmt.Sprintf("cut off %d bytes of a record that a crash left unfinished", torn)})
	}
	return nil
}

// counted returns how a record counts. A pass with too weak an assurance counts as failed.
func (s *session) counted(r record.Record) lastRecord {
	e := lastRecord{status: r.VerificationStatus, reason: r.FailureReason, tries: r.Try}
	if assurance := r.PassAssurance(); e.status == record.Passed && !record.Suffices(assurance, s.cfg.Require) {
		e.status, e.reason = record.Failed, record.TooWeak
	}
	return e
}

func (s *session) remember(r record.Record) error {
	of := r.Key()
	last := s.counted(r)
	last.retried, last.inputs = s.before[of].hadError(), r.Provenance.Inputs
	s.before[of] = last
	return nil
}

// resumeTrust returns what resumed records must prove: the signing key's signature, since it signs them again.
func (p Plan) resumeTrust() record.Trust {
	t := p.Trust
	t.Resume = true
	if p.Sign != nil {
		t.Key = p.Sign.Public()
	}
	return t
}

// openFiles makes the directories and the log that attempts write to, and removes workspaces that a
// killed session had not judged.
func (s *session) openFiles() error {
	s.out = s.ledger.Root()
	err := remove.All(s.out, unjudgedDir)
	for _, dir := range []string{record.WorkspacesDir, record.LogsDir, unjudgedDir} {
		err = errors.Join(err, s.out.MkdirAll(dir, 0o755))
	}
	err = errors.Join(err, s.out.MkdirAll(record.PrivateDir, 0o700))
	if err == nil {
		s.logs, err = logs.Open(s.out, s.secrets, s.cfg.networked())
	}
	return err
}

// write records a try. cause is why it was not measured, nil if it was; ended is an error if the run ends with this try.
func (s *session) write(rec record.Record, cause error) (ended, err error) {
	if _, err := s.ledger.Append(rec); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInfrastructure, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streak.add(cause, s.cfg.Jobs), nil
}

// count adds the last record of an attempt to the summary.
func (s *session) count(last lastRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.summary.Total++
	switch last.status {
	case record.Passed:
		s.summary.Passed++
		if last.retried {
			s.summary.Retried++
		}
	case record.Failed:
		s.summary.Failed++
	case record.Pending:
		s.summary.Pending++
	case record.Error:
		s.summary.Errors++
		if last.reason == Infrastructure {
			s.summary.Infrastructure++
		}
	}
}
