package run

import (
	"fmt"
	"io"
	"strings"
	"time"
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
	VerifierStart        Kind = "verifier_start"
	VerifierPolicyDenied Kind = "verifier_policy_denied"
	VerifierDone         Kind = "verifier_done"
	TaskDone             Kind = "task_done"
	RunDone              Kind = "run_done"
)

// An Event tells of progress. Fields that do not apply are zero.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   Kind      `json:"event"`
	RunID  string    `json:"run_id"`
	Task   string    `json:"task,omitempty"`
	Status Status    `json:"status,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Detail string    `json:"detail,omitempty"`
}

// WriteEvent prints an event as a line for people.
func WriteEvent(w io.Writer, e Event) error {
	line := e.Time.UTC().Format("15:04:05") + " " + string(e.Kind)
	for _, part := range []string{e.Task, string(e.Status), e.Reason, e.Detail} {
		if part != "" {
			line += " " + printable(part)
		}
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// printable keeps control characters of a pack's names off the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
