package main

import (
	"errors"

	"github.com/securebench/sbench/compiler"
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
	if errors.Is(err, workspace.ErrNoTask) {
		return marked(errUsage, err)
	}
	if err != nil {
		return err
	}
	in, err := workspace.Inspect(task, loaded.Pack, workspace.InspectOptions{Reveal: cmd.Reveal, TaskFile: loaded.Tester.Harness.Config.TaskFile})
	if err != nil {
		return err
	}
	network := networkOf(loaded.Tester, task)
	if cmd.JSON {
		return a.json(struct {
			workspace.Inspection
			Network string `json:"network,omitempty"`
		}{in, network})
	}
	if err := in.Write(a.stdout); err != nil || network == "" {
		return err
	}
	return a.printf("\nnetwork    %s\n", network)
}

// networkOf describes the network access of a task with "network: none"; "" for any other task.
func networkOf(tester *testerfile.File, task *compiler.Task) string {
	switch {
	case !task.Environment().NetworkNone:
		return ""
	case tester.Harness.Type == testerfile.HarnessCommand && tester.Harness.Config.Provider == nil:
		return "none: nothing leaves the harness's sandbox"
	}
	return "none except the agent's requests to its provider, through the relay"
}
