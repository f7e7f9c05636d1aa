package main

import (
	"embed"
	"os"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell to print the script for: bash, zsh, fish."`
}

// The scripts run sbench with the command line up to the cursor in the variable COMP_LINE,
// and offer the lines that it prints or, if there are none, files. That for zsh works both as a
// file in zsh's fpath and as a script that ~/.zshrc sources.
//
//go:embed completion
var completions embed.FS

// Run prints a script that makes the shell ask sbench for completions; see answerShell.
func (cmd *completionCmd) Run(a *app) error {
	script, err := completions.ReadFile("completion/sbench." + cmd.Shell)
	if err != nil {
		return err
	}
	return a.printf("%s", script)
}

// answerShell prints the completions of the command line in COMP_LINE and calls exit, if a
// shell has set that variable.
func answerShell(parser *kong.Kong, exit func(code int)) {
	if os.Getenv("COMP_LINE") == "" {
		return
	}
	kongcompletion.Register(parser, kongcompletion.WithExitFunc(exit))
}
