package compiler_test

import (
	"os/exec"
	"testing"

	"github.com/securebench/sbench/compiler"
)

// TestShellWords: words reach a program as they are.
func TestShellWords(t *testing.T) {
	line := compiler.ShellWords("printf", "%s|", "a  b", "it's", "$HOME", "")
	const want = "a  b|it's|$HOME||"
	if got, err := exec.CommandContext(t.Context(), "sh", "-c", line).Output(); err != nil || string(got) != want {
		t.Errorf("%s: %q %v", line, got, err)
	}
}
