package main

import (
	"cmp"
	"context"
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

// Run prints each problem as soon as it is found, so that a million rows need no memory, and then a summary; or all of
// it as one JSON object.
func (cmd *validateCmd) Run(ctx context.Context, a *app) error {
	all := struct {
		Problems compiler.Problems `json:"problems"`
		validate.Summary
	}{Problems: compiler.Problems{}}
	var failed error // the first error of printing
	show := func(p compiler.Problem) {
		if failed == nil {
			failed = a.printf("%s\n", p)
		}
	}
	if cmd.JSON {
		show = func(p compiler.Problem) { all.Problems = append(all.Problems, p) }
	}
	s, err := validate.Files(ctx, cmd.Paths, harness.AgentTypes(), show, setup.Problems)
	switch all.Summary = s; {
	case failed != nil:
	case cmd.JSON:
		failed = a.json(all)
	default:
		failed = a.printf("checked %d tester file(s), %d pack(s), %d row(s): %d error(s), %d warning(s)\n", s.Testers, s.Packs, s.Rows, s.Errors, s.Warnings)
	}
	if err = cmp.Or(err, failed); err == nil && (s.Errors > 0 || cmd.Strict && s.Warnings > 0) {
		err = problemsPrinted(fmt.Sprintf("found %d error(s) and %d warning(s)", s.Errors, s.Warnings))
	}
	return err
}
