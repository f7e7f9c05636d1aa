package run

import (
	"context"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/runtime"
)

// audited is an engine whose sandboxes report the start and the end of every command, and
// refuse commands that the policy denies.
type audited struct {
	harness.Engine
	policy runtime.CommandPolicy
	emit   func(Event) // adds the task
	spec   func(sandbox, digest string)
}

// audited returns the engine of a try. The zero try stands for work that belongs to none.
func (s *session) audited(t try, deny []string) audited {
	a := audited{s.cfg.Engine, runtime.CommandPolicy{Allow: []string{"*"}, Deny: deny}, s.emit, func(string, string) {}}
	if t.task != nil {
		a.spec = t.log.addSpec
		a.emit = func(e Event) {
			e.Task = t.task.ID()
			s.emit(e)
		}
	}
	return a
}

// Create wraps the sandbox that the engine makes.
func (a audited) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	box, err := a.Engine.Create(ctx, cfg)
	if err != nil {
		return nil, err
	}
	guarded := runtime.Guard(box, a.policy, func(d runtime.CommandDecision) {
		a.emit(Event{Kind: SandboxCommand, Detail: cfg.Name + ": " + d.Executable, Reason: d.Reason})
	})
	return told{guarded, cfg.Name, a.emit, a.spec}, nil
}

// told is a sandbox that reports how its commands ended.
type told struct {
	runtime.Sandbox
	name string
	emit func(Event)
	spec func(sandbox, digest string)
}

// Unwrap returns the engine's own sandbox, on which the engine can build another.
func (s told) Unwrap() runtime.Sandbox {
	return s.Sandbox.(interface{ Unwrap() runtime.Sandbox }).Unwrap()
}

func (s told) Exec(ctx context.Context, p runtime.Process) (runtime.Exit, error) {
	exit, err := s.Sandbox.Exec(ctx, p)
	if err == nil {
		s.spec(s.name, exit.Spec)
		s.emit(Event{Kind: SandboxResult, Detail: s.name + ": " + exit.String()})
	}
	return exit, err
}
