package main

import (
	"testing"

	"github.com/alecthomas/kong"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/pack"
)

// TestFlags: a flag has the same short form in all commands, and says what it is for.
func TestFlags(t *testing.T) {
	parser, err := kong.New(&cli{}, helpVars(pack.Formats()))
	must.Do(t, err)
	shorts := map[string]rune{} // by flag
	for _, leaf := range parser.Model.Leaves(true) {
		for _, flag := range leaf.Flags {
			if before, ok := shorts[flag.Name]; ok && before != flag.Short {
				t.Errorf("--%s is %q in one command and %q in another", flag.Name, before, flag.Short)
			}
			if flag.Help == "" {
				t.Errorf("--%s of %s has no help", flag.Name, leaf.Path())
			}
			shorts[flag.Name] = flag.Short
		}
	}
}
