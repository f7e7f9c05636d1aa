package run

import (
	"context"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/runtime"
)

// observed is an engine whose sandboxes report the start and the end of every command, and
// refuse commands whose names are in deny.
type observed struct {
	harness.Engine
	session *session
	attempt *attempt // nil for sandboxes that several attempts use
	deny    []string
}

// Create implements harness.Engine.
func (o observed) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	cfg.Observer = o
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
		o.attempt.log.addSpec(sandbox, exit.Spec)
	}
	o.emit(Event{Kind: SandboxResult, Sandbox: sandbox, Detail: sandbox + ": " + exit.String()})
}

func (o observed) emit(e Event) {
	if o.attempt != nil {
		e.Task, e.Attempt = o.attempt.task.ID(), o.attempt.number
	}
	o.session.emit(e)
}
