package run

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/workspace"
)

const maxRecord = 256 << 20 // bytes of one line

// A Change is a verdict that a regrading reached and the run had not.
type Change struct {
	Task string `json:"task"`
	Old  Status `json:"old"`
	New  Status `json:"new"`
}

// Regrade verifies the candidates that the run in the folder old kept, again,
// without running a harness, and records it in cfg.Output as Run does. Attempts
// without a candidate keep their record. A candidate that is not what the record
// says is an error, and so is a task that the records lack.
func Regrade(ctx context.Context, cfg Config, old string) (Summary, []Change, error) {
	records, err := readRecords(filepath.Join(old, recordsFile))
	if err != nil {
		return Summary{}, nil, compiler.Problems{{File: filepath.Join(old, recordsFile), Message: err.Error()}}
	}
	cfg.Select = only(records, cfg.Select)
	p, err := preflight(ctx, cfg)
	if err != nil {
		return Summary{}, nil, err
	}
	var changes []Change
	summary, err := measure(ctx, cfg, p, func(r *attemptRun, ctx context.Context, task *compiler.Task) (Record, error) {
		before := records[task.ID()]
		rec, err := r.again(ctx, task, before, old)
		if rec.VerificationStatus != before.VerificationStatus {
			changes = append(changes, Change{task.ID(), before.VerificationStatus, rec.VerificationStatus})
		}
		return rec, err
	})
	return summary, changes, err
}

func only(records map[string]Record, also func(string) bool) func(string) bool {
	return func(id string) bool {
		_, known := records[id]
		return known && (also == nil || also(id))
	}
}

// readRecords reads the last record of every task.
func readRecords(name string) (map[string]Record, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	records := map[string]Record{}
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, maxRecord)
	for n := 1; sc.Scan(); n++ {
		var rec Record
		if err := json.Unmarshal(sc.Bytes(), &rec); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		records[rec.TaskID] = rec
	}
	return records, sc.Err()
}

// again verifies what a record says was produced.
func (r *attemptRun) again(ctx context.Context, task *compiler.Task, before Record, old string) (Record, error) {
	failedBefore := before.VerificationStatus == Failed && before.FailurePhase != "verifier"
	if failedBefore || before.VerificationStatus == Error {
		return before, nil // there is no candidate
	}
	image := r.plan.images[task.Environment().Image]
	rec := r.newRecord(task, image)
	rec.ProducerStdout, rec.ProducerStderr, rec.ProducerMetadata = before.ProducerStdout, before.ProducerStderr, before.ProducerMetadata
	rec.CandidateText, rec.CandidatePatch, rec.CandidateDigest = before.CandidateText, before.CandidatePatch, before.CandidateDigest
	c, err := r.stored(ctx, &rec, before, old)
	if err == nil {
		err = r.judge(ctx, task, image, c, &rec)
	}
	return r.finish(rec, task, err), err
}

// stored finds a record's candidate and makes sure that it is the one.
func (r *attemptRun) stored(ctx context.Context, rec *Record, before Record, old string) (candidate.Candidate, error) {
	var c candidate.Candidate
	if before.CandidateText != nil {
		c.Text = *before.CandidateText
	}
	if before.CandidatePatch != nil {
		c.Patch = *before.CandidatePatch
	}
	if before.CandidateWorkspace == nil {
		return c, nil
	}
	if !filepath.IsLocal(*before.CandidateWorkspace) {
		return c, fmt.Errorf("candidate_workspace %q leads out of the run's folder", *before.CandidateWorkspace)
	}
	dir := filepath.Join(old, *before.CandidateWorkspace)
	digest, err := digestOf(ctx, dir)
	if err != nil {
		return c, fmt.Errorf("stored candidate: %w", err)
	}
	if digest != before.CandidateDigest {
		return c, errors.New("stored candidate has changed since it was recorded")
	}
	c.Workspace, c.Digest = dir, digest
	if rel, err := filepath.Rel(r.cfg.Output, dir); err == nil {
		rec.CandidateWorkspace = &rel
	}
	return c, nil
}

func digestOf(ctx context.Context, dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	report, err := workspace.DigestTree(ctx, root, workspace.TreeOptions{})
	return report.Digest, err
}
