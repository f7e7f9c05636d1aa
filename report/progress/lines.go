package progress

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run"
)

// slowVerification is after how many seconds the runs of a verification are shown.
const slowVerification = 10

// plain writes lines for notices and for each finished attempt.
type plain struct {
	out  io.Writer
	pace pace
}

func (p *plain) add(e run.Event) {
	p.pace.add(e)
	for _, line := range eventLines(e, p.pace) {
		_, _ = fmt.Fprintln(p.out, line)
	}
	if e.Kind == run.RunDone {
		p.pace = pace{} // another run may follow
	}
}

// eventLines returns an event's lines for people, without control characters. The pace includes the event.
func eventLines(e run.Event, p pace) []string {
	detail := report.Visible(e.Detail, report.ShownLine)
	task := report.Visible(e.Task, report.ShownName)
	switch e.Kind {
	case run.TaskDone:
		return []string{doneLine(e, p)}
	case run.AgentOutput:
		var lines []string
		for line := range strings.Lines(e.Detail) {
			lines = append(lines, task+"> "+report.Visible(strings.TrimRight(line, "\r\n"), report.ShownLine))
		}
		return lines
	case run.SandboxCommand, run.SandboxResult:
		return []string{report.Words(task, string(e.Kind), detail, report.Visible(e.Reason, report.ShownName))}
	case run.VerifierRun:
		if e.Seconds < slowVerification {
			return nil
		}
		return []string{fmt.Sprintf("sbench: verifying for %s: %s: %s", report.Seconds(e.Seconds), task, detail)}
	case run.ImagePull:
		return []string{"sbench: pulling " + detail}
	case run.Waiting:
		return []string{"sbench: waiting " + detail + ": " + task}
	case run.RunStart, run.Notice, run.Resume, run.Stopping:
		return []string{"sbench: " + detail}
	}
	return nil
}

// doneLine describes a recorded try:
//
//	[17/164] failed HumanEval/17 tests_failed 310 ms (attempt 2, ETA 1m20s): an assertion failed
func doneLine(e run.Event, p pace) string {
	var notes []string
	if e.Attempt > 1 {
		notes = append(notes, fmt.Sprint("attempt ", e.Attempt))
	}
	if e.Try > 1 {
		notes = append(notes, fmt.Sprint("try ", e.Try))
	}
	if e.Again {
		notes = append(notes, "is tried again")
	}
	if left, ok := p.remaining(e.Time); ok {
		notes = append(notes, "ETA "+left.Round(time.Second).String())
	}
	line := fmt.Sprintf("[%d/%d] %s", p.done(), p.attempts, report.Words(
		string(e.Status), report.Visible(e.Task, report.ShownName), report.Visible(e.Reason, report.ShownName), string(e.Assurance), report.Seconds(e.Seconds)))
	if len(notes) > 0 {
		line += " (" + strings.Join(notes, ", ") + ")"
	}
	if e.FailureMessage != "" {
		line += ": " + report.Visible(e.FailureMessage, report.ShownMessage)
	}
	return line
}

// A pace says how far a run has come, and estimates when it ends.
type pace struct {
	began             time.Time // of the first attempt
	attempts          int       // in all
	resumed, finished int       // recorded by earlier sessions, and by this one
}

func (p *pace) add(e run.Event) {
	switch e.Kind {
	case run.RunStart:
		p.began, p.attempts, p.resumed = e.Time, e.Attempts, e.Resumed
	case run.TaskStart, run.RunDone:
		p.resumed = e.Resumed
	case run.TaskDone:
		if !e.Again {
			p.finished++
		}
	}
}

func (p pace) done() int { return min(p.resumed+p.finished, p.attempts) }

// remaining estimates how much longer the run will take; false if it cannot be known.
func (p pace) remaining(now time.Time) (time.Duration, bool) {
	if p.finished == 0 || p.done() == p.attempts {
		return 0, false
	}
	return time.Duration(float64(now.Sub(p.began)) / float64(p.finished) * float64(p.attempts-p.done())), true
}
