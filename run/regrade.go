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

// A Change is a verdict that a regrading reached and the run had not.
type Change struct {
	Task    string        `json:"task"`
	Attempt int           `json:"attempt"`
	Old     record.Status `json:"old"`
	New     record.Status `json:"new"`
}

// Regrade verifies the candidates that the run in the folder old kept, again,
// without running a harness, and records it in cfg.Output as Run does. Attempts
// without a candidate keep their record. A candidate that is not what the record
// says is an error. The records of old must show what cfg.Trust asks for.
func Regrade(ctx context.Context, cfg Config, old string) (Summary, []Change, error) {
	g := &regrading{old: old, records: map[key]record.Record{}}
	tasks := map[string]bool{}
	var err error
	cfg.accepted, err = record.Read(old, cfg.Trust, func(r record.Record) error {
		g.records[key{r.TaskID, r.Attempt}] = r // the last try
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

// regrading knows the records of a run.
type regrading struct {
	old     string
	records map[key]record.Record

	mu      sync.Mutex
	changes []Change
}

// again verifies what a record says was produced. See attemptFunc.
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

// unknown is the record of an attempt that the run does not have.
func (s *session) unknown(t try) (record.Record, error) {
	rec, err := s.newRecord(t, s.plan.images[t.task.Environment().Image])
	rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = record.Pending, "not_recorded", "the run has no record of this attempt"
	rec.EndedAt = time.Now().UTC()
	return rec, err
}

func (g *regrading) verify(s *session, ctx context.Context, t try, before record.Record) (record.Record, error) {
	failedBefore := before.VerificationStatus == record.Failed && before.FailurePhase != "verifier"
	if failedBefore || before.VerificationStatus == record.Error {
		return before, nil // there is no candidate
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

// stored finds a record's candidate and makes sure that it is the one.
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

// inFolder says why a name is not that of a folder in dir, without a link on the way.
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
