package runtime

import (
	"context"
	"fmt"
	"path"
	"slices"
)

// A CommandPolicy says by executable name which commands sbench itself may start in
// a sandbox. It serves auditing and is no substitute for isolation, since it does
// not see what a started command starts in turn.
//
// The zero policy denies everything. Deny takes precedence over Allow.
type CommandPolicy struct {
	Allow []string // base names; "*" stands for every name
	Deny  []string // base names
}

// A CommandDecision is a policy's decision about one command.
type CommandDecision struct {
	Executable string // the base name of the first argument
	Allowed    bool
	Reason     string // "allowed", "denied by name" or "not in the allow list"
}

// Decide decides by the base name of the command's first argument. A command
// without one is denied.
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

// Guard returns a sandbox that asks p before each Exec and then calls s. Each
// decision is passed to audit, which must be safe for concurrent use. The error of
// Exec is [ErrDenied] if p denies the command, which then does not start.
func Guard(s Sandbox, p CommandPolicy, audit func(CommandDecision)) Sandbox {
	return guarded{s, p, audit}
}

type guarded struct {
	Sandbox
	policy CommandPolicy
	audit  func(CommandDecision)
}

// Unwrap returns the guarded sandbox. An engine needs it when the guarded one is
// given as [Config.From].
func (g guarded) Unwrap() Sandbox { return g.Sandbox }

func (g guarded) Exec(ctx context.Context, p Process) (Exit, error) {
	d := g.policy.Decide(p.Args)
	g.audit(d)
	if !d.Allowed {
		return Exit{}, fmt.Errorf("%w: %q is %s", ErrDenied, d.Executable, d.Reason)
	}
	return g.Sandbox.Exec(ctx, p)
}
