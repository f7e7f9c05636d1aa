// Package record writes, reads and verifies the results of a run. Every attempt is a
// line of JSON that says how it came about and contains the digest of the line before
// it. A manifest of the run is the beginning of this chain, and a seal, which can be
// signed, its end.
package record

import (
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
)

// Names of the files in a run's directory.
const (
	RecordsFile   = "candidates.jsonl"
	ManifestFile  = "run.json"
	SealFile      = "seal.json"
	SignatureFile = "seal.dsse.json"
	EgressFile    = "egress.jsonl"
	TraceFile     = "agent-trace.log" // of an attempt's folder of logs
	WorkspacesDir = "workspaces"
	LogsDir       = "logs"
)

// Status is the outcome that a record states. The zero Status is invalid and cannot be
// written.
type Status string

// The statuses of a record. Error is not a score: such records are left out of every
// denominator.
const (
	Pending Status = "pending"
	Passed  Status = "passed"
	Failed  Status = "failed"
	Error   Status = "error"
)

// Valid reports whether s is one of the statuses and may be written.
func (s Status) Valid() bool { return s == Pending || s == Passed || s == Failed || s == Error }

// Scored reports whether s is a verdict: Passed or Failed.
func (s Status) Scored() bool { return s == Passed || s == Failed }

// A Record is one line of candidates.jsonl: one try of one attempt.
type Record struct {
	RunID       string          `json:"run_id"`
	TaskID      string          `json:"task_id"`
	BenchmarkID string          `json:"benchmark_id"`
	TaskType    compiler.Family `json:"task_type"`
	Category    string          `json:"category,omitempty"` // metadata.category of the row, if it is a text
	Attempt     int             `json:"attempt"`            // of the task, from 1
	// Try counts from 1 how often the attempt was made: what could not be
	// measured is tried again. The last try counts.
	Try int `json:"try"`

	VerificationStatus Status                     `json:"verification_status"`
	CandidateText      *string                    `json:"candidate_text"`
	CandidatePatch     *string                    `json:"candidate_patch"`
	CandidateWorkspace *string                    `json:"candidate_workspace"` // relative to the run's folder
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
	// Contrast says how the candidate did on changed tests, where there were any.
	Contrast *contrast.Summary `json:"contrast,omitempty"`

	// When it did not pass.
	FailureReason  string `json:"failure_reason,omitempty"`
	FailurePhase   string `json:"failure_phase,omitempty"` // producer, extraction, verifier
	FailureMessage string `json:"failure_message,omitempty"`

	// NetworkEnabled: the run let its harness reach something, be it a provider
	// alone; egress.jsonl says what.
	NetworkEnabled bool                  `json:"network_enabled"`
	Egress         *harness.EgressTotals `json:"egress,omitempty"`
	Agent          *harness.About        `json:"agent,omitempty"`

	Image    string   `json:"image,omitempty"`
	ImageID  string   `json:"image_digest,omitempty"`
	Degraded []string `json:"degraded,omitempty"` // limits this host did not enforce

	StartedAt  time.Time  `json:"started_at"`
	EndedAt    time.Time  `json:"ended_at"`
	Times      Times      `json:"times"`
	Logs       []Log      `json:"logs,omitempty"`
	Provenance Provenance `json:"provenance"`

	// CandidateDigest is of what was judged, without secrets: "sha256:" of the text or
	// patch as it is here, or the WorkspaceDigest; "" if there is no candidate.
	CandidateDigest string `json:"candidate_digest,omitempty"`
	WorkspaceDigest string `json:"workspace_digest,omitempty"` // of the tree; see workspace.TreeReport
	// WorkspaceAttributes is the digest of the list beside the workspace, at its name
	// with workspace.AttributesSuffix, of the owners and modes that its entries do
	// not have any more; "" if there are none. The WorkspaceDigest is of the tree
	// with them.
	WorkspaceAttributes string `json:"workspace_attributes,omitempty"`
	// EgressDigest is "sha256:" of this try's lines of egress.jsonl, one after the
	// other; "" if there are none.
	EgressDigest string `json:"egress_digest,omitempty"`

	// Previous is the Digest of the line before, or of the run's manifest. Digest
	// is of this line up to itself. See [Ledger].
	Previous string `json:"previous"`
	Digest   string `json:"digest"`
}

// Metadata is a JSON object whose keys are not fixed.
type Metadata map[string]any

// Times says how long the parts of an attempt took, in seconds.
type Times struct {
	Waited   float64 `json:"waited"` // for its turn, after the one before it was started
	Producer float64 `json:"producer"`
	Verifier float64 `json:"verifier"`
}

// A Log describes a log file beside the records.
type Log struct {
	Path   string `json:"path"` // relative to the run's folder
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest"`        // "sha256:"
	Cut    int64  `json:"cut,omitempty"` // bytes that were not kept
}

// Provenance says what an attempt was made from, with what, and where.
type Provenance struct {
	Sbench     Version           `json:"sbench"`
	Pack       Pack              `json:"pack"`
	Row        string            `json:"row"` // digests of docs/digests.md
	Evaluation string            `json:"evaluation"`
	Assets     string            `json:"assets"`
	Harness    Harness           `json:"harness"`
	Policy     Policy            `json:"policy"`
	Specs      map[string]string `json:"specs,omitempty"` // digest of the OCI specification, by the sandbox's name
	Host       Host              `json:"host"`
	// Inputs is a digest over everything that could change the outcome. A record
	// is resumed from only if it is the same.
	Inputs string `json:"inputs"`
}

// Version identifies the build of sbench.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
}

// Pack names the benchmark.
type Pack struct {
	ID       string `json:"id"`
	Version  int    `json:"version"`
	Manifest string `json:"manifest"` // digest
	// Digest is of the whole pack (docs/digests.md), in run.json alone, and only if all
	// of it was to be run: what is not run may be anything.
	Digest string `json:"digest,omitempty"`
}

// Harness names what produced the candidate.
type Harness struct {
	Type    string `json:"type"`              // of the tester file, or reference or empty
	Version string `json:"version,omitempty"` // of an agent, exact
	Config  string `json:"config"`            // digest of its configuration
}

// Policy holds the limits and permissions under which the attempt was made.
type Policy struct {
	Limits         runtime.Limits `json:"limits"`
	WorkspaceBytes int64          `json:"workspace_bytes"`
	OutputBytes    int64          `json:"output_bytes"`
	TimeoutSeconds float64        `json:"timeout_seconds"`
	Domains        []string       `json:"domains,omitempty"`
	Transparent    bool           `json:"transparent,omitempty"`
	DenyCommands   []string       `json:"deny_commands,omitempty"`
	AllowDangerous bool           `json:"allow_dangerous,omitempty"`
	AllowSeccomp   bool           `json:"allow_seccomp,omitempty"`
	AllowNetlink   bool           `json:"allow_netlink,omitempty"`
	Degraded       []string       `json:"degraded,omitempty"`
}

// Host describes the machine on which the attempt was made.
type Host struct {
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Kernel     string `json:"kernel"`
	CPUs       int    `json:"cpus"`
	Memory     int64  `json:"memory"` // bytes
	Containerd string `json:"containerd"`
	Runtime    string `json:"runtime"` // the OCI runtime and its version
	Cgroups    string `json:"cgroups"` // v1 or v2
	Rootless   bool   `json:"rootless"`
	// UserNamespace is own if each sandbox had ids of its own, host if its root
	// was the host's.
	UserNamespace string `json:"user_namespace"`
	// UserNamespaceReason says why it is host, or what own lacks; "" for neither.
	UserNamespaceReason string `json:"user_namespace_reason,omitempty"`
}

// A Manifest says what a run was to do, with what, and where. It is written once,
// before the first record.
type Manifest struct {
	RunID     string    `json:"run_id"`
	StartedAt time.Time `json:"started_at"`
	Sbench    Version   `json:"sbench"`
	Host      Host      `json:"host"`
	Pack      Pack      `json:"pack"`
	Harness   Harness   `json:"harness"`
	// Inputs are the files that the run was made from, by what they are: tester,
	// manifest, tasks.
	Inputs   map[string]Input `json:"inputs"`
	Jobs     int              `json:"jobs"`
	Attempts int              `json:"attempts"` // of each task
}

// An Input names a file and the digest of its contents.
type Input struct {
	Path   string `json:"path"` // absolute
	Digest string `json:"digest"`
}

// A Seal says where a chain ends, so that records cut off at the end are noticed. It is
// written whenever an sbench process finishes with the run, and replaces the previous
// one.
type Seal struct {
	RunID   string    `json:"run_id"`
	Records int       `json:"records"`
	Last    string    `json:"last"` // Digest of the last line, or of the manifest
	At      time.Time `json:"at"`
	// AcceptedUnsigned counts the records at the beginning that were taken although
	// they were not sealed, or not signed, when the run went on ([Trust]); of a
	// regrading, those that it was made from.
	AcceptedUnsigned int    `json:"accepted_unsigned,omitempty"`
	Digest           string `json:"digest"` // of the JSON of the other fields, without white space, Digest ""
}
