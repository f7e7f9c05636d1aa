package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/progress"
	"github.com/securebench/sbench/report/text"
	"github.com/securebench/sbench/run"
)

// measured is a summary as JSON, with what a report says about the records.
type measured struct {
	run.Summary
	Accuracy report.Accuracy  `json:"accuracy"`
	Outcomes []report.Outcome `json:"outcomes"`
}

// outcome prints what was recorded, unless nothing started: for people on standard error, then the summary on
// standard output. dir is the pack's directory.
func (cmd *runCmd) outcome(ctx context.Context, a *app, s run.Summary, dir string) error {
	if s.RunID == "" {
		return nil
	}
	var r report.Run
	source, err := report.Open(context.WithoutCancel(ctx), filepath.Dir(s.Output))
	if err == nil {
		defer func() { _ = source.Close() }() // only read from
		source.Require(cmd.Require)
		r = report.Summarize([]*report.Source{source}).Runs[0]
	}
	if err == nil && cmd.Progress != progress.JSON && !cmd.quiet() { // the last JSON event has the summary
		err = errors.Join(text.WriteOutcome(a.stderr, r, source), text.WriteNext(a.stderr, s, r, os.Args[1:], dir, pack.StandIn(dir)))
	}
	if cmd.JSON {
		return errors.Join(err, a.json(measured{s, r.Accuracy, r.Outcomes}))
	}
	return errors.Join(err,
		printTable(a, s.Changes, func(c run.Change) string { return fmt.Sprintf("changed: %q from %s to %s", c.Task, c.Old, c.New) }),
		a.printf("%s\n", s))
}
