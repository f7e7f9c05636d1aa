package main

import (
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/stat"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

// maxCauses bounds the causes in a list.
const maxCauses = 10

// scored is a summary with its score, for JSON.
type scored struct {
	run.Summary
	Score  *float64       `json:"score"`  // share of the attempts with a verdict that passed; null if there are none
	Wilson *stat.Interval `json:"wilson"` // its interval at 95 %
	// WithErrors is the score with errors as failures; null without attempts of either kind.
	WithErrors *float64 `json:"score_with_errors"`
}

func score(s run.Summary) scored {
	all := scored{Summary: s}
	if i, ok := stat.Wilson(s.Passed, s.Verified()); ok {
		all.Score, all.Wilson = new(float64(s.Passed)/float64(s.Verified())), &i
	}
	if measured := s.Verified() + s.Errors; measured > 0 {
		all.WithErrors = new(float64(s.Passed) / float64(measured))
	}
	return all
}

// writeOutcome prints the score of a run, why attempts did not pass or were not measured, and what to do
// next. args is the command line after the program's name, dir the pack's directory.
func writeOutcome(w io.Writer, s run.Summary, args []string, dir string) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	line := func(format string, values ...any) { _, _ = fmt.Fprintf(tw, format+"\n", values...) } // an error comes back from Flush
	line("")
	if all := score(s); all.Score != nil {
		withErrors := ""
		if s.Errors > 0 {
			withErrors = fmt.Sprintf("; %s with errors as failures", report.Percent(all.WithErrors))
		}
		line("%s (%d of %d, 95 %% %.1f to %.1f)%s", report.Percent(all.Score), s.Passed, s.Verified(), 100*all.Wilson.Low, 100*all.Wilson.High, withErrors)
	} else {
		line("no score: no attempt has a verdict")
	}
	if s.Interrupted() {
		line("%d of %d, interrupted", s.Total, s.Planned)
	}
	list := func(title string, wanted func(record.Status) bool) {
		causes := slices.DeleteFunc(slices.Clone(s.Causes), func(c run.Cause) bool { return !wanted(c.Status) })
		if len(causes) == 0 {
			return
		}
		line("\n%s", title)
		for _, c := range causes[:min(len(causes), maxCauses)] {
			example := report.Visible(c.Task, shownName)
			if c.Attempt > 1 {
				example += fmt.Sprintf(" (attempt %d)", c.Attempt)
			}
			if c.FailureMessage != "" {
				example += ": " + report.Visible(c.FailureMessage, shownMessage)
			}
			line("%5d\t%s\t%s", c.Count, report.Visible(c.Reason, shownName), example)
		}
		if more := len(causes) - maxCauses; more > 0 {
			line("and %d more causes", more)
		}
	}
	list("failed, with an example of each cause:", func(st record.Status) bool { return st == record.Failed })
	list("not measured, and in no score:", func(st record.Status) bool { return st != record.Failed })
	if len(s.LeftOut) > 0 {
		line("\nnot prepared, and in no score:")
		for _, l := range s.LeftOut {
			line("\t%s\t%s", report.Visible(l.Task, shownName), report.Visible(l.Reason, shownMessage))
		}
	}
	if standIn := pack.StandIn(dir); standIn != "" {
		line("\nthese rows stand in for the benchmark's, which this command brings:\n      %s", standIn)
	}
	line("\nnext: sbench report %s", quoted(filepath.Dir(s.Output)))
	faults := s.Errors - s.Infrastructure()
	everyone := len(s.Causes) == 1 && s.Failed == s.Total && s.Total > 2
	if len(s.Alike) > 0 || everyone || faults > 0 {
		line("      sbench pack check %s", quoted(dir))
		switch {
		case faults > 0:
			line("      (the pack or its image is at fault; mend it, and continue with --resume)")
		case len(s.Alike) > 0:
			line("      (all candidates of %s failed for the same reason: does the reference pass?)", report.Visible(s.Alike[0], shownName))
		default:
			line("      (all attempts failed for the same reason: does the reference pass?)")
		}
	}
	if s.Interrupted() || s.Infrastructure() > 0 {
		again := joined(args, " ", quoted)
		if !slices.Contains(args, "--resume") {
			again += " --resume"
		}
		line("      sbench %s", again)
	}
	return tw.Flush()
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// quoted quotes a word for a shell.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
