package run

import (
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/verifiers"
)

func (s *session) newRecord(a attempt) (record.Record, error) {
	task := a.task
	provenance, err := s.provenance(task)
	category, _ := task.Metadata()["category"].(string) // by which reports group tasks
	now := time.Now().UTC()
	return record.Record{
		RunID: s.cfg.Tester.Run.ID, TaskID: task.ID(), BenchmarkID: s.cfg.Pack.ID, TaskType: task.Family().Name, Category: category,
		Attempt: a.number, Try: a.try, HiddenValues: redacted, ResourceSummary: task.ResourceSummary(), ProducerMetadata: record.Metadata{},
		NetworkEnabled: s.cfg.networked(), Image: a.image.Ref, ImageID: a.image.Digest, Sidecars: s.plan.sidecarImages(a.task), Degraded: s.cfg.Degraded,
		StartedAt: now, Times: record.Times{Waited: now.Sub(a.asked).Seconds()}, Provenance: provenance,
	}, err
}

func fillProduced(rec *record.Record, kind compiler.CandidateKind, result harness.Result, secrets redactor) {
	c := result.Candidate
	rec.ProducerStdout, rec.ProducerStderr = secrets.output(result.Exit.Stdout), secrets.output(result.Exit.Stderr)
	rec.ProducerMetadata = result.Exit.Metadata()
	if len(c.Dropped) > 0 {
		rec.ProducerMetadata["dropped"] = c.Dropped
	}
	if c.Text != "" {
		rec.CandidateText = &c.Text
	}
	if f := result.Failure; f != nil {
		rec.VerificationStatus, rec.FailureReason, rec.FailurePhase, rec.FailureMessage = record.Failed, f.Reason, f.Phase, f.Message
	} else if kind == compiler.CandidatePatch {
		rec.CandidatePatch = &c.Patch // an empty patch is a candidate, too
	}
}

func fillVerdict(rec *record.Record, v verifiers.Verdict, secrets redactor) {
	rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = record.Status(v.Status), v.Reason, v.Message
	passed := v.Status == verifiers.Passed
	if passed || v.Status == verifiers.Pending {
		rec.FailurePhase = ""
	}
	if passed || v.Status == verifiers.Failed {
		rec.Passed, rec.Score = &passed, &v.Score
	}
	rec.VerifierStdout, rec.VerifierStderr = secrets.output(v.Stdout), secrets.output(v.Stderr)
	rec.VerifierMetadata, rec.Contrast = v.Metadata, v.Contrast
}

// unmeasured gives a record the status error.
func unmeasured(rec *record.Record, err error) {
	rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = record.Error, Infrastructure, err.Error()
	rec.Passed, rec.Score = nil, nil
}

// candidateDigest returns the digest of a record's candidate as it is recorded.
func candidateDigest(rec record.Record) string {
	switch {
	case rec.CandidateText != nil:
		return record.Digest([]byte(*rec.CandidateText))
	case rec.CandidatePatch != nil:
		return record.Digest([]byte(*rec.CandidatePatch))
	case rec.LayerDigest != "":
		return record.Digest([]byte(rec.WorkspaceDigest + " " + rec.LayerDigest))
	}
	return rec.WorkspaceDigest
}
