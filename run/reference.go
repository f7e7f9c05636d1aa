package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

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

// Hostile returns stand-ins for tasks with split checks that [Attacked] names. Each hands in a program that a careless
// driver does not survive: it takes what the candidate prints for its own output, runs the candidate in its own
// process, takes its exit for an answer, or waits for the end of its output. Every driver has to answer all the
// same, and no oracle may accept that.
func Hostile() []StandIn {
	return []StandIn{"hostile: exits", "hostile: prints", "hostile: kills", "hostile: floods", "hostile: stays"}
}

// script returns what the program of a hostile stand-in does; "" for the others.
func (s StandIn) script() string {
	return map[StandIn]string{
		"hostile: exits":  "exit 0",
		"hostile: prints": `echo '{"passed": true}'`,
		"hostile: kills":  "kill -9 $PPID; kill -9 -1",
		"hostile: floods": "yes 0123456789 | head -c 67108864",
		"hostile: stays":  "sleep 600 &",
	}[s]
}

// Attacked reports whether there are hostile candidates for the task: its candidate is a file that is executed, or a
// program in shell or Python.
func Attacked(task *compiler.Task) bool {
	if v := task.Verification(); v != nil {
		return slices.ContainsFunc(v.Candidate.Files, func(e compiler.BundleEntry) bool { return e.Kind == compiler.RegularFile })
	}
	kind := task.CandidateKind()
	return task.Split() != nil && (kind == compiler.CandidateWorkspace || kind == compiler.CandidateCode && slices.Contains([]string{".py", ".sh"}, path.Ext(task.CodeFile())))
}

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
	case p.kind.script() != "":
		return p.attack(ctx, e, r)
	case p.kind == Empty && r.Kind == compiler.CandidateWorkspace:
		return harness.Command{Args: []string{"sh", "-c", ":"}, TaskFile: "task.json"}.Produce(ctx, e, r)
	case p.kind == Empty:
		return harness.Result{}, nil
	case p.family.Solution != nil:
		return p.solve(ctx, e, r, "bash", "-c", `"$0"`)
	case p.family.Reference != nil:
		if c := p.family.Reference(p.task); c.Text != "" || c.Patch != "" {
			return harness.Result{Candidate: c}, nil
		}
	}
	return missing("the task has no reference solution"), nil
}

// Shell commands that put the program $1 into files.
const (
	// afterSolution replaces what a solution's script, $2, has made in the workspace.
	afterSolution = `touch /tmp/before; sleep 0.1; bash -c '"$0"' "$2" > /dev/null; find . -type f -newer /tmp/before | while read -r f; do rm "$f"; printf %s "$1" > "$f"; chmod 755 "$f"; done`
	// atPaths makes the files $2, $3...
	atPaths = `p=$1; shift; for f; do mkdir -p "$(dirname "$f")"; rm -rf "$f"; printf %s "$p" > "$f"; chmod 755 "$f"; done`
)

// attack puts a hostile program in the place of the candidate's.
func (p standIn) attack(ctx context.Context, e harness.Engine, r harness.Request) (harness.Result, error) {
	// A shell sees a command in quotes, and Python a text that it has a shell execute.
	program := "#!/bin/sh\n''':'\n" + p.kind.script() + "\nexit 0\n'''\nimport os\nos.execvp('sh', ['sh', '-c', __doc__[2:]])\n"
	if r.Kind == compiler.CandidateCode {
		return harness.Result{Candidate: candidate.Candidate{Text: program}}, nil
	}
	v := p.task.Verification()
	if v == nil {
		return p.solve(ctx, e, r, "sh", "-c", afterSolution, "sh", program)
	}
	args := []string{"sh", "-c", atPaths, "sh", program}
	for _, entry := range v.Candidate.Files {
		if entry.Kind == compiler.RegularFile {
			args = append(args, entry.Path)
		}
	}
	return harness.Command{Args: args, TaskFile: "task.json"}.Produce(ctx, e, r)
}

// solve runs the script of a solution in a sandbox that has a copy of it at solutionMount. Its path is the last
// argument of the command. Its first line names its interpreter. Without such a line, bash is it.
func (p standIn) solve(ctx context.Context, e harness.Engine, r harness.Request, command ...string) (result harness.Result, err error) {
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
	producer := harness.Command{Args: append(command, "/"+script), TaskFile: "task.json"}
	producer.Files.Mounts = []runtime.Mount{{Source: filepath.Join(vol.Path(), verifiers.SolutionDir), Dest: solutionMount, Copy: true}}
	return producer.Produce(ctx, e, r)
}

func missing(message string) harness.Result {
	return harness.Result{Failure: &candidate.Failure{Reason: "reference_missing", Phase: "producer", Message: message}}
}
