package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/securebench"
	"github.com/securebench/sbench/compiler/validate"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/families"
)

// A Plan is what a run does, on whatever host. [NewPlan] makes and checks it. Afterwards only its
// fields Progress and Stop may be set.
type Plan struct {
	Inputs
	Options // with their effective values, except Jobs

	tasks []plannedTask
	shard *record.Shard // nil for all attempts
	whole bool          // no task of the pack is left out, except for the shard
}

// plannedTask is what a plan remembers of a task. The rest is read from its row again.
type plannedTask struct {
	id        string
	isolation runtime.Isolation // that the task asks for; "" for none
	line      int
	images    []imageRef
	oracle    string  // the key of the image in which its oracle needs a Python; "" for none
	inherits  bool    // it has the working directory of its image
	files     bool    // see compiler.Task.HasFiles
	cpus      float64 // cores that a sandbox may use
}

// imageRef is an image that a task names, at path of its row.
type imageRef struct {
	env  environment.Environment // its Image and Setup
	path string
}

// NewPlan reads every selected row and checks everything about a run except its images, which need a daemon.
// The error holds compiler.Problems with all that is wrong; to select nothing is one.
func NewPlan(ctx context.Context, in Inputs, o Options) (Plan, error) {
	p := Plan{Inputs: in, Options: o, whole: o.Limit == nil && o.Select == nil && len(o.LeftOut) == 0}
	p.LeftOut = slices.Clone(o.LeftOut)
	p.Attempts = max(o.Attempts, 1)
	var err error
	if p.Output, err = filepath.Abs(cmp.Or(o.Output, in.Tester.Run.OutputDir)); err != nil {
		return Plan{}, err
	}
	if err := p.read(ctx); err != nil {
		return Plan{}, err
	}
	p.deal()
	return p, nil
}

// read reads and checks every selected row.
func (p *Plan) read(ctx context.Context) error {
	files := validate.NewPrecheck(p.Pack, p.Tester)
	files.NoHarness = p.CandidatesExist
	var all compiler.Problems
	for task, err := range p.rows() {
		var problems compiler.Problems
		switch {
		case err == nil:
			problems = append(files.Task(task), p.stepProblems(task)...)
			if err := record.CheckResources(task.ResourceSummary()); err != nil {
				problems = append(problems, task.Problem("", "make public values assets", "%v", err))
			}
			for _, s := range task.Steps() {
				problems = append(problems, p.fetches(s)...)
			}
			if p.LeaveOut && len(problems) > 0 {
				p.leaveOut(task.ID(), problems[0].Message+" ("+problems[0].Hint+")")
				continue
			}
			all = append(all, problems...)
			p.tasks = append(p.tasks, p.planTask(task))
		case errors.As(err, &problems):
			all = append(all, problems...)
		default:
			return err
		}
	}
	if len(all) == 0 && len(p.tasks) == 0 && len(p.LeftOut) > 0 {
		all = append(all, p.noneLeft())
	}
	if len(all) == 0 && len(p.tasks) == 0 && p.Select != nil && (p.Limit == nil || *p.Limit > 0) {
		all = append(all, compiler.Problem{File: p.Pack.TasksPath, Message: "no task is selected (--task, and run.tasks of the tester file)"})
	}
	if len(all) > 0 {
		return all
	}
	return context.Cause(ctx)
}

func (p *Plan) leaveOut(id, reason string) {
	p.LeftOut, p.whole = append(p.LeftOut, LeftOut{id, reason}), false
	p.tasks = slices.DeleteFunc(p.tasks, func(t plannedTask) bool { return t.id == id })
}

func (p Plan) noneLeft() compiler.Problem {
	var reasons strings.Builder
	for _, l := range p.LeftOut {
		fmt.Fprintf(&reasons, "\n%s: %s", l.Task, l.Reason)
	}
	return compiler.Problem{File: p.Pack.TasksPath, Message: fmt.Sprintf("none of %d tasks can be prepared%s", len(p.LeftOut), reasons.String())}
}

// Isolations returns what tasks of the plan ask for, without repetition.
func (p Plan) Isolations() (all []runtime.Isolation) {
	for _, t := range p.tasks {
		if t.isolation != "" && !slices.Contains(all, t.isolation) {
			all = append(all, t.isolation)
		}
	}
	return all
}

func (p *Plan) planTask(task *compiler.Task) plannedTask {
	env := task.Environment()
	t := plannedTask{isolation: runtime.Isolation(env.Isolation), id: task.ID(), line: task.Line(), inherits: env.Workdir == "" && env.Image != "", files: task.HasFiles()}
	want := func(image string, setup []string, path string) {
		if image != "" {
			t.images = append(t.images, imageRef{environment.Environment{Image: image, Setup: setup, Isolation: env.Isolation}, path})
		}
	}
	if p.CandidatesExist && !families.For(task).Sandboxed { // no sandbox has the image
		t.inherits = false
	} else {
		want(env.Image, env.Setup, "$.environment.image")
	}
	if v := task.Verification(); v != nil {
		t.oracle = imageKey(env.Image, nil)
		if image, _ := p.verifierImage(task); image != "" {
			t.oracle = imageKey(image, nil)
		}
		if o, problems := securebench.ReadOracle(p.Pack.EvalRoot, v); len(problems) > 0 || !v.NeedsPython() && !strings.Contains(strings.Join(o.Command, " "), "{python}") {
			t.oracle = ""
		}
	}
	for _, s := range task.Steps() {
		image, field := p.verifierImage(s)
		want(image, nil, field)
		t.cpus = max(t.cpus, p.limits(s.Environment()).CPUs)
	}
	for i, s := range env.Sidecars {
		want(s.Image, nil, fmt.Sprintf("$.environment.sidecars[%d].image", i))
	}
	return t
}

// verifierImage returns the image of a task's verifier, and the path of its field; "" for the task's own.
func (p *Plan) verifierImage(task *compiler.Task) (image, field string) {
	if task.Verification() != nil {
		return p.Tester.Verification.OracleImage, "$.verification.oracle"
	}
	if s := task.Split(); s != nil {
		return s.Oracle.Image, "$.eval.split.oracle.image"
	}
	return task.Checker().Image, "$.eval.checker.image"
}

// fetches returns a problem if a task's checker fetches and the tester file does not say what it may reach.
func (p *Plan) fetches(task *compiler.Task) compiler.Problems {
	if !task.Checker().Network || p.Tester.Verification.AllowedDomains != nil {
		return nil
	}
	return compiler.Problems{task.Problem("$.eval.checker.network", "list the domains in verification.allowed_domains (--set), [] if the image has everything",
		"the checker fetches what it needs, and the tester file does not say what it may reach")}
}

// stepProblems returns a problem if a task with steps has candidates made elsewhere: only the last step's are kept.
func (p *Plan) stepProblems(task *compiler.Task) compiler.Problems {
	if !p.CandidatesExist || !task.Stepped() || p.original != nil {
		return nil
	}
	return compiler.Problems{task.Problem("", "leave it out (--task)", "task %q has steps: candidates that exist cannot be judged", task.ID())}
}

// rows yields the selected tasks, and errors for rows that cannot be read.
func (p Plan) rows() iter.Seq2[*compiler.Task, error] {
	return func(yield func(*compiler.Task, error) bool) {
		n := 0
		for task, err := range p.Pack.Tasks() {
			isTask := func(l LeftOut) bool { return l.Task == task.ID() }
			if err == nil && p.Select != nil && !p.Select(task.ID()) {
				continue
			}
			if err == nil && p.Limit != nil && n == *p.Limit {
				return
			}
			n++
			if err == nil && slices.ContainsFunc(p.LeftOut, isTask) {
				continue
			}
			if !yield(task, err) {
				return
			}
		}
	}
}

// cpus returns the most cores that a sandbox of any planned task may use.
func (p Plan) cpus() (most float64) {
	for _, t := range p.tasks {
		most = max(most, t.cpus)
	}
	return most
}

// defaultJobs returns how many attempts the cores can serve at the tasks' limits.
func (p Plan) defaultJobs() int {
	most := p.cpus()
	if most <= 0 {
		return 1
	}
	return max(1, int(float64(goruntime.NumCPU())/most))
}

// descriptors bounds the connections of each sandbox, so that no sandbox can use up the open files
// of this process. A connection takes two.
func descriptors(jobs int) proxy.EgressLimits {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return proxy.DefaultLimits()
	}
	const own, ownEach, least = 256, 64, 8
	limits := proxy.DefaultLimits()
	left := int64(min(limit.Cur, 1<<30)) - own - int64(jobs)*ownEach
	limits.Connections = min(limits.Connections, int(max(least, left/int64(jobs)/4)))
	return limits
}
