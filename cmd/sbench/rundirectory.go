package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/pack/harbor"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/site"
	"github.com/securebench/sbench/run/standin"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/images"
)

func isDirectory(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// isDirectory reports whether the command names a directory instead of a tester file.
func (cmd *runCmd) isDirectory() bool { return isDirectory(cmp.Or(cmd.File, cmd.Config)) }

// runDirectory runs a directory of tasks, which it imports, or a pack that was imported: it builds the
// images that are missing, and runs what can be run. What cannot is in the summary, with the reason.
func (cmd *runCmd) runDirectory(ctx context.Context, a *app) error {
	if err := checkRunnable(cmp.Or(cmd.File, cmd.Config)); err != nil {
		return err
	}
	if cmd.Harness == "" {
		return fmt.Errorf("%w: --harness says what runs: reference, empty, %s", errUsage, joined(harness.CLIs(), ", ", func(c harness.CLI) string { return c.Name }))
	}
	dir, left, err := cmd.packOf(ctx, a)
	if err != nil {
		return err
	}
	unbuilt, err := cmd.buildMissing(ctx, a, dir)
	if err != nil {
		return err
	}
	sub := *cmd
	sub.leftOut = append(left, unbuilt...)
	sub.File, sub.Config = filepath.Join(dir, importedTester), ""
	if standIn := standin.Kind(cmd.Harness); standIn != standin.Reference && standIn != standin.Empty {
		sub.File, sub.Harness = filepath.Join(dir, "tester-"+strings.ReplaceAll(cmd.Harness, "_", "-")+".yaml"), ""
		if !exists(sub.File) {
			return fmt.Errorf("%w: --harness %s: there is no such agent, and no file %s", errUsage, cmd.Harness, sub.File)
		}
	}
	source, err := sub.source()
	if err != nil {
		return err
	}
	return sub.runOne(ctx, a, source)
}

// checkRunnable returns an error for a directory without tasks, and for the directory of a pack that no import made: the
// author of such a pack has written a tester file.
func checkRunnable(dir string) error {
	switch {
	case !exists(filepath.Join(dir, "manifest.yaml")):
		_, err := harbor.Detect(dir)
		return marked(errUsage, err)
	case !exists(filepath.Join(dir, "provenance.json")):
		return fmt.Errorf("%w: %s is a pack that no import made: name its tester file, such as %s", errUsage, dir, filepath.Join(dir, "tester.yaml"))
	}
	return nil
}

// output returns the run's directory.
func (cmd *runCmd) output(id string) string {
	return cmp.Or(cmd.OutputDir, filepath.Join("runs", id+"-"+strings.ReplaceAll(cmd.Harness, "_", "-")))
}

// packOf returns the directory of the pack: the one that the command names or, beside the run's
// directory, the import of the tasks that it names. It also returns the tasks that cannot be imported.
func (cmd *runCmd) packOf(ctx context.Context, a *app) (dir string, left []run.LeftOut, err error) {
	source := cmp.Or(cmd.File, cmd.Config)
	left = []run.LeftOut{}
	if exists(filepath.Join(source, "manifest.yaml")) {
		return source, left, nil
	}
	format, err := harbor.Detect(source)
	if err != nil {
		return "", nil, marked(errUsage, err)
	}
	o := pack.Options{Source: source, Exclude: cmd.Exclude, Agents: harness.AgentTypes(), Skip: true}
	if cmd.OutputDir == "" {
		cmd.OutputDir = cmd.output(pack.DefaultID(format, source))
	}
	o.Out = filepath.Clean(cmd.OutputDir) + ".pack"
	if exists(o.Out) {
		if !cmd.Resume || !exists(filepath.Join(o.Out, "provenance.json")) {
			return "", nil, fmt.Errorf("%w: %s is there already: sbench run %s --harness %s runs that pack; to import the tasks again, remove it or name another --output-dir", errUsage, o.Out, o.Out, cmd.Harness)
		}
		if err := os.RemoveAll(o.Out); err != nil {
			return "", nil, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(o.Out), 0o755); err != nil {
		return "", nil, err
	}
	report, err := pack.Import(ctx, format, o)
	if err != nil {
		return "", nil, err
	}
	sayAll(a, "note", report.Notes)
	for _, p := range report.Left {
		task, file := harbor.TaskAt(source, p.File)
		reason := p.Message
		if file != "." {
			reason = file + ": " + reason
		}
		if i := slices.IndexFunc(left, func(l run.LeftOut) bool { return l.Task == task }); i >= 0 {
			left[i].Reason += "; " + reason
		} else {
			left = append(left, run.LeftOut{Task: task, Reason: reason})
		}
	}
	return o.Out, left, nil
}

// buildMissing builds the images of a pack that are not here. It returns the tasks that cannot run because a
// build failed.
func (cmd *runCmd) buildMissing(ctx context.Context, a *app, dir string) (left []run.LeftOut, err error) {
	all, err := pack.Images(dir)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Context = filepath.Join(dir, all[i].Context)
	}
	failed := map[string]error{}
	err = a.withClient(ctx, nil, func(c *host.Host) error {
		missing := slices.DeleteFunc(all, func(i pack.BuiltImage) bool {
			_, err := c.Images.Get(ctx, i.Ref, images.PullNever)
			return err == nil
		})
		if len(missing) == 0 {
			return nil
		}
		a.say(slog.LevelInfo, fmt.Sprintf("building %d image(s)", len(missing)))
		return site.Build{File: "Dockerfile", Allow: cmd.Allow, Output: a.stderr}.Images(ctx, c, missing, func(image pack.BuiltImage, _ runtime.Image, err error) error {
			if err != nil && ctx.Err() == nil {
				failed[image.Ref], err = err, nil
			}
			return err
		})
	})
	if err != nil || len(failed) == 0 {
		return nil, err
	}
	p, err := family.OpenPack(filepath.Join(dir, "manifest.yaml"), compiler.TasksFile(dir))
	if err != nil {
		return nil, err
	}
	for task, err := range p.Tasks() {
		if err != nil {
			return nil, err
		}
		for _, ref := range task.Images() {
			if failed[ref] != nil {
				left = append(left, run.LeftOut{Task: task.ID(), Reason: failed[ref].Error()})
				break
			}
		}
	}
	return left, nil
}
