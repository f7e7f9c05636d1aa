package run

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/securebench/sbench/run/record"
)

// Kind of an event. The names are those of SecureBench's progress events.
type Kind string

// The kinds that exist today.
const (
	RunStart             Kind = "run_start"
	SandboxCommand       Kind = "sandbox_command"
	SandboxResult        Kind = "sandbox_result"
	TaskStart            Kind = "task_start"
	ProducerStart        Kind = "producer_start"
	AgentOutput          Kind = "agent_output"
	ProducerDone         Kind = "producer_done"
	Egress               Kind = "egress" // of an attempt, summed up
	Waiting              Kind = "waiting"
	Notice               Kind = "notice"
	Resume               Kind = "resume"
	ImagePull            Kind = "image_pull"
	Stopping             Kind = "stopping"
	VerifierStart        Kind = "verifier_start"
	VerifierPolicyDenied Kind = "verifier_policy_denied"
	VerifierDone         Kind = "verifier_done"
	TaskDone             Kind = "task_done"
	RunDone              Kind = "run_done"
)

// An Event tells of progress. Fields that do not apply are zero.
type Event struct {
	Time    time.Time     `json:"time"`
	Kind    Kind          `json:"event"`
	RunID   string        `json:"run_id"`
	Task    string        `json:"task,omitempty"`
	Attempt int           `json:"attempt,omitempty"`
	Status  record.Status `json:"status,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Detail  string        `json:"detail,omitempty"`
	Tokens  int64         `json:"tokens,omitempty"` // of an egress event
	Again   bool          `json:"again,omitempty"`  // a try that is followed by another
	// How many there are, of a run_start; Attempts counts those of all tasks.
	Tasks    int `json:"tasks,omitempty"`
	Attempts int `json:"attempts,omitempty"`
	// Resumed counts the attempts found recorded so far, of a task_start or run_done.
	Resumed int `json:"resumed,omitempty"`
}

// WriteEvent prints an event as a line for people.
func WriteEvent(w io.Writer, e Event) error {
	line := e.Time.UTC().Format("15:04:05") + " " + string(e.Kind)
	for _, part := range []string{e.Task, string(e.Status), e.Reason, e.Detail} {
		if part != "" {
			line += " " + Printable(part)
		}
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// Printable replaces control characters, which a terminal would obey.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
