package report

import (
	"fmt"
	"slices"
	"strings"
)

// A Warning is a reason why a run's numbers say less than they seem to. Show it above them.
type Warning struct {
	Kind string // partial, unreadable, unverified, judged, degraded, uncalibrated or unscored
	Text string // may contain hostile text of the records
}

// Warnings returns the warnings of a run, at most 30.
func (r Run) Warnings() []Warning {
	var list []Warning
	warn := func(kind, format string, args ...any) {
		list = append(list, Warning{kind, fmt.Sprintf(format, args...)})
	}
	if missing := r.Missing(); missing > 0 {
		warn("partial", "%d of %d planned attempts are recorded: the run was interrupted, or is still going on", *r.Planned-missing, *r.Planned)
	}
	for i, p := range r.Problems {
		if i == shownTasks {
			warn("unreadable", "and %d more in --json", len(r.Problems)-i)
			break
		}
		kind := "unreadable"
		if p.Unverified {
			kind = "unverified"
		}
		warn(kind, "%s", p)
	}
	if r.Judged > 0 {
		warn("judged", "%s judged by a model: %s", count(r.Judged, "answer"), strings.Join(r.Judges, "; "))
	}
	if len(r.Degraded) > 0 {
		warn("degraded", "the host did not enforce these limits: %s", strings.Join(r.Degraded, ", "))
	}
	if doubtful := r.Contrast["uncalibrated"] + r.Contrast["none"]; doubtful > 0 {
		warn("uncalibrated", "%d of %d passes are not confirmed by calibrated changes to their tests", doubtful, doubtful+r.Contrast["calibrated"])
	}
	if c := r.Counts; c.Errors+c.Pending > 0 {
		warn("unscored", "%s and %d pending are in no denominator", count(c.Errors, "error"), c.Pending)
	}
	return list
}

// Missing returns how many planned attempts have no record. It is 0 if the plan is unknown.
func (r Run) Missing() int {
	if r.Planned == nil {
		return 0
	}
	return max(0, *r.Planned-r.Counts.Attempts)
}

// Doubts returns the kinds of the run's warnings, each once.
func (r Run) Doubts() []string {
	var kinds []string
	for _, w := range r.Warnings() {
		if !slices.Contains(kinds, w.Kind) {
			kinds = append(kinds, w.Kind)
		}
	}
	return kinds
}
