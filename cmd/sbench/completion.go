package main

import (
	"os"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell to print the script for: bash, zsh, fish."`
}

// Run prints a script that makes the shell ask sbench for completions; see answerShell.
func (cmd *completionCmd) Run(a *app) error {
	return a.printf("%s", map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[cmd.Shell])
}

// The scripts run sbench with the command line up to the cursor in the variable COMP_LINE,
// and offer the lines that it prints or, if there are none, files.
const (
	bashCompletion = `complete -o default -o bashdefault -C sbench sbench
`

	// Works both as a file in zsh's fpath and as a script that ~/.zshrc sources.
	zshCompletion = `#compdef sbench
_sbench() {
  local -a found
  found=("${(@f)$(COMP_LINE="${(j: :)words[1,CURRENT-1]} $PREFIX" sbench 2>/dev/null)}")
  if [[ -n "$found" ]]; then
    compadd -a found
  else
    _files
  fi
}
if [[ "$funcstack[1]" == _sbench ]]; then
  _sbench "$@"
else
  compdef _sbench sbench
fi
`

	fishCompletion = `function __sbench_complete
    set -lx COMP_LINE (commandline --current-process --cut-at-cursor)
    set -l found (sbench 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline --current-token --cut-at-cursor)
    end
end
complete --command sbench --no-files --arguments '(__sbench_complete)'
`
)

// answerShell prints the completions of the command line in COMP_LINE and calls exit, if a
// shell has set that variable.
func answerShell(parser *kong.Kong, exit func(code int)) {
	if os.Getenv("COMP_LINE") == "" {
		return
	}
	kongcompletion.Register(parser, kongcompletion.WithExitFunc(exit))
}
