// Package compiler turns what people write, a pack's manifest and rows, into what the rest of sbench runs: tasks with
// values in lanes. It writes no files, and reads only these and the pack's assets.
//
//	pack       a manifest, a file of rows and directories of assets
//	row        one task as its author writes it
//	Task       a compiled row
//	Family     the kind of a task, which determines the fields of its row
//	Lane       says who may see a value
//	Component  a part of sbench that sees values
//
// [OpenPack] and [Pack.Tasks] load, and [Task.AgentView] is what an agent may see. Package family has the families, and
// package validate checks files before anything runs. Loaders report all problems at once: their errors hold Problems
// (use errors.As), each with file, line and JSON path, and a hint if one is known.
package compiler

import "github.com/securebench/sbench/compiler/document"

// Problem is one thing wrong with an input file.
type Problem = document.Problem

// Problems lists everything wrong with an input file. As an error it has one line per
// problem.
type Problems = document.Problems

// Lane is the visibility of a value. The zero Lane is invalid.
type Lane string

// The lanes.
const (
	// Public values are seen by everyone.
	Public Lane = "public"
	// EvaluationInputs are seen by the sandbox that verifies, never by a harness.
	EvaluationInputs Lane = "evaluation_inputs"
	// HiddenLane values are seen only by the verifier's own process.
	HiddenLane Lane = "hidden"
)

// Component is a part of sbench to which values are shown. The zero Component is invalid.
type Component string

// The components.
const (
	Agent       Component = "agent"        // public
	TestSandbox Component = "test_sandbox" // public and evaluation_inputs
	Evaluator   Component = "evaluator"    // public and hidden, in process only
	Result      Component = "result"       // everything, with what is not public redacted
)

// Sees reports whether the component sees values of the lane. A result contains only the names of values
// that are not public.
func (c Component) Sees(lane Lane) bool {
	switch c {
	case Agent, Result:
		return lane == Public
	case TestSandbox:
		return lane == Public || lane == EvaluationInputs
	case Evaluator:
		return lane == Public || lane == HiddenLane
	}
	return false
}

// CandidateKind is the kind of thing that a harness has to produce. The zero CandidateKind
// is invalid.
type CandidateKind string

// The kinds of candidates.
const (
	CandidateText      CandidateKind = "text"      // an answer
	CandidateCode      CandidateKind = "code"      // a source file
	CandidatePatch     CandidateKind = "patch"     // changes to a git repository
	CandidateWorkspace CandidateKind = "workspace" // the final state of the workspace
)
