package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/validate"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/setup"
)

type validateCmd struct {
	Paths  []string `arg:"" name:"path" help:"Tester file, manifest, file of rows, or directory of these."`
	Strict bool     `help:"Fail on warnings too."`
	jsonFlag
}

// Run prints every problem as soon as it is found, so that a million rows need no memory, and then a
// summary. The output is lines, or one JSON object with the summary's fields and the list of problems.
func (cmd *validateCmd) Run(ctx context.Context, a *app) error {
	var failed error // the first error of printing
	printf := func(format string, args ...any) {
		if failed == nil {
			_, failed = fmt.Fprintf(a.stdout, format, args...)
		}
	}
	show := func(p compiler.Problem) { printf("%s\n", p) }
	total := "checked %d tester file(s), %d pack(s), %d row(s): %d error(s), %d warning(s)\n"
	if cmd.JSON {
		printf("{\n  \"problems\": [")
		comma := ""
		show = func(p compiler.Problem) {
			text, err := json.Marshal(p)
			failed = cmp.Or(failed, err)
			printf("%s\n    %s", comma, text)
			comma = ","
		}
		total = "],\n  \"testers\": %d,\n  \"packs\": %d,\n  \"rows\": %d,\n  \"errors\": %d,\n  \"warnings\": %d\n}\n"
	}
	s, err := validate.Files(ctx, cmd.Paths, harness.AgentTypes(), show, setup.Problems)
	if cmd.JSON && s.Errors+s.Warnings > 0 {
		printf("\n  ")
	}
	printf(total, s.Testers, s.Packs, s.Rows, s.Errors, s.Warnings)
	if err = cmp.Or(err, failed); err == nil && (s.Errors > 0 || cmd.Strict && s.Warnings > 0) {
		err = problemsPrinted(fmt.Sprintf("found %d error(s) and %d warning(s)", s.Errors, s.Warnings))
	}
	return err
}
