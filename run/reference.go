package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/workspace"
)

// A StandIn produces candidates instead of the harness, so that a pack can be tried without
// an agent. The zero StandIn means none.
type StandIn string

// The stand-ins. A pack measures something if the reference passes every task and the empty
// candidate passes none.
const (
	// Reference hands in each task's own solution. A task without one fails, with the
	// reason reference_missing.
	Reference StandIn = "reference"
	// Empty hands in nothing: no text, no code, no change.
	Empty StandIn = "empty"
)

const (
	solutionMount  = "/" + verifiers.SolutionDir // where the files of a reference solution are in the sandbox
	solutionInodes = 1 << 14                     // of their volume
)

// standIn is the producer of a task's stand-in.
type standIn struct {
	kind   StandIn
	family verifiers.Family
	task   *compiler.Task
	pack   *compiler.Pack
}

// Identity implements harness.Producer.
func (p standIn) Identity() harness.Identity { return harness.Identity{Type: string(p.kind)} }

// Produce makes the candidate. Texts, code and patches need no sandbox. The script of a solution runs
// in a sandbox, as a command harness would.
func (p standIn) Produce(ctx context.Context, e harness.Engine, r harness.Request) (harness.Result, error) {
	switch {
	case p.kind == Empty && r.Kind == compiler.CandidateWorkspace:
		return harness.Command{Args: []string{"sh", "-c", ":"}, TaskFile: "task.json"}.Produce(ctx, e, r)
	case p.kind == Empty:
		return harness.Result{}, nil
	case p.family.Solution != nil:
		return p.solve(ctx, e, r)
	case p.family.Reference != nil:
		if c := p.family.Reference(p.task); c.Text != "" || c.Patch != "" {
			return harness.Result{Candidate: c}, nil
		}
	}
	return missing("the task has no reference solution"), nil
}

// solve runs the script of a solution in a sandbox that has a copy of it at solutionMount.
func (p standIn) solve(ctx context.Context, e harness.Engine, r harness.Request) (result harness.Result, err error) {
	plan, err := p.family.Solution(p.task, p.pack)
	if err != nil {
		return harness.Result{}, fmt.Errorf("reference solution: %w", err)
	}
	if len(plan.Entries) == 0 {
		return missing("the task has no reference solution: eval.expected_state names no directory with a " + verifiers.SolutionScript), nil
	}
	vol, err := e.NewVolume(ctx, runtime.VolumeConfig{Bytes: r.WorkspaceBytes, Inodes: solutionInodes})
	if err != nil {
		return harness.Result{}, err
	}
	defer func() { err = errors.Join(err, vol.Close()) }()
	if err := plan.WriteDir(ctx, vol.Path(), workspace.WriteOptions{MaxBytes: r.WorkspaceBytes}); err != nil {
		return harness.Result{}, err
	}
	script := path.Join(verifiers.SolutionDir, verifiers.SolutionScript)
	if err := os.Chmod(filepath.Join(vol.Path(), script), 0o755); err != nil {
		return harness.Result{}, err
	}
	// The script's first line names its interpreter. Without such a line, bash is it.
	command := harness.Command{Args: []string{"bash", "-c", `"$0"`, "/" + script}, TaskFile: "task.json"}
	command.Files.Mounts = []runtime.Mount{{Source: filepath.Join(vol.Path(), verifiers.SolutionDir), Dest: solutionMount, Copy: true}}
	return command.Produce(ctx, e, r)
}

func missing(message string) harness.Result {
	return harness.Result{Failure: &candidate.Failure{Reason: "reference_missing", Phase: "producer", Message: message}}
}
