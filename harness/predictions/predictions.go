// Package predictions is a producer of candidates that exist already: answers from a file, or the
// directories that agents left elsewhere. [Read] makes the producer, a [Set]. Nothing is run.
package predictions

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/workspace"
)

// A Set is a harness.Producer that hands in candidates without running anything. It is safe for
// concurrent use as long as nobody changes it.
type Set struct {
	// Candidates has the candidates of each task by the task's id, one for each attempt. Produce
	// copies the tree and the Layer of a Workspace.
	Candidates map[string][]candidate.Candidate
	// Digest is the digest of the file or directory that was read: "sha256:" and hexadecimal digits.
	Digest string
}

// Type is the harness's type in the records of candidates that existed already.
const Type = "predictions"

// Identity implements harness.Producer.
func (s *Set) Identity() harness.Identity { return harness.Identity{Type: Type, Digest: s.Digest} }

// Attempts returns the largest number of candidates of a task.
func (s *Set) Attempts() int {
	most := 0
	for _, all := range s.Candidates {
		most = max(most, len(all))
	}
	return most
}

// Produce returns the candidate of an attempt. It copies a workspace and its layer to r.Dest as if
// an agent had left them. If there is no candidate for the attempt, the Failure is candidate_missing.
func (s *Set) Produce(ctx context.Context, _ harness.Engine, r harness.Request) (result harness.Result, err error) {
	all := s.Candidates[r.Task.ID]
	if r.Attempt > len(all) {
		return harness.Result{Failure: &candidate.Failure{
			Reason: "candidate_missing", Phase: "extraction", Message: fmt.Sprintf("the predictions have %d answers to this task, and none for this attempt", len(all)),
		}}, nil
	}
	c := all[r.Attempt-1]
	if r.Kind != compiler.CandidateWorkspace {
		if result.Failure = c.CheckText(); result.Failure == nil {
			result.Candidate = c
		}
		return result, nil
	}
	result.Candidate, result.Failure, err = candidate.Extract(ctx, candidate.Source{
		Kind: r.Kind, Workspace: c.Workspace, Attributes: c.Attributes, Dest: r.Dest, MaxBytes: r.WorkspaceBytes,
	})
	if err == nil && result.Failure == nil && c.Layer != "" && r.Task.Environment.Machine {
		if result.Failure, err = copyLayer(ctx, c, r.Dest+layer.Suffix, candidate.LayerBudget(r.WorkspaceBytes)); result.Failure == nil {
			result.Candidate.Layer = c.Layer
		}
	}
	return result, err
}

// copyLayer copies a candidate's layer after checking its digest and its entries. A Failure is the layer's fault.
func copyLayer(ctx context.Context, c candidate.Candidate, dest string, limits layer.Budget) (*candidate.Failure, error) {
	from, err := c.OpenLayer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }()
	seen := map[[sha256.Size]byte]bool{} // digests of paths, which may be long
	for e, err := range layer.Entries(ctx, from, limits) {
		if err == nil && e.Kind != layer.Opaque {
			path := sha256.Sum256([]byte(e.Path))
			if seen[path] {
				err = fmt.Errorf("%w: two entries for %.300q", layer.ErrInvalid, e.Path)
			}
			seen[path] = true
		}
		switch {
		case errors.Is(err, workspace.ErrTooBig):
			return &candidate.Failure{Reason: "candidate_too_big", Phase: "extraction", Message: err.Error()}, nil
		case errors.Is(err, layer.ErrInvalid):
			return &candidate.Failure{Reason: "candidate_unreadable", Phase: "extraction", Message: err.Error()}, nil
		case err != nil:
			return nil, err
		}
	}
	to, err := os.OpenFile(dest, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	_, err = from.Seek(0, io.SeekStart)
	if err == nil {
		_, err = io.Copy(to, from)
	}
	return nil, errors.Join(err, to.Sync(), to.Close())
}
