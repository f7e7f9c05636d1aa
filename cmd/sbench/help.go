package main

import (
	"embed"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/securebench/sbench/cmd/sbench/manual"
)

type versionCmd struct{ jsonFlag }

func versionLine() string {
	return fmt.Sprintf("sbench %s %s %s/%s", version, goruntime.Version(), goruntime.GOOS, goruntime.GOARCH)
}

func (cmd *versionCmd) Run(a *app) error {
	if cmd.JSON {
		return a.json(map[string]string{"version": version, "go": goruntime.Version(), "platform": goruntime.GOOS + "/" + goruntime.GOARCH})
	}
	return a.printf("%s\n", versionLine())
}

type helpCmd struct {
	Command []string `arg:"" optional:"" help:"Command, such as run or pack check."`
}

func (cmd *helpCmd) Run(c *kong.Context) error {
	node := c.Model.Node
	for _, name := range cmd.Command {
		i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == name })
		if i < 0 {
			return fmt.Errorf("%w: no command %q; there are %s", errUsage, strings.Join(cmd.Command, " "), joined(node.Children, ", ", func(n *kong.Node) string { return n.Name }))
		}
		node = node.Children[i]
	}
	_, _ = c.Kong.Parse(append(cmd.Command, "--help")) // which arguments are missing does not matter
	return nil
}

// firstSteps is what sbench prints without arguments: the commands that a new user needs.
func firstSteps(program *kong.Application) string {
	text, _, _ := strings.Cut(program.Help, "\n")
	text += "\n\n"
	for _, name := range []string{"run", "report", "pack", "doctor"} {
		i := slices.IndexFunc(program.Children, func(n *kong.Node) bool { return n.Name == name })
		text += fmt.Sprintf("  sbench %-8s%s\n", name, program.Children[i].Help)
	}
	return text + "\nsbench --help lists all commands; sbench COMMAND --help describes one.\n"
}

// manCmd is hidden: its page is for packages, and for people who can read it with man.
type manCmd struct{}

// Run prints the manual page, sbench(1), made from the definitions that --help is made from.
func (manCmd) Run(a *app, parsed *kong.Context) error {
	return a.printf("%s", manual.Page(parsed.Model, version, exitCodes))
}

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell to print the script for: bash, zsh, fish."`
}

// The scripts run sbench with the command line up to the cursor in COMP_LINE, and offer the lines that it
// prints, or files if it prints none.
//
//go:embed completion
var completions embed.FS

// Run prints a script that makes the shell ask sbench for completions; see execute.
func (cmd *completionCmd) Run(a *app) error {
	script, err := completions.ReadFile("completion/sbench." + cmd.Shell)
	if err != nil {
		return err
	}
	return a.printf("%s", script)
}
