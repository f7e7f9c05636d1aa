package runtime

import (
	"context"
	"fmt"
	"path"
	"slices"
)

// A CommandPolicy says by executable name which commands sbench itself may
// start in a sandbox. It is for auditing and never instead of isolation: what a
// started command starts in turn is not seen.
//
// The zero policy denies everything. Deny beats Allow; the name "*" in Allow
// stands for every name.
type CommandPolicy struct {
	Allow []string
	Deny  []string
}

// A CommandDecision is one audit event.
type CommandDecision struct {
	Executable string // the base name of the first argument
	Allowed    bool
	Reason     string // "allowed", "denied by name" or "not in the allow list"
}

// Decide judges a command by its first argument.
func (p CommandPolicy) Decide(args []string) CommandDecision {
	d := CommandDecision{Reason: "not in the allow list"}
	if len(args) > 0 && args[0] != "" {
		d.Executable = path.Base(args[0])
	}
	switch {
	case d.Executable == "":
	case slices.Contains(p.Deny, d.Executable):
		d.Reason = "denied by name"
	case slices.Contains(p.Allow, "*"), slices.Contains(p.Allow, d.Executable):
		d.Allowed, d.Reason = true, "allowed"
	}
	return d
}

// Guard wraps a sandbox so that every command is judged before it starts. Each
// decision is passed to audit, which must be safe for concurrent use; a denied
// command is ErrDenied.
func Guard(s Sandbox, p CommandPolicy, audit func(CommandDecision)) Sandbox {
	return guarded{s, p, audit}
}

type guarded struct {
	Sandbox
	policy CommandPolicy
	audit  func(CommandDecision)
}

// Unwrap returns the sandbox that is guarded, for an engine that is asked to
// build on it.
func (g guarded) Unwrap() Sandbox { return g.Sandbox }

func (g guarded) Exec(ctx context.Context, p Process) (Exit, error) {
	d := g.policy.Decide(p.Args)
	g.audit(d)
	if !d.Allowed {
		return Exit{}, fmt.Errorf("%w: %q is %s", ErrDenied, d.Executable, d.Reason)
	}
	return g.Sandbox.Exec(ctx, p)
}
