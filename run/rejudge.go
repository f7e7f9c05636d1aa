package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness/predictions"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/workspace/foreign"
)

// An Original is a run whose stored candidates are judged again; see [Options.Rejudge].
type Original struct {
	dir      string
	records  map[record.AttemptKey]record.Record // the last record of each attempt
	tasks    map[string]bool
	lacks    map[string]bool // tasks of the pack that are selected and have no record
	attempts int             // of each task, as planned; some may have no record
	harness  record.Harness
	seal     record.Seal
}

// ReadOriginal reads the records of the run in dir, which must meet trust.
func ReadOriginal(dir string, trust record.Trust) (*Original, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	o := &Original{dir: dir, records: map[record.AttemptKey]record.Record{}, tasks: map[string]bool{}, lacks: map[string]bool{}}
	manifest, seal, err := record.Read(dir, trust, func(rec record.Record) error {
		o.records[rec.Key()] = rec
		o.tasks[rec.TaskID], o.harness = true, rec.Provenance.Harness
		o.attempts = max(o.attempts, rec.Attempt)
		return nil
	})
	o.seal, o.attempts = seal, max(o.attempts, manifest.Attempts)
	if err == nil && len(o.records) == 0 {
		err = errors.New("the run has no records")
	}
	if err != nil {
		return nil, compiler.Problems{{File: filepath.Join(dir, record.RecordsFile), Message: withHint(err).Error()}}
	}
	return o, nil
}

// Rejudge makes a run judge the candidates of another run. Only the tasks of that run remain selected. An attempt
// without a candidate gets its old record, and an attempt with a changed candidate the status error.
func (o *Options) Rejudge(of *Original) {
	also := o.Select
	o.original, o.Attempts, o.CandidatesExist = of, of.attempts, true
	o.Select = func(id string) bool {
		selected := also == nil || also(id)
		if selected && !of.tasks[id] {
			of.lacks[id] = true
		}
		return selected && of.tasks[id]
	}
}

// judgeAgain does the work of attempt for a stored candidate.
func (a attempt) judgeAgain(ctx context.Context) (record.Record, error) {
	original := a.cfg.original
	before, ok := original.records[a.key()]
	badEnd := before.ProducerFailure // nil if the harness ended well
	judges := badEnd == nil || a.cfg.policy(a.task).AfterTimeout
	failed := before.VerificationStatus == record.Failed && !before.Judged() // without a verdict
	rec, err := a.newRecord()
	switch {
	case err != nil:
		return a.complete(rec, err)
	case failed && (badEnd == nil || !judges) || ok && before.CandidateDigest == "": // not judged again
		before.RunID, before.Try, before.Provenance = rec.RunID, rec.Try, rec.Provenance
		// What names files of the old directory, and what the old run has cost.
		before.Logs, before.EgressDigest, before.PrivateDigest, before.CandidateWorkspace, before.Egress = nil, "", "", nil, nil
		return a.secrets.Record(before), nil
	case a.task.Stepped():
		rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = record.Pending, "steps_not_judged_again", "only what the last step left was kept"
		return a.complete(rec, nil)
	case !ok:
		rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = record.Pending, "not_recorded", "the run has no record of this attempt"
		return a.complete(rec, nil)
	}
	rec.ProducerStdout, rec.ProducerStderr, rec.ProducerMetadata = before.ProducerStdout, before.ProducerStderr, before.ProducerMetadata
	rec.ProducerFailure = badEnd
	rec.CandidateText, rec.CandidatePatch = before.CandidateText, before.CandidatePatch
	rec.WorkspaceDigest, rec.WorkspaceAttributes, rec.LayerDigest = before.WorkspaceDigest, before.WorkspaceAttributes, before.LayerDigest
	rec.Workdir = before.Workdir
	rec.Agent, rec.Times.Producer, rec.Times.ProviderWait = before.Agent, before.Times.Producer, before.Times.ProviderWait
	c, err := Stored(ctx, original.dir, before)
	if rel, relErr := filepath.Rel(a.cfg.Output, c.Workspace); err == nil && relErr == nil && c.Workspace != "" {
		if filepath.IsLocal(rel) { // it is none of this run's own
			rel = c.Workspace
		}
		rec.CandidateWorkspace = &rel
	}
	switch {
	case err == nil && judges:
		err = a.verify(ctx, c, nil, &rec)
	case err == nil:
		rec.Fail(*badEnd)
	}
	return a.complete(rec, err)
}

// Stored returns the candidate of a record of the run in dir, after checking its digest. Whoever opens
// the candidate's layer checks the layer's digest.
func Stored(ctx context.Context, dir string, rec record.Record) (candidate.Candidate, error) {
	var c candidate.Candidate
	if rec.CandidateText != nil {
		c.Text = *rec.CandidateText
	}
	if rec.CandidatePatch != nil {
		c.Patch, c.Foreign = *rec.CandidatePatch, rec.Provenance.Harness.Type == predictions.Type
	}
	if rec.DigestCandidate() != rec.CandidateDigest {
		return c, errors.New("stored candidate is not what its record says")
	}
	if rec.CandidateWorkspace == nil {
		return c, nil
	}
	if err := inDirectory(dir, *rec.CandidateWorkspace); err != nil {
		return c, fmt.Errorf("candidate_workspace %q leads out of the run's directory: %w", *rec.CandidateWorkspace, err)
	}
	c.Workspace, c.Attributes, c.Layer = filepath.Join(dir, *rec.CandidateWorkspace), rec.WorkspaceAttributes, rec.LayerDigest
	digest, err := c.TreeDigest(ctx, rec.Provenance.Policy.WorkspaceBytes)
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
	found, err := foreign.OpenDir(root, name)
	if err != nil {
		return err
	}
	return found.Close()
}
