package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/run/record"
)

// A Change is an attempt whose verdict a regrading changed.
type Change struct {
	Task    string        `json:"task"`
	Attempt int           `json:"attempt"`
	Old     record.Status `json:"old"`
	New     record.Status `json:"new"`
}

// Regrade verifies again the candidates kept by the run in the directory old, without
// running a harness, and records the results in cfg.Output as [Run] does. Attempts of status
// error, and those that failed before verification, keep their record. Only if the harness ended
// badly, the policy of cfg decides anew whether its candidate is judged. If a kept candidate is not
// the one that was recorded, its new record has status error. The records of old must meet cfg.Trust.
func Regrade(ctx context.Context, cfg Config, old string) (Summary, []Change, error) {
	r := &regraded{dir: old, records: map[key]record.Record{}}
	tasks := map[string]bool{}
	var err error
	r.seal, err = record.Read(old, cfg.Trust, func(rec record.Record) error {
		r.records[key{rec.TaskID, rec.Attempt}] = rec // the last one counts
		tasks[rec.TaskID] = true
		cfg.Attempts = max(cfg.Attempts, rec.Attempt)
		return nil
	})
	if err != nil {
		return Summary{}, nil, compiler.Problems{{File: filepath.Join(old, record.RecordsFile), Message: withHint(err).Error()}}
	}
	also := cfg.Select
	cfg.Select = func(id string) bool { return tasks[id] && (also == nil || also(id)) }
	s, err := begin(ctx, cfg, r)
	if err != nil {
		return Summary{}, nil, err
	}
	summary, err := s.end(ctx, s.all(ctx))
	return summary, r.changes, err
}

// regraded is a run whose candidates are verified again.
type regraded struct {
	dir     string
	records map[key]record.Record
	seal    record.Seal

	mu      sync.Mutex
	changes []Change
}

// regrade does the work of attempt for a recorded candidate.
func (s *session) regrade(ctx context.Context, a attempt) (record.Record, error) {
	before, ok := s.old.records[key{a.task.ID(), a.number}]
	left := before.ProducerFailure // by a harness that ended badly
	judges := left == nil || s.cfg.policy(a.task).AfterTimeout
	failed := before.VerificationStatus == record.Failed && before.FailurePhase != "verifier" // without a verdict
	if failed && (left == nil || !judges || !before.HasCandidate(a.task.CandidateKind())) || before.VerificationStatus == record.Error {
		before.Logs, before.EgressDigest, before.CandidateWorkspace = nil, "", nil // of the old directory
		return s.secrets.everything(before), nil                                   // not judged again
	}
	rec, err := s.newRecord(a)
	if !ok {
		rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = record.Pending, "not_recorded", "the run has no record of this attempt"
		return s.complete(rec, a, err)
	}
	rec.ProducerStdout, rec.ProducerStderr, rec.ProducerMetadata = before.ProducerStdout, before.ProducerStderr, before.ProducerMetadata
	rec.ProducerFailure = left
	rec.CandidateText, rec.CandidatePatch = before.CandidateText, before.CandidatePatch
	rec.WorkspaceDigest, rec.WorkspaceAttributes, rec.LayerDigest = before.WorkspaceDigest, before.WorkspaceAttributes, before.LayerDigest
	rec.Workdir = before.Workdir
	rec.Agent, rec.Times.Producer = before.Agent, before.Times.Producer
	var c candidate.Candidate
	if err == nil {
		c, err = Stored(ctx, s.old.dir, before)
	}
	if rel, relErr := filepath.Rel(s.cfg.Output, c.Workspace); err == nil && relErr == nil && c.Workspace != "" {
		rec.CandidateWorkspace = &rel
	}
	switch {
	case err == nil && judges:
		err = s.verify(ctx, a, c, &rec)
	case err == nil:
		rec.Fail(*left)
	}
	rec, err = s.complete(rec, a, err)
	if rec.VerificationStatus != before.VerificationStatus {
		s.old.mu.Lock()
		defer s.old.mu.Unlock()
		s.old.changes = append(s.old.changes, Change{a.task.ID(), a.number, before.VerificationStatus, rec.VerificationStatus})
	}
	return rec, err
}

// Stored returns the candidate of a record of the run in dir after checking its digest; that of
// a layer is checked where it is opened.
func Stored(ctx context.Context, dir string, rec record.Record) (candidate.Candidate, error) {
	var c candidate.Candidate
	if rec.CandidateText != nil {
		c.Text = *rec.CandidateText
	}
	if rec.CandidatePatch != nil {
		c.Patch = *rec.CandidatePatch
	}
	if candidateDigest(rec) != rec.CandidateDigest {
		return c, errors.New("stored candidate is not what its record says")
	}
	if rec.CandidateWorkspace == nil {
		return c, nil
	}
	if err := inDirectory(dir, *rec.CandidateWorkspace); err != nil {
		return c, fmt.Errorf("candidate_workspace %q leads out of the run's directory: %w", *rec.CandidateWorkspace, err)
	}
	c.Workspace, c.Attributes, c.Layer = filepath.Join(dir, *rec.CandidateWorkspace), rec.WorkspaceAttributes, rec.LayerDigest
	digest, err := c.TreeDigest(ctx)
	if err != nil {
		return c, fmt.Errorf("stored candidate: %w", err)
	}
	if digest != rec.WorkspaceDigest {
		return c, errors.New("stored candidate has changed since it was recorded")
	}
	c.Digest = digest
	return c, nil
}

// inDirectory returns an error unless name is a directory in dir, reached without symbolic
// links.
func inDirectory(dir, name string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if !filepath.IsLocal(name) {
		return fs.ErrInvalid
	}
	for part := filepath.Clean(name); part != "."; part = filepath.Dir(part) {
		if info, err := root.Lstat(part); err != nil || !info.IsDir() {
			return errors.Join(err, fmt.Errorf("%s is no directory", part))
		}
	}
	return nil
}
