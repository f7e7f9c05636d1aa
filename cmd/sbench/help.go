package main

import (
	"embed"
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/securebench/sbench/run/record"
)

type versionCmd struct{ jsonFlag }

// versionLine is what version and --version print.
func versionLine() string {
	return fmt.Sprintf("sbench %s %s %s/%s", version, goruntime.Version(), goruntime.GOOS, goruntime.GOARCH)
}

// sbenchVersion returns what records say about this program.
func sbenchVersion() record.Version {
	v := record.Version{Version: version}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	if _, commit, ok := strings.Cut(version, "-g"); ok && v.Commit == "" { // as git describe writes it
		v.Commit = strings.TrimSuffix(commit, "-dirty")
	}
	return v
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
	return a.printf("%s", manualPage(parsed.Model))
}

// manualPage returns the page in the macros of man(7), without a date: it changes only with the program.
func manualPage(program *kong.Application) string {
	var page strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&page, format+"\n", args...) }
	item := func(head string, v *kong.Value) {
		line(".TP\n.B %s\n%s", roff(head), roff(kong.DefaultHelpValueFormatter(v)))
	}
	flags := func(node *kong.Node) {
		for _, f := range node.Flags {
			if !f.Hidden {
				item(f.String(), f.Value)
			}
		}
	}

	summary, _, _ := strings.Cut(program.Help, "\n")
	line(`.TH SBENCH 1 "" "sbench %s" "User Commands"`, roff(version))
	line(".SH NAME\nsbench \\- %s", roff(strings.ToLower(summary[:1])+strings.TrimSuffix(summary[1:], ".")))
	line(".SH SYNOPSIS\n.B sbench\n.I command\n[\\fIoption\\fR ...] [\\fIargument\\fR ...]")
	line(".SH COMMANDS")
	for _, command := range program.Leaves(true) {
		line(".SS %s\n%s", roff("sbench "+command.Summary()), roff(command.Help))
		if command.Detail != "" {
			line(".PP\n%s", roff(command.Detail))
		}
		for _, v := range command.Positional {
			item(v.Summary(), v)
		}
		for node := command; node.Parent != nil; node = node.Parent {
			flags(node)
		}
	}
	line(".SH OPTIONS OF EVERY COMMAND")
	flags(program.Node)
	line(".SH EXIT STATUS\n%s", roff(exitCodes))
	line(".SH SEE ALSO\n.BR containerd (8),\n.BR runc (8),\n.BR newuidmap (1)")
	return page.String()
}

// roff escapes text so that every character is printed as it is.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		return `\&` + text
	}
	return text
}

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell to print the script for: bash, zsh, fish."`
}

// The scripts run sbench with the command line up to the cursor in the variable COMP_LINE. They offer
// the lines that it prints, or files if it prints none. The script for zsh works both as a file in zsh's
// fpath and as a script that ~/.zshrc sources.
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
