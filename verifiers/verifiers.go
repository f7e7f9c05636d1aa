// Package verifiers judges candidates, one file for each family.
//
// A verifier runs after the harness is dead, in sandboxes the harness never
// touched. Its verdict comes from the exit status of a trusted process and never
// from anything a candidate could write. Whatever a candidate can provoke is
// Failed; an error means that nothing was judged.
package verifiers

import (
	"context"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
)

// Status of a verdict. The zero Status is invalid.
type Status string

// The statuses a verifier can reach.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Pending Status = "pending" // nothing can judge it yet
	// Faulty: the pack or its image is at fault, which no candidate can have caused
	// and another try would not change. Nothing was measured.
	Faulty Status = "error"
)

// A Verdict is what is known about a candidate after its verification.
type Verdict struct {
	Status  Status
	Score   float64 // 0 to 1; 1 if and only if Status is Passed
	Reason  string  // why it failed or is pending, a word; empty if passed
	Message string  // the same for people; never holds what a process printed
	// Stdout and Stderr are the checker's, for people.
	Stdout, Stderr runtime.Output
	// Contrast says how the candidate did on changed tests; nil if there was no
	// occasion to change them.
	Contrast *contrast.Summary
	Metadata map[string]any
}

func passed() Verdict { return Verdict{Status: Passed, Score: 1} }

func failed(reason, message string) Verdict {
	return Verdict{Status: Failed, Reason: reason, Message: message}
}

func faulty(reason, message string) Verdict {
	return Verdict{Status: Faulty, Reason: reason, Message: message}
}

// with returns the verdict with one more entry in its metadata.
func (v Verdict) with(key string, value any) Verdict {
	if v.Metadata == nil {
		v.Metadata = map[string]any{}
	}
	v.Metadata[key] = value
	return v
}

// Engine is what a verifier needs of the runtime.
type Engine interface {
	Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error)
	NewVolume(ctx context.Context, cfg runtime.VolumeConfig) (runtime.Volume, error)
	View(ctx context.Context, image runtime.Image) (runtime.View, error)
}

// Policy is the operator's word on dangerous commands.
type Policy struct {
	// AllowDangerous lets a task have the commands it needs.
	AllowDangerous bool
	Deny           []string // beats AllowDangerous
}

// An Input is one verification.
type Input struct {
	Task      *compiler.Task
	Pack      *compiler.Pack
	Candidate candidate.Candidate
	// Reference says that the candidate is the task's own solution, by which changed
	// tests can be calibrated.
	Reference bool
	Image     runtime.Image
	Limits    runtime.Limits
	Policy    Policy
	Timeout   time.Duration // of a check whose author set none
	// Code keeps sandboxes of code_completion; nil keeps none.
	Code *CodePool
	// Calibrations of changed tests; nil keeps none.
	Calibrations *contrast.Store
	// WorkspaceBytes bounds the throw-away copy, OutputBytes each stream kept.
	WorkspaceBytes int64
	OutputBytes    int64
}

// wall is the time that a run of tests has.
func (in Input) wall() time.Duration { return timeout(in.Task.Environment().Timeout, in.Timeout) }

// A Verifier judges one candidate.
type Verifier func(ctx context.Context, e Engine, in Input) (Verdict, error)

// For returns the verifier of a family. A family without one is Pending.
func For(family compiler.Family) (v Verifier, needsSandbox bool) {
	switch family {
	case compiler.TerminalTask:
		return terminalTask, true
	case compiler.CodeCompletion:
		return codeCompletion, true
	case compiler.RepoPatch:
		return repoPatch, true
	case compiler.MultipleChoice:
		return multipleChoice, false
	case compiler.ShortAnswer:
		return shortAnswer, false
	case compiler.FreeResponse:
		return freeResponse, false
	}
	return pending, false
}

func pending(_ context.Context, _ Engine, in Input) (Verdict, error) {
	return Verdict{Status: Pending, Reason: "no_verifier", Message: "no verifier for the family " + string(in.Task.Family())}, nil
}
