package text

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run/record"
)

// An Attempt is what is shown of one attempt, also as JSON.
type Attempt struct {
	Task    string        `json:"task"`
	Attempt int           `json:"attempt"`
	Of      int           `json:"of"` // recorded attempts of the task
	Status  record.Status `json:"status"`
	Reason  string        `json:"reason,omitempty"`
	Phase   string        `json:"phase,omitempty"`
	report.Detail
}

// Write writes the attempt as text. Its texts are untrusted: each line is made visible.
func (v Attempt) Write(w io.Writer) error {
	p := &attemptPrinter{}
	p.line("task %q: %s", v.Task, v.Status)
	fact := func(name, value string) {
		if value != "" {
			p.line("%-10s %s", name, value)
		}
	}
	fact("assurance", v.Assurance)
	if v.Doubtful {
		fact("doubtful", "the candidate passes some tests that expect something wrong")
	}
	if v.Status != record.Passed {
		reason := v.Reason
		if v.Phase != "" {
			reason += " (" + v.Phase + ")"
		}
		fact("reason", strings.TrimSpace(reason))
		fact("message", v.Message)
	}
	if v.Read != nil {
		fact("read", fmt.Sprintf("%q by %s", v.Read.Text.Head, cmp.Or(v.Read.Rule, "no rule")))
	}
	fact("attempt", fmt.Sprintf("%d of %d recorded", v.Attempt, v.Of))
	fact("time", fmt.Sprintf("harness %s, verifier %s, waited %s", report.Seconds(v.Times.Producer), report.Seconds(v.Times.Verifier), report.Seconds(v.Times.Waited)))
	if len(v.Tries) > 1 {
		for _, t := range v.Tries {
			fact("try", strings.TrimSpace(fmt.Sprintf("line %d: %s %s", t.Line, t.Status, t.Reason)))
		}
	}
	if v.Private == "withheld" {
		fact("verifier", "its output can contain hidden tests: --private shows it")
	}
	for _, missing := range v.Missing {
		fact("missing", missing)
	}
	p.text("prompt", v.Prompt)
	for _, value := range v.Public {
		p.text(value.Name, value.Text)
	}
	p.trace(v.Trace)
	p.candidate(v.Candidate)
	p.text("harness's standard output", v.Producer.Stdout)
	p.text("harness's standard error", v.Producer.Stderr)
	p.text("verifier's standard output", v.Verifier.Stdout)
	p.text("verifier's standard error", v.Verifier.Stderr)
	for _, l := range v.Logs {
		p.text("log "+l.Name, l.Text)
	}
	_, err := io.WriteString(w, p.String())
	return err
}

// attemptPrinter collects lines without control characters.
type attemptPrinter struct{ strings.Builder }

func (p *attemptPrinter) line(format string, args ...any) {
	p.WriteString(report.Visible(fmt.Sprintf(format, args...), report.ShownLine) + "\n")
}

// text prints a text with a title, indented; nothing if it is empty.
func (p *attemptPrinter) text(title string, t report.Text) {
	if t.Empty() {
		return
	}
	p.WriteString("\n")
	p.line("%s", title)
	p.lines(t)
}

func (p *attemptPrinter) lines(t report.Text) {
	indented := func(text string) {
		if text == "" {
			return
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
			p.line("    %s", line)
		}
	}
	indented(t.Head)
	if t.Cut > 0 {
		p.line("    … %d bytes left out (--json has more) …", t.Cut)
	}
	indented(t.Tail)
}

func (p *attemptPrinter) trace(t *report.Trace) {
	if t == nil {
		return
	}
	p.WriteString("\ntrace\n")
	for i, s := range t.Steps {
		if t.Cut > 0 && i == t.At {
			p.line("  … %d steps left out (--json has more) …", t.Cut)
		}
		state := ""
		switch {
		case s.Failed:
			state = " (failed)"
		case s.Kind == harness.StepCommand && s.Output != nil:
			state = fmt.Sprintf(" (exit code %d)", s.Exit)
		}
		p.line("  %s", strings.TrimSpace(fmt.Sprintf("%s %s", s.Kind, s.Title))+state)
		p.lines(s.Text)
		if s.Output != nil {
			p.lines(*s.Output)
		}
	}
}

func (p *attemptPrinter) candidate(c report.Candidate) {
	if c.Text != nil {
		p.text("candidate", *c.Text)
	}
	if c.Patch != nil {
		p.text("candidate's patch", *c.Patch)
	}
	if c.Directory == "" {
		return
	}
	p.WriteString("\n")
	p.line("candidate's files in %s", c.Directory)
	for _, f := range c.Files {
		link := ""
		if f.Link != "" {
			link = " -> " + f.Link
		}
		p.line("    %s %8d %s%s", f.Mode, f.Size, f.Path, link)
	}
	if c.More {
		p.line("    … and more")
	}
}
