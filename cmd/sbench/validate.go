package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/securebench/sbench/compiler"
)

type validateCmd struct {
	Paths  []string `arg:"" name:"path" help:"Tester file, manifest, file of rows, or folder of these."`
	Strict bool     `help:"Fail on warnings too."`
	JSON   bool     `name:"json" help:"Print JSON."`
}

// Run prints every problem as it is found, so that a million rows need no
// memory, and a summary.
func (cmd *validateCmd) Run(ctx context.Context, a *app) error {
	out := &problemPrinter{w: a.stdout, json: cmd.JSON}
	out.begin()
	summary, err := compiler.Validate(ctx, cmd.Paths, out.problem)
	out.end(summary)
	switch {
	case err != nil:
		return err
	case out.err != nil:
		return out.err
	case summary.Errors > 0 || cmd.Strict && summary.Warnings > 0:
		return invalidError{summary}
	}
	return nil
}

// invalidError says that files have problems, which are printed already.
type invalidError struct{ compiler.Summary }

func (e invalidError) Error() string {
	return fmt.Sprintf("found %d error(s) and %d warning(s)", e.Errors, e.Warnings)
}

// Unwrap makes it a mistake in the user's files, and no bug.
func (e invalidError) Unwrap() error { return errUsage }

// problemPrinter prints problems as lines, or as the list of a JSON object that
// the summary's fields complete. It keeps its first error.
type problemPrinter struct {
	w     io.Writer
	json  bool
	count int
	err   error
}

func (p *problemPrinter) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *problemPrinter) begin() {
	if p.json {
		p.printf("{\n  \"problems\": [")
	}
}

func (p *problemPrinter) problem(problem compiler.Problem) {
	p.count++
	if !p.json {
		p.printf("%s\n", problem)
		return
	}
	text, err := json.Marshal(problem)
	if err != nil {
		p.err = err
		return
	}
	comma := ","
	if p.count == 1 {
		comma = ""
	}
	p.printf("%s\n    %s", comma, text)
}

func (p *problemPrinter) end(s compiler.Summary) {
	if !p.json {
		p.printf("checked %d tester file(s), %d pack(s), %d row(s): %d error(s), %d warning(s)\n", s.Testers, s.Packs, s.Rows, s.Errors, s.Warnings)
		return
	}
	if p.count > 0 {
		p.printf("\n  ")
	}
	p.printf("],\n  \"testers\": %d,\n  \"packs\": %d,\n  \"rows\": %d,\n  \"errors\": %d,\n  \"warnings\": %d\n}\n", s.Testers, s.Packs, s.Rows, s.Errors, s.Warnings)
}
