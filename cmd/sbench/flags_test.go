package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/securebench/sbench/pack"
)

// TestSharedFlags: a flag has the same short form in all commands, and docs/commands.md
// lists each flag that several commands have, with just these commands. The exit codes
// there are those that --help prints.
func TestSharedFlags(t *testing.T) {
	parser, err := kong.New(&cli{}, helpVars(pack.Formats()))
	if err != nil {
		t.Fatal(err)
	}
	commands, shorts := map[string][]string{}, map[string]string{} // by flag
	for _, leaf := range parser.Model.Leaves(true) {
		for _, flag := range leaf.Flags {
			name, short := "--"+flag.Name, ""
			if flag.Short != 0 {
				short = "-" + string(flag.Short)
			}
			if before, ok := shorts[name]; ok && before != short {
				t.Errorf("%s is %q in one command and %q in another", name, before, short)
			}
			shorts[name] = short
			commands[name] = append(commands[name], strings.TrimPrefix(leaf.Path(), "sbench "))
		}
	}
	text, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(text), "All commands have")
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (?:`(-\\w)`, )?`(--[\\w-]+)` \\| .* \\| ([a-z, ]+) \\|$").FindAllStringSubmatch(table, -1) {
		short, name, named := row[1], row[2], strings.Split(row[3], ", ")
		listed[name] = true
		slices.Sort(named)
		slices.Sort(commands[name])
		if !slices.Equal(named, commands[name]) || short != shorts[name] {
			t.Errorf("docs/commands.md: %s %s of %v; the program has %s of %v", short, name, named, shorts[name], commands[name])
		}
	}
	for name, list := range commands {
		if len(list) > 1 && !listed[name] && name != "--json" {
			t.Errorf("docs/commands.md lacks %s of %v", name, list)
		}
	}
	for _, code := range regexp.MustCompile(`\d+ [a-z]`).FindAllString(exitCodes, -1) {
		if !strings.Contains(string(text), "\n| "+strings.Fields(code)[0]+" | ") {
			t.Errorf("docs/commands.md lacks the exit code %s", code)
		}
	}
}
