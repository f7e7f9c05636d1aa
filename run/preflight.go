package run

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/workspace"
)

// plan is the result of preflight.
type plan struct {
	tasks  int
	images map[string]runtime.Image // by the reference in the pack
	cpus   float64                  // the most that a task may use
}

// stream yields the selected tasks, and the errors of rows that cannot be read.
func (p plan) stream(cfg Config) iter.Seq2[*compiler.Task, error] {
	return func(yield func(*compiler.Task, error) bool) {
		n := 0
		for task, err := range cfg.Pack.Tasks() {
			if err == nil && cfg.Select != nil && !cfg.Select(task.ID()) {
				continue
			}
			if err == nil && cfg.Limit > 0 && n == cfg.Limit {
				return
			}
			n++
			if !yield(task, err) {
				return
			}
		}
	}
}

// preflight reads every selected row, plans its files and resolves its image, and returns
// all problems together as compiler.Problems. That there is nothing to run is one. An unreachable daemon is not a problem of
// the files: its error is returned at once.
func preflight(ctx context.Context, cfg Config) (plan, error) {
	p := plan{images: map[string]runtime.Image{}}
	var all compiler.Problems
	for task, err := range p.stream(cfg) {
		if err == nil {
			p.tasks++
			p.cpus = max(p.cpus, cfg.limits(task.Environment()).CPUs)
			err = p.check(ctx, cfg, task)
		}
		var problems compiler.Problems
		switch {
		case err == nil:
		case errors.As(err, &problems):
			all = append(all, problems...)
		default:
			return p, err
		}
	}
	if len(all) == 0 && p.tasks == 0 {
		all = append(all, compiler.Problem{File: cfg.Pack.TasksPath, Message: cfg.nothing()})
	}
	if len(all) > 0 {
		return p, all
	}
	return p, nil
}

// nothing says why there is no task.
func (c Config) nothing() string {
	if c.Select == nil {
		return "the pack has no tasks"
	}
	return "none of the pack's tasks is selected (--task, and run.tasks of the tester file)"
}

func (p plan) check(ctx context.Context, cfg Config, task *compiler.Task) error {
	var all compiler.Problems
	add := func(path, message string) {
		all = append(all, compiler.Problem{File: cfg.Tester.Benchmark.Tasks, Line: task.Line(), Path: path, Message: message})
	}
	known := func(p compiler.Problem) bool { return slices.Contains(all, p) } // the plans share the public files
	for _, plan := range []func(*compiler.Task, *compiler.Pack) (workspace.Plan, error){workspace.PlanAgent, workspace.PlanTestSandbox, workspace.PlanChecker} {
		if _, err := plan(task, cfg.Pack); err != nil {
			problems := compiler.Problems{{File: cfg.Tester.Benchmark.Tasks, Line: task.Line(), Path: "$", Message: err.Error()}}
			_ = errors.As(err, &problems)
			all = append(all, slices.DeleteFunc(problems, known)...)
		}
	}
	if agent, err := workspace.PlanAgent(task, cfg.Pack); err == nil {
		file := cfg.Tester.Harness.Config.TaskFile
		if e, ok := agent.Conflict(file); ok && file != "" {
			add("$.assets", fmt.Sprintf("%q collides with harness.config.task_file %q", e.Dest, file))
		}
	}
	environmentProblems(cfg, task, add)
	ref := task.Environment().Image
	if ref == "" {
		add("$.environment.image", "missing: the harness runs in the task's image")
	} else if _, known := p.images[ref]; !known {
		img, err := cfg.Images.Resolve(ctx, ref)
		if errors.Is(err, runtime.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			add("$.environment.image", err.Error())
		}
		p.images[ref] = img // even if there is none: that is reported only once
	}
	if len(all) > 0 {
		return all
	}
	return nil
}

// environmentProblems reports settings with which no sandbox could be made.
func environmentProblems(cfg Config, task *compiler.Task, add func(path, message string)) {
	env := task.Environment()
	if takenWorkdir(env.Workdir) {
		add("$.environment.workdir", fmt.Sprintf("%q is taken by the sandbox itself", env.Workdir))
	}
	limits := cfg.limits(env)
	for _, l := range []struct {
		path string
		ok   bool
		want string
	}{
		{"$.environment.resources.memory", limits.Memory >= minMemory, "at least 16 MiB"},
		{"$.environment.resources.cpus", limits.CPUs >= 0.01 && limits.CPUs <= 4096, "between 0.01 and 4096"},
		{"$.environment.resources.pids", limits.Pids >= 1 && limits.Pids <= maxPids, "between 1 and 4194304"},
	} {
		if !l.ok {
			add(l.path, "must be "+l.want)
		}
	}
}

// takenWorkdir reports whether every sandbox mounts dir or needs it unchanged.
func takenWorkdir(dir string) bool {
	if slices.Contains([]string{"/", "/tmp", "/run", "/etc", "/opt"}, dir) {
		return true
	}
	return slices.ContainsFunc([]string{"/proc", "/sys", "/dev", compiler.CheckerMount, "/logs", "/opt/securebench", "/opt/sbench", "/sbench", "/.sbench"}, func(top string) bool {
		return dir == top || strings.HasPrefix(dir, top+"/")
	})
}

const maxPids = 1 << 22 // PID_MAX_LIMIT of the kernel

const minMemory = 16 << 20 // bytes; the OCI runtime itself needs some of it
