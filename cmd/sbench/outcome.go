package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

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
		err = errors.Join(text.WriteOutcome(a.stderr, r, source), writeNext(a.stderr, s, r, os.Args[1:], dir))
	}
	if cmd.JSON {
		return errors.Join(err, a.json(measured{s, r.Accuracy, r.Outcomes}))
	}
	return errors.Join(err,
		printTable(a, s.Changes, func(c run.Change) string { return fmt.Sprintf("changed: %q from %s to %s", c.Task, c.Old, c.New) }),
		a.printf("%s\n", s))
}

// writeNext prints which tasks were not prepared, and what to do next. args is the command line after the
// program's name, dir the pack's directory.
func writeNext(w io.Writer, s run.Summary, r report.Run, args []string, dir string) error {
	var b strings.Builder
	line := func(format string, values ...any) { _, _ = fmt.Fprintf(&b, format+"\n", values...) }
	if len(s.LeftOut) > 0 {
		line("\nnot prepared, and left out of the score:")
		for _, l := range s.LeftOut {
			line("  %s: %s", report.Visible(l.Task, report.ShownName), report.Visible(l.Reason, report.ShownMessage))
		}
	}
	if standIn := pack.StandIn(dir); standIn != "" {
		line("\nthese rows stand in for the benchmark's own rows, which this command fetches:\n      %s", standIn)
	}
	line("\nnext: sbench report %s", quoted(filepath.Dir(s.Output)))
	hopeless := slices.IndexFunc(r.Tasks, func(t report.Task) bool { return t.Scored > 1 && t.Passed == 0 })
	hint := ""
	switch {
	case s.Errors > s.Infrastructure:
		hint = "the pack or its image is at fault: fix it, and continue with --resume"
	case s.Failed > 2 && s.Failed == s.Total:
		hint = "no attempt passed: does the reference pass?"
	case hopeless >= 0:
		hint = "no candidate of " + report.Visible(r.Tasks[hopeless].TaskID, report.ShownName) + " passed: does the reference pass?"
	}
	if hint != "" {
		line("      sbench pack check %s\n      (%s)", quoted(dir), hint)
	}
	if s.Interrupted() || s.Infrastructure > 0 {
		again := joined(args, " ", quoted)
		if !slices.Contains(args, "--resume") {
			again += " --resume"
		}
		line("      sbench %s", again)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// quoted quotes a word for a shell.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
