package main

import (
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/workspace"
)

type inspectCmd struct {
	Config string `arg:"" help:"Tester file."`
	Task   string `arg:"" help:"Id of the task."`
	setFlag
	Reveal bool `help:"Show values that are not public."`
	jsonFlag
}

func (cmd *inspectCmd) Run(a *app) error {
	source, err := testerFlags{cmd.Config, cmd.setFlag}.source()
	if err != nil {
		return err
	}
	loaded, err := loadTester(a, source)
	if err != nil {
		return err
	}
	task, err := workspace.FindTask(loaded.Pack, cmd.Task)
	if err != nil {
		return err
	}
	h := loaded.Tester.Harness
	in, err := workspace.Inspect(task, loaded.Pack, workspace.InspectOptions{
		Reveal: cmd.Reveal, TaskFile: h.Config.TaskFile, Provider: h.Type != testerfile.HarnessCommand || h.Config.Provider != nil,
	})
	if err != nil {
		return err
	}
	if cmd.JSON {
		return a.json(in)
	}
	return in.Write(a.stdout)
}
