package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
)

// plan is the result of preflight.
type plan struct {
	tasks  int
	images map[string]runtime.Image // by imageKey
	cpus   float64                  // the most that a task may use
	shard  *record.Shard            // nil for all attempts
	whole  bool                     // no task of the pack is left out, except for the shard
}

// tasks yields the selected tasks, and errors for rows that cannot be read.
func (c Config) tasks() iter.Seq2[*compiler.Task, error] {
	return func(yield func(*compiler.Task, error) bool) {
		n := 0
		for task, err := range c.Pack.Tasks() {
			if err == nil && c.Select != nil && !c.Select(task.ID()) {
				continue
			}
			if err == nil && c.Limit != nil && n == *c.Limit {
				return
			}
			n++
			if !yield(task, err) {
				return
			}
		}
	}
}

// Check checks everything about a run that needs no daemon, which is all but its images. The
// error holds compiler.Problems, which name everything that is wrong.
func Check(ctx context.Context, in Inputs, o Options) error {
	_, err := preflight(ctx, Config{Inputs: in, Options: o})
	return err
}

// preflight reads every selected row, checks its files and, unless cfg.Images is nil,
// resolves its image. It returns all problems together as compiler.Problems, including that
// a selection selects nothing. If the daemon cannot be reached, it returns that error at once.
func preflight(ctx context.Context, cfg Config) (plan, error) {
	p := plan{images: map[string]runtime.Image{}}
	files := cfg.Pack.NewPrecheck(cfg.Tester)
	defer files.Close()
	files.NoHarness = cfg.Existing
	var all compiler.Problems
	for task, err := range cfg.tasks() {
		if err == nil {
			p.tasks++
			p.cpus = max(p.cpus, cfg.limits(task.Environment()).CPUs)
			all = append(all, files.Task(task)...)
			if task.Checker().Network && cfg.Tester.Verification.AllowedDomains == nil {
				all = append(all, compiler.Problem{
					File: cfg.Pack.TasksPath, Line: task.Line(), Path: "$.eval.checker.network", Message: "the checker fetches what it needs, and the tester file does not say what it may reach",
					Hint: "list the domains in verification.allowed_domains (--set), [] if the image has everything, or import the task with --pytest",
				})
			}
			err = p.resolve(ctx, cfg, task)
		}
		var problems compiler.Problems
		if err != nil && !errors.As(err, &problems) {
			return p, err
		}
		all = append(all, problems...)
	}
	if len(all) == 0 && p.tasks == 0 && cfg.Shard == nil && cfg.Select != nil && (cfg.Limit == nil || *cfg.Limit > 0) {
		all = append(all, compiler.Problem{File: cfg.Pack.TasksPath, Message: "no task is selected (--task, and run.tasks of the tester file)"})
	}
	if len(all) > 0 {
		return p, all
	}
	return p, context.Cause(ctx)
}

// resolve finds the task's images.
func (p plan) resolve(ctx context.Context, cfg Config, task *compiler.Task) error {
	env := task.Environment()
	err := p.resolveOne(ctx, cfg, task, env, "$.environment.image")
	if _, misplaced := p.placed(task); err == nil && misplaced != nil {
		err = compiler.Problems{{File: cfg.Pack.TasksPath, Line: task.Line(), Path: "$.environment.workdir", Message: misplaced.Error()}}
	}
	if own := task.Checker().Image; err == nil && own != "" {
		err = p.resolveOne(ctx, cfg, task, compiler.Environment{Image: own}, "$.eval.checker.image")
	}
	for i, s := range env.Sidecars {
		if err == nil {
			err = p.resolveOne(ctx, cfg, task, compiler.Environment{Image: s.Image}, fmt.Sprintf("$.environment.sidecars[%d].image", i))
		}
	}
	return err
}

// resolveOne finds the image of env, if it has one; path is where the row names it.
func (p plan) resolveOne(ctx context.Context, cfg Config, task *compiler.Task, env compiler.Environment, path string) error {
	key := imageKey(env)
	if _, known := p.images[key]; known || env.Image == "" || cfg.Images == nil {
		return nil
	}
	img, err := cfg.Images.Resolve(ctx, env)
	if errors.Is(err, runtime.ErrUnavailable) || ctx.Err() != nil {
		return err
	}
	p.images[key] = img // also if there is none, so that it is reported only once
	if errors.Is(err, harness.ErrPreparation) {
		path = "$.environment.setup"
	}
	if err != nil {
		return compiler.Problems{{File: cfg.Pack.TasksPath, Line: task.Line(), Path: path, Message: err.Error()}}
	}
	return nil
}

// image returns the image of a task that was resolved.
func (p plan) image(task *compiler.Task) runtime.Image { return p.images[imageKey(task.Environment())] }

// checkerImage returns the image of a task's checker, if it has one of its own.
func (p plan) checkerImage(task *compiler.Task) runtime.Image {
	return p.images[imageKey(compiler.Environment{Image: task.Checker().Image})]
}

// placed returns the task with the working directory of its image, if it has none of its own.
func (p plan) placed(task *compiler.Task) (*compiler.Task, error) {
	return task.In(p.image(task).Workdir)
}

// sidecars returns the sidecars of a task whose images were resolved.
func (p plan) sidecars(task *compiler.Task) []service.Sidecar {
	var all []service.Sidecar
	for _, s := range task.Environment().Sidecars {
		image := p.images[imageKey(compiler.Environment{Image: s.Image})]
		all = append(all, service.Sidecar{
			Service: service.Service{Args: sidecarArgs(image, s), Ready: s.Ready.Args(), Wait: cmp.Or(s.Timeout, service.DefaultWait)},
			Name:    s.Name, Image: image, Env: compiler.Environ(s.Env),
		})
	}
	return all
}

// sidecarArgs returns the command line of a sidecar.
func sidecarArgs(image runtime.Image, s compiler.Sidecar) []string {
	entrypoint, command := image.Entrypoint, image.Command
	if !s.Entrypoint.IsZero() {
		entrypoint, command = s.Entrypoint.Args(), nil
	}
	if !s.Command.IsZero() {
		command = s.Command.Args()
	}
	return slices.Concat(entrypoint, command)
}

// sidecarImages returns the digests of the images of a task's sidecars, by their names.
func (p plan) sidecarImages(task *compiler.Task) map[string]string {
	all := map[string]string{}
	for _, s := range p.sidecars(task) {
		all[s.Name] = s.Image.Digest
	}
	return all
}

// imageKey tells images apart that tasks use.
func imageKey(env compiler.Environment) string {
	return fmt.Sprintf("%s %q", env.Image, env.Setup)
}
