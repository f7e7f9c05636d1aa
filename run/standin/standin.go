// Package standin produces candidates in the place of a harness, so that a pack can be tried without an agent.
package standin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/securebench"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
)

// A Kind says which candidate a stand-in hands in. The zero Kind means no stand-in.
type Kind string

// The kinds for every task. A pack measures something if the reference passes every task and the
// empty candidate passes none.
const (
	// Reference hands in each task's own solution. A task without one fails, with the
	// reason reference_missing.
	Reference Kind = "reference"
	// Empty hands in nothing: no text, no code, no change.
	Empty Kind = "empty"
)

func scripts() map[Kind]string {
	return map[Kind]string{
		"hostile: exits":  "exit 0",
		"hostile: prints": `echo '{"passed": true}'`,
		"hostile: kills":  "kill -9 $PPID; kill -9 -1",
		"hostile: floods": "yes 0123456789 | head -c 67108864",
		"hostile: stays":  "sleep 600 &",
	}
}

// Hostile returns the kinds for tasks that [Attacked] names: each hands in a program that a careless driver of
// a split check does not survive. Every driver has to answer all the same, and no oracle may accept the answer.
func Hostile() []Kind { return slices.Sorted(maps.Keys(scripts())) }

// Attacked reports whether there are hostile candidates for the task: the task has a split check, and its candidate
// is a file that is executed, or a program in shell or Python.
func Attacked(task *compiler.Task) bool {
	if v := task.Verification(); v != nil {
		return slices.ContainsFunc(v.Candidate.Files, func(e securebench.Entry) bool { return e.Kind == securebench.RegularFile })
	}
	kind := task.Family().CandidateKind
	return task.Split() != nil && (kind == compiler.CandidateWorkspace || kind == compiler.CandidateCode && slices.Contains([]string{".py", ".sh"}, path.Ext(task.AgentView().CodeFile)))
}

const (
	solutionMount  = "/" + verifiers.SolutionDir // where the files of a reference solution are in the sandbox
	solutionInodes = 1 << 14                     // of their volume
)

// A Producer is the stand-in for a task's harness.
type Producer struct {
	Kind   Kind
	Family verifiers.Family
	Task   *compiler.Task
	Pack   *compiler.Pack
}

// Identity implements harness.Producer.
func (p Producer) Identity() harness.Identity { return harness.Identity{Type: string(p.Kind)} }

// Produce makes the candidate. Texts, code and patches need no sandbox. The script of a solution runs
// in a sandbox, as a command harness would.
func (p Producer) Produce(ctx context.Context, e harness.Engine, r harness.Request) (harness.Result, error) {
	switch {
	case scripts()[p.Kind] != "":
		return p.attack(ctx, e, r)
	case p.Kind == Empty && r.Kind == compiler.CandidateWorkspace:
		return harness.Command{Args: []string{"sh", "-c", ":"}, TaskFile: "task.json"}.Produce(ctx, e, r)
	case p.Kind == Empty:
		return harness.Result{}, nil
	case p.Family.Solution != nil:
		return p.solve(ctx, e, r, "bash", "-c", `"$0"`)
	case p.Family.Reference != nil:
		if c := p.Family.Reference(p.Task); c.Text != "" || c.Patch != "" {
			return harness.Result{Candidate: c}, nil
		}
	}
	return missing("the task has no reference solution"), nil
}

// Shell commands that put the program $1 into files.
const (
	// afterSolution runs a solution's script, $2, and replaces each file that the script has made in the workspace.
	afterSolution = `touch /tmp/before; sleep 0.1; bash -c '"$0"' "$2" > /dev/null; find . -type f -newer /tmp/before | while read -r f; do rm "$f"; printf %s "$1" > "$f"; chmod 755 "$f"; done`
	// atPaths makes the files $2, $3...
	atPaths = `p=$1; shift; for f; do mkdir -p "$(dirname "$f")"; rm -rf "$f"; printf %s "$p" > "$f"; chmod 755 "$f"; done`
)

// attack hands in a hostile program in the place of the task's solution.
func (p Producer) attack(ctx context.Context, e harness.Engine, r harness.Request) (harness.Result, error) {
	// A shell sees a command in quotes, and Python a text that it has a shell execute.
	program := "#!/bin/sh\n''':'\n" + scripts()[p.Kind] + "\nexit 0\n'''\nimport os\nos.execvp('sh', ['sh', '-c', __doc__[2:]])\n"
	if r.Kind == compiler.CandidateCode {
		return harness.Result{Candidate: candidate.Candidate{Text: program}}, nil
	}
	v := p.Task.Verification()
	if v == nil {
		return p.solve(ctx, e, r, "sh", "-c", afterSolution, "sh", program)
	}
	args := []string{"sh", "-c", atPaths, "sh", program}
	for _, entry := range v.Candidate.Files {
		if entry.Kind == securebench.RegularFile {
			args = append(args, entry.Path)
		}
	}
	return harness.Command{Args: args, TaskFile: "task.json"}.Produce(ctx, e, r)
}

// solve runs command in a sandbox with a copy of the solution at solutionMount, and adds the path of the
// solution's script. bash executes the script, because its first line may name no interpreter.
func (p Producer) solve(ctx context.Context, e harness.Engine, r harness.Request, command ...string) (result harness.Result, err error) {
	plan, err := p.Family.Solution(p.Task, p.Pack)
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
	if err := plan.WriteDir(ctx, vol.Path(), r.WorkspaceBytes); err != nil {
		return harness.Result{}, err
	}
	script := path.Join(verifiers.SolutionDir, verifiers.SolutionScript)
	if err := os.Chmod(filepath.Join(vol.Path(), script), 0o755); err != nil {
		return harness.Result{}, err
	}
	producer := harness.Command{Args: append(command, "/"+script), TaskFile: "task.json"}
	producer.Files.Mounts = []runtime.Mount{{Source: filepath.Join(vol.Path(), verifiers.SolutionDir), Dest: solutionMount, Copy: true, Chown: true}}
	return producer.Produce(ctx, e, r)
}

func missing(message string) harness.Result {
	return harness.Result{Failure: &candidate.Failure{Reason: "reference_missing", Phase: "producer", Message: message}}
}
