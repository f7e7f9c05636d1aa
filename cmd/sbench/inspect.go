package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/hidden"
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
	if err := printInspection(a.stdout, in); err != nil || network == "" {
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

func printInspection(w io.Writer, in workspace.Inspection) error {
	var b strings.Builder
	fmt.Fprintf(&b, "task %q, %s, line %d, candidate: %s\n\n", in.TaskID, in.Family, in.Line, in.Candidate)
	printFiles(&b, in)
	b.WriteString("\nvalues\n")
	for _, r := range in.Summary {
		fmt.Fprintf(&b, "\n%s (%s)\n    %s\n", r.Name, r.Lane, strings.ReplaceAll(strings.TrimRight(r.Value, "\n"), "\n", "\n    "))
	}
	fmt.Fprintf(&b, "\nrow        %s\nevaluation %s\nassets     %s\n", in.Digests.Row, in.Digests.Evaluation, in.Digests.Assets)
	for _, problem := range in.Problems {
		fmt.Fprintf(&b, "\nproblem: %s\n", problem)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printFiles prints a table with a line for each file and a column for each component. The column of the
// result shows what a record contains of the file's resource.
func printFiles(b *strings.Builder, in workspace.Inspection) {
	components := []compiler.Component{compiler.Agent, compiler.TestSandbox, compiler.Evaluator}
	seen := map[string][]compiler.Component{}
	var files []workspace.InspectedFile
	for _, c := range in.Components {
		for _, f := range c.Files {
			if c.Component == compiler.Result {
				continue
			}
			if seen[f.Path] == nil {
				files = append(files, f)
			}
			seen[f.Path] = append(seen[f.Path], c.Component)
		}
	}
	t := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0) // a strings.Builder never returns an error
	_, _ = fmt.Fprintln(t, "lane\tfile\tbytes\tagent\ttest_sandbox\tevaluator\tresult")
	for _, f := range files {
		size, record := fmt.Sprint(f.Size), "redacted"
		if f.Content == hidden.Redacted {
			size = "-"
		}
		switch {
		case f.Resource == "task":
			record = "-"
		case f.Lane == compiler.Public:
			record = "value"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s", f.Lane, f.Path, size)
		for _, c := range components {
			mark := "yes"
			switch {
			case !slices.Contains(seen[f.Path], c):
				mark = "-"
			case f.ReadOnly:
				mark = "read-only"
			}
			_, _ = fmt.Fprintf(t, "\t%s", mark)
		}
		_, _ = fmt.Fprintf(t, "\t%s\n", record)
	}
	_ = t.Flush()
}
