package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/site"
	"github.com/securebench/sbench/run/standin"
	"github.com/securebench/sbench/runtime/host"
)

func isDirectory(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// runDirectory imports a directory of tasks, builds the images that are missing, and runs what can be run. What
// cannot is in the summary, with the reason.
func (cmd *runCmd) runDirectory(ctx context.Context, a *app, source string) (err error) {
	if _, err := cmd.testerArgs.source(); err != nil { // before anything is imported
		return err
	}
	format, err := site.TasksIn(source)
	if err != nil {
		return marked(errUsage, err)
	}
	if err := cmd.checkHarness(); err != nil {
		return err
	}
	sub := *cmd
	fileName := strings.ReplaceAll(cmd.Harness, "_", "-")
	sub.OutputDir = cmp.Or(cmd.OutputDir, filepath.Join("runs", pack.DefaultID(format, source)+"-"+fileName))
	dir := filepath.Clean(sub.OutputDir) + ".pack"
	o := pack.Options{Source: source, Out: dir, Tasks: cmd.Task, Exclude: cmd.Exclude, Agents: harness.AgentTypes(), Skip: true}
	notes, left, err := site.ImportTasks(ctx, format, o, cmd.Resume)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %s is there already: a tester file in it runs that pack; to import the tasks again, remove it or name another --output-dir", errUsage, dir)
	}
	if err != nil {
		return err
	}
	defer func() {
		if !exists(sub.OutputDir) { // nothing ran: the next try imports the tasks again
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	sayAll(a, "note", notes)
	sub.leftOut = append([]run.LeftOut{}, left...)
	output := &report.VisibleLines{To: a.stderr}
	err = a.withClient(ctx, nil, func(c *host.Host) error {
		unbuilt, err := site.Build{File: "Dockerfile", Allow: cmd.Allow, Output: output}.Missing(ctx, c, dir, func(n int) {
			a.say(slog.LevelInfo, fmt.Sprintf("building %d image(s)", n))
		})
		sub.leftOut = append(sub.leftOut, unbuilt...)
		return err
	})
	if err = errors.Join(err, output.Close()); err != nil {
		return err
	}
	sub.File, sub.Config = filepath.Join(dir, importedTester), ""
	if standIn := standin.Kind(cmd.Harness); standIn != standin.Reference && standIn != standin.Empty {
		sub.File, sub.Harness = filepath.Join(dir, "tester-"+fileName+".yaml"), ""
	}
	tester, err := sub.source()
	if err != nil {
		return err
	}
	return sub.runOne(ctx, a, tester)
}

// checkHarness checks --harness for a directory of tasks.
func (cmd *runCmd) checkHarness() error {
	agents := joined(harness.CLIs(), ", ", func(c harness.CLI) string { return c.Name })
	known := fmt.Sprintf("%s, %s, %s, %s", standin.Reference, standin.Empty, testerfile.HarnessCommand, agents)
	if cmd.Harness == "" || !slices.Contains(strings.Split(known, ", "), cmd.Harness) {
		return fmt.Errorf("%w: --harness says what runs, and has to be one of %s", errUsage, known)
	}
	ownCommand := func(set string) bool { return strings.HasPrefix(set, "harness.config.command=") }
	if cmd.Harness == testerfile.HarnessCommand && !slices.ContainsFunc(cmd.Set, ownCommand) {
		return fmt.Errorf("%w: --harness command runs what --set harness.config.command='COMMAND' says, in each task's workspace; the task is in $SBENCH_TASK_FILE", errUsage)
	}
	return nil
}
