// Package compiler turns what people write (a tester file, a pack's manifest
// and rows) into what the rest of sbench runs: tasks whose values are parted
// into lanes. It reads files of the pack and nothing else.
//
// Words: a pack is a manifest, a file of rows and folders of assets; a row is
// one author-facing task; a Task is a compiled row; a Family is a row's
// contract; a Lane says who may see a value; a Component is who looks.
//
// Loaders report everything that is wrong at once: their errors hold Problems
// for errors.As, each with file, line, JSON path and, where one is known, a
// hint.
package compiler

import "github.com/securebench/sbench/compiler/document"

// Problem is one thing wrong with an input file.
type Problem = document.Problem

// Problems are all that is wrong with an input file. As an error it has one
// line for every problem.
type Problems = document.Problems

// Lane is the visibility of a value. The zero Lane is invalid.
type Lane string

// The lanes.
const (
	// Public values are seen by everyone.
	Public Lane = "public"
	// EvaluationInputs are seen by the sandbox that verifies, and never by a
	// harness.
	EvaluationInputs Lane = "evaluation_inputs"
	// HiddenLane values are seen by the verifier's own process only.
	HiddenLane Lane = "hidden"
)

// Component is who looks at a task. The zero Component is invalid.
type Component string

// The components.
const (
	Agent       Component = "agent"        // public
	TestSandbox Component = "test_sandbox" // public and evaluation_inputs
	Evaluator   Component = "evaluator"    // public and hidden, in process only
	Result      Component = "result"       // everything, but what is not public redacted
)

// Sees reports whether the component is shown values of the lane. A result
// sees public values only: of the others it has the names.
func (c Component) Sees(lane Lane) bool {
	switch lane {
	case Public:
		return c == Agent || c == TestSandbox || c == Evaluator || c == Result
	case EvaluationInputs:
		return c == TestSandbox
	case HiddenLane:
		return c == Evaluator
	}
	return false
}

// CandidateKind is what a harness has to leave. The zero CandidateKind is
// invalid.
type CandidateKind string

// The kinds of candidates.
const (
	CandidateText      CandidateKind = "text"
	CandidateCode      CandidateKind = "code"
	CandidatePatch     CandidateKind = "patch"
	CandidateWorkspace CandidateKind = "workspace"
)

// Command is what to execute: a shell line or an argument vector. Exactly one
// of the two is set, unless there is no command.
type Command struct {
	Shell string
	Argv  []string
}

// Args returns the argument vector to execute; nil if there is no command.
func (c Command) Args() []string {
	if c.Shell != "" {
		return []string{"sh", "-c", c.Shell}
	}
	return c.Argv
}

// IsZero reports whether there is no command.
func (c Command) IsZero() bool { return c.Shell == "" && len(c.Argv) == 0 }
