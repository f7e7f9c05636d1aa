package run

import (
	"context"
	"fmt"
	"time"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
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
	Resume               Kind = "resume"     // what an earlier session recorded
	ImagePull            Kind = "image_pull" // Detail is the reference, then ": done"
	Stopping             Kind = "stopping"   // Options.Stop was closed
	VerifierStart        Kind = "verifier_start"
	VerifierRun          Kind = "verifier_run"           // a run of tests begins
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
	// Assurance is how certain a pass is, in events that end a verification or a try.
	Assurance verifiers.Assurance `json:"assurance,omitempty"`
	// FailureMessage of a task_done event is its record's, cut to 2,000 bytes. It contains no secrets,
	// but possibly text that the candidate wrote.
	FailureMessage string  `json:"failure_message,omitempty"`
	Detail         string  `json:"detail,omitempty"`  // for people; an agent's output has its line breaks
	Sandbox        string  `json:"sandbox,omitempty"` // of events about a command in it
	Seconds        float64 `json:"seconds,omitempty"` // that the try took, of a task_done event, or the verification so far, of a verifier_run event
	// Totals of an egress event: decisions of the proxy, and tokens of the agent. OutputTokens, which
	// the model wrote, are part of Tokens.
	Allowed      int64   `json:"allowed,omitempty"`
	Denied       int64   `json:"denied,omitempty"`
	Tokens       int64   `json:"tokens,omitempty"`
	OutputTokens int64   `json:"output_tokens,omitempty"`
	CostUSD      float64 `json:"cost_usd,omitempty"` // of Tokens, if the prices are known
	Again        bool    `json:"again,omitempty"`    // of a task_done event: another try follows
	// Totals of a run_start event; Attempts is the number for all tasks together.
	Tasks    int      `json:"tasks,omitempty"`
	Attempts int      `json:"attempts,omitempty"`
	Resumed  int      `json:"resumed,omitempty"` // attempts recorded before, of a run_start, task_start or run_done event
	Summary  *Summary `json:"summary,omitempty"` // of a run_done event
}

func (s *shared) emit(e Event) {
	if s.cfg.Progress == nil {
		return
	}
	e.Time, e.RunID = time.Now(), s.cfg.Tester.Run.ID
	s.progress.Lock()
	defer s.progress.Unlock()
	s.cfg.Progress(e)
}

func (a attempt) emit(e Event) {
	e.Task, e.Attempt = a.task.ID(), a.number
	a.shared.emit(e)
}

// emitEgress emits an event with the totals of an attempt's network use.
func (a attempt) emitEgress(totals *harness.EgressTotals) {
	if totals == nil {
		return
	}
	e := Event{Kind: Egress}
	if p := totals.Proxy; p != nil {
		e.Allowed, e.Denied = p.Allowed, p.Denied
		e.Detail = fmt.Sprintf("%d allowed, %d denied", p.Allowed, p.Denied)
	}
	if r := totals.Relay; r != nil {
		e.Tokens, e.OutputTokens, e.CostUSD = r.Usage.Total(), r.Usage.Output, r.CostUSD
		e.Detail += fmt.Sprintf(", %d requests to the provider, %d tokens", r.Sent+r.Other, e.Tokens)
		if e.CostUSD > 0 {
			e.Detail += fmt.Sprintf(", %.2f USD", e.CostUSD)
		}
		if r.ProviderWait >= 1 {
			e.Detail += fmt.Sprintf(", %.0f s of waiting for it", r.ProviderWait)
		}
	}
	a.emit(e)
}

// observed is an engine whose sandboxes report the start and the end of every command, and
// refuse commands whose names are in deny.
type observed struct {
	harness.Engine
	run     *shared
	attempt *attempt // nil for sandboxes that several attempts use
	deny    []string
}

// Create implements harness.Engine.
func (o observed) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	cfg.Observer = o
	if o.attempt != nil {
		cfg.Isolation = max(cfg.Isolation, runtime.Isolation(o.attempt.task.Environment().Isolation))
	}
	return o.Engine.Create(ctx, cfg)
}

// Starting implements runtime.Observer.
func (o observed) Starting(sandbox string, p runtime.Process) error {
	d := runtime.CommandPolicy{Allow: []string{"*"}, Deny: o.deny}.Decide(p.Args)
	o.emit(Event{Kind: SandboxCommand, Sandbox: sandbox, Detail: sandbox + ": " + d.Executable, Reason: d.Reason})
	return d.Check()
}

// Ended implements runtime.Observer.
func (o observed) Ended(sandbox string, exit runtime.Exit) {
	if o.attempt != nil {
		o.attempt.log.AddSpec(sandbox, exit.Spec)
	}
	o.emit(Event{Kind: SandboxResult, Sandbox: sandbox, Detail: sandbox + ": " + exit.String()})
}

func (o observed) emit(e Event) {
	if o.attempt != nil {
		o.attempt.emit(e)
		return
	}
	o.run.emit(e)
}
