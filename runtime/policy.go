package runtime

import (
	"errors"
	"fmt"
	"path"
	"slices"
)

// A CommandPolicy says by executable name which commands sbench itself may start in a
// sandbox. It is for auditing and does not replace isolation: it does not see what a started
// command starts in turn.
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

// Decide decides by the base name of the command's first argument, without which it denies
// the command.
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

// An Observer is asked before each process that sbench starts in a sandbox, and told how the
// process ended. Its methods are safe for concurrent use.
type Observer interface {
	// Starting returns an error, such as [ErrDenied], if the process must not start.
	Starting(sandbox string, p Process) error
	// Ended is not called if Exec returns an error.
	Ended(sandbox string, exit Exit)
}

// Admit returns an error unless a sandbox may run p now. It asks the sandbox's observer first. spent says
// that the sandbox has run a process, and closed that it was closed.
func (c Config) Admit(p Process, spent, closed bool) error {
	if c.Observer != nil {
		if err := c.Observer.Starting(c.Name, p); err != nil {
			return err
		}
	}
	switch {
	case closed:
		return ErrClosed
	case p.Wall <= 0:
		return errors.New("process without a wall-clock limit")
	case spent && !c.Persistent:
		return ErrSpent
	}
	return nil
}

// Ended tells the sandbox's observer, if it has one.
func (c Config) Ended(exit Exit) {
	if c.Observer != nil {
		c.Observer.Ended(c.Name, exit)
	}
}

// Check returns an error that matches [ErrDenied] unless the command is allowed.
func (d CommandDecision) Check() error {
	if d.Allowed {
		return nil
	}
	return fmt.Errorf("%w: %q is %s", ErrDenied, d.Executable, d.Reason)
}
