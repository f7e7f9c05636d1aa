// Package record writes, reads and verifies the results of a run. Each try of an attempt is one line of
// JSON, which describes the result and how it came about, and contains the digest of the line before.
// This chain begins with the run's manifest and ends with a seal, which can be signed.
//
// [Ledger] writes, [Read] and [Verify] read, [Merge] puts the shards of a run together. The package
// touches only the directories that it is given.
package record

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
)

// Names of the files and directories in a run's directory.
const (
	RecordsFile   = "candidates.jsonl"
	ManifestFile  = "run.json"
	SealFile      = "seal.json"
	SignatureFile = "seal.dsse.json"
	EgressFile    = "egress.jsonl"
	TraceFile     = "agent-trace.log" // in an attempt's log directory
	AgentFile     = "agent.yaml"      // in an attempt's log directory: the descriptor of a tester's agent
	StepPrefix    = "step-"           // and a number from 1: the directory in it for a step of the task
	WorkspacesDir = "workspaces"
	LogsDir       = "logs"
	PrivateDir    = "private" // what verifiers printed and left; see [Private]
)

// Status is the outcome that a record states. The zero Status is invalid and cannot be
// written.
type Status string

// The statuses of a record. Error is not a score: no denominator includes such records.
const (
	Pending Status = "pending" // no verdict, mostly for lack of a verifier
	Passed  Status = "passed"
	Failed  Status = "failed"
	Error   Status = "error" // could not be measured
)

// Valid reports whether s is one of the statuses and may be written.
func (s Status) Valid() bool { return s == Pending || s == Passed || s == Failed || s == Error }

// Scored reports whether s is a verdict: Passed or Failed.
func (s Status) Scored() bool { return s == Passed || s == Failed }

// A Record is one line of candidates.jsonl: one try of one attempt.
type Record struct {
	RunID       string `json:"run_id"`
	TaskID      string `json:"task_id"`
	BenchmarkID string `json:"benchmark_id"`
	TaskType    string `json:"task_type"`
	Category    string `json:"category,omitempty"` // metadata.category of the row, if that is a string
	Attempt     int    `json:"attempt"`            // number within the task, from 1
	Try         int    `json:"try"`                // number within the attempt, from 1; the last one counts

	VerificationStatus Status                     `json:"verification_status"`
	CandidateText      *string                    `json:"candidate_text"`      // nil if there is none
	CandidatePatch     *string                    `json:"candidate_patch"`     // nil if there is none; may be empty
	CandidateWorkspace *string                    `json:"candidate_workspace"` // relative to the run's directory; nil if none was kept
	ProducerStdout     string                     `json:"producer_stdout"`     // redacted; only both ends if it is long (Logs has all of it)
	ProducerStderr     string                     `json:"producer_stderr"`
	ProducerMetadata   Metadata                   `json:"producer_metadata"` // how the harness's process ended
	ResourceSummary    []compiler.ResourceSummary `json:"resource_summary"`  // the task's resources; values that are not public are redacted
	HiddenValues       string                     `json:"hidden_values"`     // always "<redacted>"

	// Passed and Score are set if the status is a verdict, the fields below if the candidate was verified.
	Passed *bool    `json:"passed,omitempty"`
	Score  *float64 `json:"score,omitempty"` // 0 to 1
	// Assurance says how certain a pass is; "" unless the candidate passed.
	Assurance        verifiers.Assurance `json:"assurance,omitempty"`
	VerifierMetadata Metadata            `json:"verifier_metadata,omitempty"` // nothing that a verifier printed
	// Contrast is how the candidate answered blind tests; nil if it was asked nothing.
	Contrast *contrast.Summary `json:"contrast,omitempty"`

	// Steps are those that were made of a task with steps. The fields above and below are about all of
	// them; outputs have a heading for each.
	Steps []Step `json:"steps,omitempty"`

	// Set unless the attempt passed.
	FailureReason  string `json:"failure_reason,omitempty"`
	FailurePhase   string `json:"failure_phase,omitempty"` // producer, extraction or verifier
	FailureMessage string `json:"failure_message,omitempty"`

	// ProducerFailure says how the harness ended badly, even if its candidate was judged; nil if the
	// harness ended well.
	ProducerFailure *candidate.Failure `json:"producer_failure,omitempty"`

	NetworkEnabled bool                  `json:"network_enabled"`  // the harness could reach something, if only its provider
	Egress         *harness.EgressTotals `json:"egress,omitempty"` // nil if nothing could leave the sandbox
	Agent          *harness.About        `json:"agent,omitempty"`  // nil unless the harness is an agent

	Image    string            `json:"image,omitempty"` // reference
	ImageID  string            `json:"image_digest,omitempty"`
	Sidecars map[string]string `json:"sidecars,omitempty"` // digests of their images, by name
	Degraded []string          `json:"degraded,omitempty"` // limits this host did not enforce

	StartedAt  time.Time  `json:"started_at"` // UTC
	EndedAt    time.Time  `json:"ended_at"`
	Times      Times      `json:"times"`
	Logs       []Log      `json:"logs,omitempty"`
	Provenance Provenance `json:"provenance"`

	// CandidateDigest identifies the candidate as stored, without secrets:
	//
	//	text or patch          its [Digest]
	//	workspace              WorkspaceDigest
	//	workspace and layer    the [Digest] of WorkspaceDigest, a space and LayerDigest
	//	no candidate           ""
	CandidateDigest string `json:"candidate_digest,omitempty"`
	WorkspaceDigest string `json:"workspace_digest,omitempty"` // of the tree; see workspace.TreeReport
	Workdir         string `json:"workdir,omitempty"`          // where the workspace was in the sandbox
	// WorkspaceAttributes and LayerDigest are Attributes and Layer of a candidate.Candidate.
	// WorkspaceDigest covers the original modes.
	WorkspaceAttributes string `json:"workspace_attributes,omitempty"`
	LayerDigest         string `json:"layer_digest,omitempty"`
	// EgressDigest is the [Digest] of this try's lines of egress.jsonl, concatenated; ""
	// if there are none.
	EgressDigest string `json:"egress_digest,omitempty"`

	// PrivateDigest is the [Digest] of the file with the record's [Private] part; "" if there is none.
	PrivateDigest string `json:"private_digest,omitempty"`

	// Previous is the Digest of the previous line or, in the first line, of the run's
	// manifest. Digest covers this line up to the digest itself. See [Ledger].
	Previous string `json:"previous"`
	Digest   string `json:"digest"`
}

// DigestCandidate returns what CandidateDigest has to be.
func (r *Record) DigestCandidate() string {
	switch {
	case r.CandidateText != nil:
		return Digest([]byte(*r.CandidateText))
	case r.CandidatePatch != nil:
		return Digest([]byte(*r.CandidatePatch))
	case r.LayerDigest != "":
		return Digest([]byte(r.WorkspaceDigest + " " + r.LayerDigest))
	}
	return r.WorkspaceDigest
}

// A Step is a step of a task that was made, with the fields of a Record that are its own.
type Step struct {
	Name            string                `json:"name"`
	Status          Status                `json:"verification_status"`
	Score           float64               `json:"score"`
	Assurance       verifiers.Assurance   `json:"assurance,omitempty"`
	Contrast        *contrast.Summary     `json:"contrast,omitempty"`
	FailureReason   string                `json:"failure_reason,omitempty"`
	FailurePhase    string                `json:"failure_phase,omitempty"`
	FailureMessage  string                `json:"failure_message,omitempty"`
	ProducerFailure *candidate.Failure    `json:"producer_failure,omitempty"`
	Times           Times                 `json:"times"`
	Agent           *harness.About        `json:"agent,omitempty"`
	Egress          *harness.EgressTotals `json:"egress,omitempty"`
}

// An AttemptKey names an attempt within a run.
type AttemptKey struct {
	Task   string
	Number int
}

// Key names the record's attempt.
func (r *Record) Key() AttemptKey { return AttemptKey{r.TaskID, r.Attempt} }

// PassAssurance returns how certain a record's pass is: Assurance or, if there is none, the weakest
// assurance; "" if the candidate did not pass.
func (r *Record) PassAssurance() verifiers.Assurance {
	if r.VerificationStatus != Passed {
		return ""
	}
	return cmp.Or(r.Assurance, verifiers.Executed)
}

// Doubtful reports whether a passed candidate gave some wrong answers to blind tests.
func (r *Record) Doubtful() bool {
	doubtful, _ := r.VerifierMetadata[verifiers.Doubtful].(bool)
	return doubtful && r.VerificationStatus == Passed
}

// Uncalibrated reports whether blind tests judged a candidate that no reference solution has calibrated.
func (r *Record) Uncalibrated() bool {
	is := func(s *contrast.Summary) bool { return s != nil && s.State == contrast.Uncalibrated }
	return is(r.Contrast) || slices.ContainsFunc(r.Steps, func(s Step) bool { return is(s.Contrast) })
}

// Judged reports whether the record has a verifier's verdict on the candidate.
func (r *Record) Judged() bool {
	return r.VerificationStatus == Passed || r.VerificationStatus == Failed && r.FailurePhase == "verifier"
}

// AfterTimeout reports whether a candidate was judged although its harness ended badly.
func (r *Record) AfterTimeout() bool { return r.ProducerFailure != nil && r.Judged() }

// Suffices reports whether a pass with assurance a counts if required is the weakest that counts; ""
// requires nothing.
func Suffices(a, required verifiers.Assurance) bool {
	order := []verifiers.Assurance{"", verifiers.Executed, verifiers.Contrasted, verifiers.Sealed}
	return slices.Index(order, a) >= slices.Index(order, required)
}

// TooWeak is the reason of an attempt that passed with too weak an assurance. No record has this reason.
const TooWeak = "assurance_too_weak"

// varying matches what may differ between messages of the same cause: quoted text, paths, and words with digits.
var varying = regexp.MustCompile(`"[^"]*"|/\S+|\w*\d\w*`)

// CauseOf returns a failure message without what may differ between messages of the same cause.
func CauseOf(message string) string { return varying.ReplaceAllString(message, "#") }

// Code reports whether the candidate's text is a program.
func (r *Record) Code() bool {
	return slices.ContainsFunc(family.All(), func(f *compiler.Family) bool {
		return f.Name == r.TaskType && f.CandidateKind == compiler.CandidateCode
	})
}

// Fail gives the record the status failed, without a verdict of a verifier.
func (r *Record) Fail(f candidate.Failure) {
	r.VerificationStatus, r.FailureReason, r.FailurePhase, r.FailureMessage = Failed, f.Reason, f.Phase, f.Message
	r.Passed, r.Score, r.Assurance = new(false), new(0.0), ""
}

// Metadata is a JSON object without a fixed set of keys.
type Metadata map[string]any

// Times says how long the parts of an attempt took, in seconds.
type Times struct {
	Waited   float64 `json:"waited"` // for a job slot and resources; before a retry, since the record of the try before
	Producer float64 `json:"producer"`
	Verifier float64 `json:"verifier"`
	// ProviderWait is the part of Producer in which the provider made the harness wait because of its load.
	ProviderWait float64 `json:"provider_wait,omitempty"`
}

// A Log describes a log file beside the records.
type Log struct {
	Path   string `json:"path"` // relative to the run's directory
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest"`        // "sha256:"
	Cut    int64  `json:"cut,omitempty"` // bytes that were not kept
}

// Provenance describes what an attempt was made from, the software and settings used, and
// the host.
type Provenance struct {
	Sbench     Version           `json:"sbench"`
	Pack       Pack              `json:"pack"`
	Row        string            `json:"row"` // this and the next two are digests; see docs/design/digests.md
	Evaluation string            `json:"evaluation"`
	Assets     string            `json:"assets"`
	Harness    Harness           `json:"harness"`
	Policy     Policy            `json:"policy"`
	Specs      map[string]string `json:"specs,omitempty"` // digests of the OCI specifications, by sandbox name
	Host       Host              `json:"host"`
	// Settings are the keys of the tester file that the command line set, with their values.
	// Those that could change the outcome are also part of Harness and Policy.
	Settings map[string]string `json:"settings,omitempty"`
	// Inputs is a digest of everything that could change the outcome, except the host and
	// the values of harness.env. A resumed run keeps only records with the same Inputs.
	Inputs string `json:"inputs"`
}

// Version identifies the build of sbench.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"` // git revision; "" if unknown
}

// Pack names the benchmark.
type Pack struct {
	ID       string `json:"id"`
	Version  int    `json:"version"`
	Manifest string `json:"manifest"` // digest of the manifest file
	// Digest covers the whole pack (docs/design/digests.md). It is set only in run.json, and only
	// if the run selects all tasks: rows that are not selected are not checked.
	Digest string `json:"digest,omitempty"`
}

// Harness names what produced the candidate.
type Harness struct {
	Type    string `json:"type"`              // harness.type of the tester file, or the stand-in: reference or empty
	Version string `json:"version,omitempty"` // exact version of an agent
	Config  string `json:"config"`            // digest of its configuration
}

// Policy holds the limits and permissions under which the attempt was made.
type Policy struct {
	Isolation      runtime.Isolation `json:"isolation"` // of all sandboxes
	Limits         runtime.Limits    `json:"limits"`
	WorkspaceBytes int64             `json:"workspace_bytes"`           // largest workspace
	OutputBytes    int64             `json:"output_bytes"`              // most that is kept of each output stream
	TimeoutSeconds float64           `json:"timeout_seconds"`           // of the harness
	Domains        []string          `json:"domains,omitempty"`         // that the harness may reach
	CheckerDomains []string          `json:"checker_domains,omitempty"` // that the checker may reach
	Transparent    bool              `json:"transparent,omitempty"`     // programs that ignore the proxy settings reach Domains, too
	DenyCommands   []string          `json:"deny_commands,omitempty"`   // executables that the verifier must not start
	AllowDangerous bool              `json:"allow_dangerous,omitempty"`
	AfterTimeout   bool              `json:"after_timeout,omitempty"` // the candidate is judged even if the harness ended badly
	Contrast       string            `json:"contrast,omitempty"`      // off; "" is full
	Capabilities   []string          `json:"capabilities,omitempty"`  // of the task's sandboxes
	AllowSeccomp   bool              `json:"allow_seccomp,omitempty"`
	AllowNetlink   bool              `json:"allow_netlink,omitempty"`
	Judge          string            `json:"judge,omitempty"`    // the model that judges the answer, and how
	Degraded       []string          `json:"degraded,omitempty"` // limits that the host does not enforce
}

// Host describes the machine on which the attempt was made.
type Host struct {
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Kernel     string `json:"kernel"`
	CPUs       int    `json:"cpus"`
	Memory     int64  `json:"memory"` // bytes
	Containerd string `json:"containerd"`
	Runtime    string `json:"runtime"`        // the OCI runtime and its version
	Shim       string `json:"shim,omitempty"` // what executed it for containerd, such as io.containerd.sbench.v1
	Cgroups    string `json:"cgroups"`        // v1 or v2
	Rootless   bool   `json:"rootless"`
	// UserNamespace is one of
	//
	//	own     each sandbox had its own range of user ids
	//	nested  sbench itself ran in a user namespace
	//	host    root in a sandbox was root on the host
	UserNamespace       string `json:"user_namespace"`
	UserNamespaceReason string `json:"user_namespace_reason,omitempty"` // why it is host, or what is missing although it is own
}

// A Manifest describes a run: its inputs, settings and host. It is written once, before
// the first record.
type Manifest struct {
	RunID     string    `json:"run_id"`
	StartedAt time.Time `json:"started_at"`
	Sbench    Version   `json:"sbench"`
	Host      Host      `json:"host"`
	Pack      Pack      `json:"pack"`
	Harness   Harness   `json:"harness"`
	// Inputs are the files that the run was made from: tester, manifest and tasks.
	Inputs   map[string]Input  `json:"inputs"`
	Settings map[string]string `json:"settings,omitempty"` // of the first session; see [Provenance]
	Jobs     int               `json:"jobs"`               // attempts at a time
	Attempts int               `json:"attempts"`           // of each task
	// Planned is how many attempts of all tasks the run was to make; if fewer are recorded,
	// it was interrupted. See Seal.Planned.
	Planned int `json:"planned,omitempty"`
	// Shard is set if this is a part of a run, and Merged if the run was put together from such
	// parts; see [Merge].
	Shard  *Shard   `json:"shard,omitempty"`
	Merged []Merged `json:"merged,omitempty"`
}

// A Shard is a part of a run that several machines share.
type Shard struct {
	Index    int              `json:"index"` // from 1
	Count    int              `json:"count"`
	Deal     string           `json:"deal"`     // digest of which attempt belongs to which shard, the same in all shards
	Whole    int              `json:"whole"`    // attempts of all shards together
	Attempts map[string][]int `json:"attempts"` // the numbers of this shard's attempts, by task
}

const maxShards = 1 << 20

// CheckShard returns an error unless a run can have a shard of this index and count.
func CheckShard(index, count int) error {
	switch {
	case index < 1 || index > count:
		return fmt.Errorf("there is no part %d of %d: parts are counted from 1", index, count)
	case count > maxShards:
		return fmt.Errorf("there are at most %d parts", maxShards)
	}
	return nil
}

// Planned returns how many attempts are in the shard.
func (s *Shard) Planned() (n int) {
	for _, numbers := range s.Attempts {
		n += len(numbers)
	}
	return n
}

// Merged is a shard in a merged run. The merged run has the shard's records unchanged, except that they
// are linked into one chain. Manifest and Last are the ends of the shard's own chain.
type Merged struct {
	Index    int    `json:"index"`
	Manifest string `json:"manifest"` // digest of the shard's run.json
	Records  int    `json:"records"`
	Last     string `json:"last"`               // digest of its last record or, if there is none, of its run.json
	Unsigned int    `json:"unsigned,omitempty"` // Seal.AcceptedUnsigned of the shard
	Missing  int    `json:"missing,omitempty"`  // attempts of the shard without a record
}

// An Input names a file and the digest of its contents.
type Input struct {
	Path   string `json:"path"` // absolute
	Digest string `json:"digest"`
}

// A Seal says where a chain ends, so that a truncated chain is noticed. It is written
// when an sbench process begins to work on the run and when it ends, and replaces the previous seal.
type Seal struct {
	RunID   string    `json:"run_id"`
	Records int       `json:"records"`
	Last    string    `json:"last"` // Digest of the last line, or of the manifest
	At      time.Time `json:"at"`
	// AcceptedUnsigned counts the leading records that were accepted without the required seal or signature
	// ([Trust]), in this run or the run judged again.
	AcceptedUnsigned int `json:"accepted_unsigned,omitempty"`
	// Planned is how many attempts the run is to have in total: those that the last session planned, and
	// the other recorded ones. It is never less than Manifest.Planned.
	Planned int `json:"planned,omitempty"`
	// Open says that the session which wrote the seal goes on, and seals the records again at its end.
	Open   bool   `json:"open,omitempty"`
	Digest string `json:"digest"` // of the seal as compact JSON with an empty Digest
}
