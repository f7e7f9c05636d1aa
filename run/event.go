package run

import (
	"time"

	"github.com/securebench/sbench/run/record"
)

// Kind is the kind of an event. The names are those of SecureBench's progress events.
type Kind string

// The kinds of events.
const (
	RunStart             Kind = "run_start"
	SandboxCommand       Kind = "sandbox_command" // a command in a sandbox, allowed or denied
	SandboxResult        Kind = "sandbox_result"  // how such a command ended
	TaskStart            Kind = "task_start"      // a try begins
	ProducerStart        Kind = "producer_start"
	AgentOutput          Kind = "agent_output" // what an agent says
	ProducerDone         Kind = "producer_done"
	Egress               Kind = "egress"  // totals of an attempt
	Waiting              Kind = "waiting" // the next attempt waits for resources
	Notice               Kind = "notice"
	Resume               Kind = "resume"     // what an earlier session left
	ImagePull            Kind = "image_pull" // Detail is the reference, then ": done"
	Stopping             Kind = "stopping"   // Config.Stop was closed
	VerifierStart        Kind = "verifier_start"
	VerifierPolicyDenied Kind = "verifier_policy_denied" // instead of verifier_done
	VerifierDone         Kind = "verifier_done"
	TaskDone             Kind = "task_done" // a try was recorded
	RunDone              Kind = "run_done"
	Message              Kind = "message" // any other line that sbench writes, such as a warning or an error
)

// An Event reports progress. Fields that do not apply are zero.
type Event struct {
	Time    time.Time     `json:"time"`
	Kind    Kind          `json:"event"`
	RunID   string        `json:"run_id"`
	Task    string        `json:"task,omitempty"`
	Attempt int           `json:"attempt,omitempty"`
	Try     int           `json:"try,omitempty"`    // of a task_start or task_done event, from 1
	Status  record.Status `json:"status,omitempty"` // of events that end a verification or a try
	Reason  string        `json:"reason,omitempty"`
	// FailureMessage is that of the record, of a task_done event: at most 2,000 bytes,
	// without secrets, but possibly with text that the candidate wrote.
	FailureMessage string  `json:"failure_message,omitempty"`
	Detail         string  `json:"detail,omitempty"`  // for people; an agent's output has its line breaks
	Sandbox        string  `json:"sandbox,omitempty"` // of events about a command in it
	Seconds        float64 `json:"seconds,omitempty"` // that the try took, of a task_done event
	// Totals of an egress event: decisions of the proxy, and tokens of the agent, of which the
	// model wrote OutputTokens.
	Allowed      int64 `json:"allowed,omitempty"`
	Denied       int64 `json:"denied,omitempty"`
	Tokens       int64 `json:"tokens,omitempty"`
	OutputTokens int64 `json:"output_tokens,omitempty"`
	Again        bool  `json:"again,omitempty"` // of a task_done event that another try follows
	// Totals of a run_start event; Attempts counts those of all tasks.
	Tasks    int `json:"tasks,omitempty"`
	Attempts int `json:"attempts,omitempty"`
	// Resumed counts the attempts that were recorded before, of a run_start, task_start or
	// run_done event.
	Resumed int      `json:"resumed,omitempty"`
	Summary *Summary `json:"summary,omitempty"` // of a run_done event
}
