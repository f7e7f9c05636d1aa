package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
)

// images are the images of a run, by imageKey.
type images map[string]runtime.Image

// resolve finds the images of the planned tasks. The error is the daemon's, or holds compiler.Problems for missing
// images, unless tasks without one are left out.
func (c *config) resolve(ctx context.Context) (images, error) {
	found, failed := images{}, map[string]error{}
	var missing compiler.Problems
	for _, task := range slices.Clone(c.tasks) {
		problems, err := c.resolveTask(ctx, task, found, failed)
		switch {
		case err != nil:
			return nil, err
		case c.LeaveOut && len(problems) > 0:
			c.leaveOut(task.id, problems[0].Message)
			continue
		}
		for _, p := range problems {
			if !slices.ContainsFunc(missing, func(m compiler.Problem) bool { return m.Message == p.Message && m.Path == p.Path }) {
				missing = append(missing, p)
			}
		}
	}
	if len(c.tasks) == 0 && len(c.LeftOut) > 0 {
		missing = append(missing, c.noneLeft())
	}
	if len(missing) > 0 {
		return nil, missing
	}
	return found, context.Cause(ctx)
}

// resolveTask adds the images of a task to found, and what was wrong with an image to failed.
func (c *config) resolveTask(ctx context.Context, task plannedTask, found images, failed map[string]error) (problems compiler.Problems, err error) {
	problem := func(path string, err error) {
		problems = append(problems, compiler.Problem{File: c.Pack.TasksPath, Line: task.line, Path: path, Message: err.Error()})
	}
	for _, w := range task.images {
		key := imageKey(w.env.Image, w.env.Setup)
		if _, known := found[key]; !known {
			img, err := c.Images.Resolve(ctx, w.env)
			if unavailable(ctx, err) {
				return nil, err
			}
			found[key], failed[key] = img, err
		}
		switch err := failed[key]; {
		case errors.Is(err, harness.ErrPreparation):
			problem("$.environment.setup", err)
		case err != nil:
			problem(w.path, err)
		}
	}
	if task.oracle != "" && len(problems) == 0 {
		const python = "python of "
		if _, known := failed[python+task.oracle]; !known {
			err := c.requirePython(ctx, found[task.oracle])
			if unavailable(ctx, err) {
				return nil, err
			}
			failed[python+task.oracle] = err
		}
		if err := failed[python+task.oracle]; err != nil {
			problem("$.verification.oracle", err)
		}
	}
	if task.inherits && len(problems) == 0 {
		env := task.images[0].env
		if _, err := (environment.Environment{}).InImage(found[imageKey(env.Image, env.Setup)].Workdir, task.files); err != nil {
			problem("$.environment.workdir", err)
		}
	}
	return problems, nil
}

// unavailable reports whether an error says nothing about an image.
func unavailable(ctx context.Context, err error) bool {
	return err != nil && (errors.Is(err, runtime.ErrUnavailable) || ctx.Err() != nil)
}

// inImage returns the task with the working directory of its image, if it has none of its own.
func (found images) inImage(task *compiler.Task) (*compiler.Task, error) {
	return task.InImage(found.image(task).Workdir)
}

func (found images) image(task *compiler.Task) runtime.Image {
	return found[imageKey(task.Environment().Image, task.Environment().Setup)]
}

// checkerImage returns the image of a task's checker or oracle, if it has one of its own.
func (c config) checkerImage(found images, task *compiler.Task) runtime.Image {
	image, _ := c.verifierImage(task)
	return found[imageKey(image, nil)]
}

// requirePython returns an error unless the image has a python3.
func (c config) requirePython(ctx context.Context, image runtime.Image) error {
	view, err := c.Engine.View(ctx, image)
	if err != nil {
		return err
	}
	defer func() { _ = view.Close() }()
	for _, dir := range []string{"usr/local/bin", "usr/bin", "bin", "opt/conda/bin", "opt/venv/bin"} {
		if _, err := view.Root().Lstat(path.Join(dir, "python3")); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the oracle runs in the image %s, which has no python3: set verification.oracle_image of the tester file to one that has", image.Ref)
}

// sidecars returns the sidecars of a task whose images were resolved.
func (found images) sidecars(task *compiler.Task) []service.Sidecar {
	var all []service.Sidecar
	for _, s := range task.Environment().Sidecars {
		image := found[imageKey(s.Image, nil)]
		all = append(all, service.Sidecar{Service: sidecarService(image, s), Names: s.Names(), Image: image, Env: environment.Environ(s.Env)})
	}
	return all
}

// sidecarService returns the process of a sidecar, with the image's entry point, command and health check where the sidecar
// has none of its own.
func sidecarService(image runtime.Image, s environment.Sidecar) service.Service {
	entrypoint, command, ready := image.Entrypoint, image.Command, image.Health
	if !s.Entrypoint.IsZero() {
		entrypoint, command = s.Entrypoint.Args(), nil
	}
	if !s.Command.IsZero() {
		command = s.Command.Args()
	}
	if !s.Ready.IsZero() {
		ready = s.Ready.Args()
	}
	return service.Service{Args: slices.Concat(entrypoint, command), Ready: ready, Wait: cmp.Or(s.Timeout, image.HealthWait)}
}

func (found images) sidecarImages(task *compiler.Task) map[string]string {
	all := map[string]string{}
	for _, s := range found.sidecars(task) {
		all[s.Names[0]] = s.Image.Digest
	}
	return all
}

// imageKey returns a key that differs for different images or set-up commands.
func imageKey(image string, setup []string) string {
	return fmt.Sprintf("%s %q", image, setup)
}
