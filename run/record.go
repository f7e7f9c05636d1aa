package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/runtime"
)

// Status of a record. The zero Status is invalid and cannot be written.
type Status string

// The statuses of a record. Error is no score and enters no denominator.
const (
	Pending Status = "pending"
	Passed  Status = "passed"
	Failed  Status = "failed"
	Error   Status = "error"
)

// A Record is one line of candidates.jsonl: one attempt.
type Record struct {
	RunID              string                     `json:"run_id"`
	TaskID             string                     `json:"task_id"`
	BenchmarkID        string                     `json:"benchmark_id"`
	TaskType           compiler.Family            `json:"task_type"`
	VerificationStatus Status                     `json:"verification_status"`
	CandidateText      *string                    `json:"candidate_text"`
	CandidatePatch     *string                    `json:"candidate_patch"`
	CandidateWorkspace *string                    `json:"candidate_workspace"` // relative to the output folder
	CandidateDigest    string                     `json:"candidate_digest,omitempty"`
	ProducerStdout     string                     `json:"producer_stdout"`
	ProducerStderr     string                     `json:"producer_stderr"`
	ProducerMetadata   Metadata                   `json:"producer_metadata"`
	ResourceSummary    []compiler.ResourceSummary `json:"resource_summary"`
	HiddenValues       string                     `json:"hidden_values"`

	// When verified.
	Passed           *bool    `json:"passed,omitempty"`
	Score            *float64 `json:"score,omitempty"`
	VerifierStdout   string   `json:"verifier_stdout,omitempty"`
	VerifierStderr   string   `json:"verifier_stderr,omitempty"`
	VerifierMetadata Metadata `json:"verifier_metadata,omitempty"`

	// When it did not pass.
	FailureReason  string `json:"failure_reason,omitempty"`
	FailurePhase   string `json:"failure_phase,omitempty"` // producer, extraction, verifier
	FailureMessage string `json:"failure_message,omitempty"`

	// NetworkEnabled: the run let its harness reach something, be it a provider
	// alone; egress.jsonl says what.
	NetworkEnabled bool                  `json:"network_enabled"`
	Egress         *harness.EgressTotals `json:"egress,omitempty"`
	Agent          *harness.About        `json:"agent,omitempty"`

	Image     string    `json:"image,omitempty"`
	ImageID   string    `json:"image_digest,omitempty"`
	Degraded  []string  `json:"degraded,omitempty"` // limits this host did not enforce
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
}

// Metadata is an open object.
type Metadata map[string]any

// exitMetadata says how a process ended, for a record.
func exitMetadata(e runtime.Exit) Metadata {
	if e.Reason == 0 {
		return Metadata{}
	}
	m := Metadata{"exit_reason": e.Reason.String(), "exit_code": e.Code, "wall_seconds": e.Wall.Seconds(), "usage": e.Usage,
		"stdout_bytes": e.Stdout.Total, "stderr_bytes": e.Stderr.Total}
	if e.Signal != 0 {
		m["signal"] = e.Signal
	}
	if len(e.Reached) > 0 {
		m["limits_reached"] = e.Reached
	}
	return m
}

// recorder appends records to a file that no run wrote before.
type recorder struct {
	file   *os.File
	redact redactor // of secrets that may stand nowhere
}

// createRecords makes the file. One that is there already is somebody's
// results, and stays as it is.
func createRecords(name string, r redactor) (*recorder, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s is there already: name another --output-dir, or move it away", name)
	}
	if err != nil {
		return nil, err
	}
	return &recorder{f, r}, nil
}

// append writes one line and sees it on disk.
func (w *recorder) append(r Record) error {
	switch r.VerificationStatus {
	case Pending, Passed, Failed, Error:
	default:
		return fmt.Errorf("record of task %q: status %q is invalid", r.TaskID, r.VerificationStatus)
	}
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false) // "<redacted>" is to be found as it is
	if err := enc.Encode(w.redact.everything(r)); err != nil {
		return fmt.Errorf("record of task %q: %w", r.TaskID, err)
	}
	if _, err := w.file.Write(line.Bytes()); err != nil { // one call: a line is whole or missing
		return fmt.Errorf("record of task %q: %w", r.TaskID, err)
	}
	return w.file.Sync()
}

func (w *recorder) close() error { return w.file.Close() }
