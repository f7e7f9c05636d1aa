package main

import "embed"

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell to print the script for: bash, zsh, fish."`
}

// The scripts run sbench with the command line up to the cursor in the variable COMP_LINE,
// and offer the lines that it prints or, if there are none, files. That for zsh works both as a
// file in zsh's fpath and as a script that ~/.zshrc sources.
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
