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

// The stand-ins. A pack measures something if the reference passes everywhere
// and the empty candidate nowhere.
const (
	// Reference hands in each task's own solution. A task without one fails, with the
	// reason reference_missing.
	Reference StandIn = "reference"
	// Empty hands in nothing: no text, no code, no change.
	Empty StandIn = "empty"
)

// The reference solution of a terminal task.
const (
	solutionMount  = "/solution"      // where it is in the sandbox
	solutionScript = "solve.sh"       // what is executed
	solutionField  = "expected_state" // the field that refers to it
	solutionInodes = 1 << 14
)

// standIn is the producer of a task's stand-in.
type standIn struct {
	kind StandIn
	task *compiler.Task
	pack *compiler.Pack
}

// Produce makes the candidate. Texts, code and patches need no sandbox; a terminal task's
// solution runs in one, as a command harness would.
func (p standIn) Produce(ctx context.Context, e harness.Engine, r harness.Request) (harness.Result, error) {
	command := harness.Command{Args: []string{"sh", "-c", ":"}, TaskFile: "task.json"}
	switch {
	case r.Kind == compiler.CandidateWorkspace && p.kind == Empty:
		return command.Produce(ctx, e, r)
	case r.Kind == compiler.CandidateWorkspace:
		command.Args = []string{"bash", path.Join(solutionMount, solutionScript)}
		return p.solve(ctx, e, r, command)
	case p.kind == Empty:
		return harness.Result{}, nil
	}
	c, ok := solutionOf(p.task)
	if !ok {
		return missing("the task has no reference solution"), nil
	}
	return harness.Result{Candidate: c}, nil
}

// solve runs the command in a sandbox that has a terminal task's solution, read-only, at
// solutionMount.
func (p standIn) solve(ctx context.Context, e harness.Engine, r harness.Request, command harness.Command) (result harness.Result, err error) {
	plan, err := solutionPlan(p.task, p.pack)
	if err != nil {
		return harness.Result{}, fmt.Errorf("reference solution: %w", err)
	}
	if len(plan.Entries) == 0 {
		return missing("the task has no script " + solutionScript + " as its reference solution"), nil
	}
	vol, err := e.NewVolume(ctx, runtime.VolumeConfig{Bytes: r.WorkspaceBytes, Inodes: solutionInodes})
	if err != nil {
		return harness.Result{}, err
	}
	defer func() { err = errors.Join(err, vol.Close()) }()
	if err := plan.WriteDir(ctx, vol.Path(), workspace.WriteOptions{MaxBytes: r.WorkspaceBytes}); err != nil {
		return harness.Result{}, err
	}
	command.Files.Mounts = []runtime.Mount{{Source: filepath.Join(vol.Path(), path.Base(solutionMount)), Dest: solutionMount}}
	return command.Produce(ctx, e, r)
}

func missing(message string) harness.Result {
	return harness.Result{Failure: &candidate.Failure{Reason: "reference_missing", Phase: "producer", Message: message}}
}

// solutionOf returns the right answer of a task whose candidate is text, code or a patch.
func solutionOf(task *compiler.Task) (c candidate.Candidate, ok bool) {
	if eval, is := task.MultipleChoice(); is {
		if answers := eval.Answers.Reveal(); len(answers) > 0 {
			c.Text = answers[0].Text
			if answers[0].Choice >= 0 {
				c.Text = string(rune('A' + answers[0].Choice))
			}
		}
	} else if eval, is := task.ShortAnswer(); is {
		c.Text = firstOf(eval.Accepted.Reveal())
	} else if eval, is := task.FreeResponse(); is {
		if c.Text = eval.ReferenceAnswer.Reveal(); c.Text == "" {
			c.Text = firstOf(eval.Rubric.Reveal().AcceptedAnswers)
		}
	} else if eval, is := task.CodeCompletion(); is {
		c.Text = verifiers.Solution(eval)
	} else if eval, is := task.RepoPatch(); is {
		c.Patch = eval.GoldPatch.Reveal()
	}
	return c, c.Text != "" || c.Patch != ""
}

func firstOf(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// solutionPlan finds a terminal task's solution: the directory or the script that its
// hidden expected_state refers to. The plan is empty if there is none.
func solutionPlan(task *compiler.Task, pack *compiler.Pack) (workspace.Plan, error) {
	all, err := workspace.PlanEvaluator(task, pack)
	if err != nil {
		return workspace.Plan{}, err
	}
	var plan workspace.Plan
	for _, e := range all.Entries {
		if e.Lane != compiler.HiddenLane || e.Name != solutionField || e.Source.Root == "" {
			continue
		}
		e.Dest = path.Base(solutionMount)
		script := path.Join(e.Source.Path, solutionScript)
		if !e.Source.Dir {
			e.Dest, script = path.Join(e.Dest, solutionScript), e.Source.Path
		}
		if info, err := os.Lstat(filepath.Join(e.Source.Root, script)); err == nil && info.Mode().IsRegular() && path.Ext(script) == ".sh" {
			plan.Entries = append(plan.Entries, e)
		}
	}
	return plan, nil
}
