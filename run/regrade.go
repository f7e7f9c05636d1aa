package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

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

// Regrade verifies the candidates that the run in the directory old kept, without running
// a harness, and records the results in cfg.Output as [Run] does. Attempts without a
// candidate keep their record. An attempt whose candidate is not the recorded one gets a
// record of status error. The records of old must meet cfg.Trust.
func Regrade(ctx context.Context, cfg Config, old string) (Summary, []Change, error) {
	g := &regrading{old: old, records: map[key]record.Record{}}
	tasks := map[string]bool{}
	var err error
	cfg.accepted, err = record.Read(old, cfg.Trust, func(r record.Record) error {
		g.records[key{r.TaskID, r.Attempt}] = r // the last try counts
		tasks[r.TaskID] = true
		cfg.Attempts = max(cfg.Attempts, r.Attempt)
		return nil
	})
	if err != nil {
		return Summary{}, nil, compiler.Problems{{File: filepath.Join(old, record.RecordsFile), Message: withHint(err).Error()}}
	}
	also := cfg.Select
	cfg.Select = func(id string) bool { return tasks[id] && (also == nil || also(id)) }
	p, err := preflight(ctx, cfg)
	if err != nil {
		return Summary{}, nil, err
	}
	summary, err := measure(ctx, cfg, p, g.again)
	return summary, g.changes, err
}

// regrading holds the records of the run that is regraded, and the changes.
type regrading struct {
	old     string
	records map[key]record.Record

	mu      sync.Mutex
	changes []Change
}

// again verifies the candidate that was recorded for an attempt. See attemptFunc.
func (g *regrading) again(s *session, ctx, _ context.Context, t try) (record.Record, error) {
	before, ok := g.records[key{t.task.ID(), t.attempt}]
	t.log = s.newTryLog(t)
	if !ok {
		return s.unknown(t)
	}
	rec, err := g.verify(s, ctx, t, before)
	if rec.VerificationStatus != before.VerificationStatus {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.changes = append(g.changes, Change{t.task.ID(), t.attempt, before.VerificationStatus, rec.VerificationStatus})
	}
	return rec, err
}

// unknown returns the record of an attempt that the regraded run did not record.
func (s *session) unknown(t try) (record.Record, error) {
	rec, err := s.newRecord(t, s.plan.images[t.task.Environment().Image])
	rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = record.Pending, "not_recorded", "the run has no record of this attempt"
	rec.EndedAt = time.Now().UTC()
	return rec, err
}

func (g *regrading) verify(s *session, ctx context.Context, t try, before record.Record) (record.Record, error) {
	failedBefore := before.VerificationStatus == record.Failed && before.FailurePhase != "verifier"
	if failedBefore || before.VerificationStatus == record.Error {
		before.Logs, before.EgressDigest, before.CandidateWorkspace = nil, "", nil // of the old directory
		return before, nil                                                         // there is no candidate
	}
	image := s.plan.images[t.task.Environment().Image]
	rec, err := s.newRecord(t, image)
	rec.ProducerStdout, rec.ProducerStderr, rec.ProducerMetadata = before.ProducerStdout, before.ProducerStderr, before.ProducerMetadata
	rec.CandidateText, rec.CandidatePatch = before.CandidateText, before.CandidatePatch
	rec.WorkspaceDigest, rec.WorkspaceAttributes = before.WorkspaceDigest, before.WorkspaceAttributes
	rec.Agent, rec.Times.Producer = before.Agent, before.Times.Producer
	var c candidate.Candidate
	if err == nil {
		c, err = g.stored(ctx, s, &rec, before)
	}
	if err == nil {
		err = s.judge(ctx, t, image, c, &rec)
	}
	return s.complete(rec, t, err)
}

// stored returns a record's candidate, after comparing it with its digest.
func (g *regrading) stored(ctx context.Context, s *session, rec *record.Record, before record.Record) (candidate.Candidate, error) {
	var c candidate.Candidate
	if before.CandidateText != nil {
		c.Text = *before.CandidateText
	}
	if before.CandidatePatch != nil {
		c.Patch = *before.CandidatePatch
	}
	if candidateDigest(before) != before.CandidateDigest {
		return c, errors.New("stored candidate is not what its record says")
	}
	if before.CandidateWorkspace == nil {
		return c, nil
	}
	if err := inFolder(g.old, *before.CandidateWorkspace); err != nil {
		return c, fmt.Errorf("candidate_workspace %q leads out of the run's folder: %w", *before.CandidateWorkspace, err)
	}
	dir := filepath.Join(g.old, *before.CandidateWorkspace)
	c.Workspace, c.Attributes = dir, before.WorkspaceAttributes
	digest, err := digestOf(ctx, c)
	if err != nil {
		return c, fmt.Errorf("stored candidate: %w", err)
	}
	if digest != before.WorkspaceDigest {
		return c, errors.New("stored candidate has changed since it was recorded")
	}
	c.Digest = digest
	if rel, err := filepath.Rel(s.cfg.Output, dir); err == nil {
		rec.CandidateWorkspace = &rel
	}
	return c, nil
}

// inFolder returns an error unless name is a directory in dir and no symbolic link leads
// to it.
func inFolder(dir, name string) error {
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
			return errors.Join(err, fmt.Errorf("%s is no folder", part))
		}
	}
	return nil
}

// digestOf computes the digest of a candidate's workspace.
func digestOf(ctx context.Context, c candidate.Candidate) (string, error) {
	kept, err := c.Kept()
	if err != nil {
		return "", err
	}
	defer func() { _ = kept.Root.Close() }()
	report, err := kept.Digest(ctx)
	return report.Digest, err
}
