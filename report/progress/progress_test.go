package progress_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/pty"
	"github.com/securebench/sbench/report/progress"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

func after(s float64, e run.Event) run.Event {
	e.Time = time.Unix(1_000_000, 0).Add(time.Duration(s * float64(time.Second)))
	return e
}

// TestPlain: plain progress has a line for each finished attempt and each notice of the run.
func TestPlain(t *testing.T) {
	done := func(s float64, task string, e run.Event) run.Event {
		e.Kind, e.Task = run.TaskDone, task
		return after(s, e)
	}
	var out bytes.Buffer
	show := progress.New(&out, progress.Plain).Show(run.AgentOutput)
	for _, e := range []run.Event{
		after(0, run.Event{Kind: run.ImagePull, Detail: "a:1"}),
		after(0, run.Event{Kind: run.RunStart, Tasks: 2, Attempts: 8, Resumed: 2, Detail: "tasks: 2"}),
		after(1, run.Event{Kind: run.TaskStart, Task: "one", Attempt: 1, Resumed: 2}),
		after(1, run.Event{Kind: run.ProducerStart, Task: "one", Attempt: 1}),
		after(2, run.Event{Kind: run.AgentOutput, Task: "one", Attempt: 1, Detail: "first line\nsecond\x1b[2J line\n"}),
		done(20, "one", run.Event{Attempt: 1, Try: 1, Status: record.Passed, Seconds: 0.31}),
		done(40, "one", run.Event{Attempt: 2, Try: 1, Status: record.Failed, Reason: "tests_failed", Seconds: 123, FailureMessage: "an assertion\nfailed: \u202e1 == 2"}),
		done(50, "two", run.Event{Attempt: 1, Try: 1, Status: record.Error, Reason: "infrastructure", Again: true, FailureMessage: strings.Repeat("x", 300)}),
		done(60, "two", run.Event{Attempt: 1, Try: 2, Status: record.Passed, Seconds: 1}),
		after(61, run.Event{Kind: run.Waiting, Task: "two", Detail: "for memory"}),
		after(62, run.Event{Kind: run.Stopping, Detail: "verifications in progress are completed"}),
		after(63, run.Event{Kind: run.RunDone, Resumed: 2}),
	} {
		show(e)
	}
	cut := strings.Repeat("x", 200) + "…"
	want := `sbench: pulling a:1
sbench: tasks: 2
one> first line
one> second\x1b[2J line
[3/8] passed one 310 ms (ETA 1m40s)
[4/8] failed one tests_failed 2:03 min (attempt 2, ETA 1m20s): an assertion\nfailed: \u{202e}1 == 2
[4/8] error two infrastructure – (is tried again, ETA 1m40s): ` + cut + `
[5/8] passed two 1.00 s (try 2, ETA 1m0s)
sbench: waiting for memory: two
sbench: verifications in progress are completed
`
	must.Equal(t, want, out.String())
}

// TestMessagesInJSON: what is written to a display becomes events, line by line.
func TestMessagesInJSON(t *testing.T) {
	var out bytes.Buffer
	d := progress.New(&out, progress.JSON)
	_, _ = fmt.Fprint(d, "sbench: one\ntwo, ")
	d.Show()(run.Event{Kind: run.RunStart})
	_, _ = fmt.Fprintln(d, "which goes on\x1b")
	var got []string
	for d := json.NewDecoder(&out); d.More(); {
		var e run.Event
		must.Do(t, d.Decode(&e))
		got = append(got, string(e.Kind)+" "+e.Detail)
	}
	must.Equal(t, []string{"message sbench: one", "run_start ", "message two, which goes on\x1b"}, got)
}

// onTerminal returns a display on a terminal, and the function that ends it.
func onTerminal(t *testing.T, format progress.Format, columns int) (d *progress.Display, p *pty.Terminal, end func() string) {
	t.Helper()
	t.Setenv("TERM", "xterm")
	t.Setenv("CI", "")
	p = pty.New(t, columns, 24)
	d = progress.New(p.Slave, format)
	return d, p, func() string {
		t.Helper()
		d.Close()
		_, err := p.Slave.WriteString("the end\n")
		must.Do(t, err)
		p.Await(t, "the end\r\n")
		p.Unbroken(t)
		return pty.Redraw().ReplaceAllString(p.Text(), "\n")
	}
}

// TestProgressOnTerminal: on a terminal, only auto draws a bar, with tokens and costs. Two runs of one command share the terminal.
func TestProgressOnTerminal(t *testing.T) {
	for _, format := range []progress.Format{progress.Auto, progress.Plain, progress.JSON} {
		t.Run(string(format), func(t *testing.T) {
			d, _, end := onTerminal(t, format, 100)
			for n := range 2 {
				show := d.Show()
				show(run.Event{Time: time.Now(), Kind: run.RunStart, Tasks: 2, Attempts: 2, Detail: "tasks: 2"})
				show(run.Event{Time: time.Now(), Kind: run.TaskDone, Task: "the-task", Status: record.Error, Again: true})
				_, _ = fmt.Fprint(d, "level=WARN msg=")
				_, _ = fmt.Fprintln(d, "n", n)
				show(run.Event{Time: time.Now(), Kind: run.TaskDone, Task: "the-task", Status: record.Passed, Tokens: 1234, CostUSD: 0.5})
				show(run.Event{Time: time.Now(), Kind: run.RunDone})
				_, _ = fmt.Fprintln(d, "a late warning")
			}
			got := end()
			if format == progress.JSON {
				if !strings.Contains(got, "run_done") || strings.Contains(got, " 1/2  ") {
					t.Errorf("%q", got)
				}
				return
			}
			for want, times := range map[string]int{
				"sbench: tasks: 2\r\n": 2, "[0/2] error the-task": 2, "[1/2] passed the-task": 2, "a late warning\r\n": 2,
				" 1/2  1 passed  0 failed  0 error  1234 tokens  0.50 USD  0s\r\n": map[progress.Format]int{progress.Auto: 2}[format],
			} {
				if strings.Count(got, want) < times || times == 0 && strings.Contains(got, want) {
					t.Errorf("%d times %q, want %d:\n%q", strings.Count(got, want), want, times, got)
				}
			}
			if format == progress.Auto && (!strings.Contains(got, "\rlevel=WARN msg=n 0\r\n") || !strings.Contains(got, "\rlevel=WARN msg=n 1\r\n")) {
				t.Errorf("a line was torn:\n%q", got)
			}
		})
	}
}

// TestBarResized: the bar becomes narrower with its terminal.
func TestBarResized(t *testing.T) {
	d, p, end := onTerminal(t, progress.Auto, 100)
	d.Show()(run.Event{Kind: run.RunStart, Tasks: 1, Attempts: 1})
	p.Await(t, " 0/1  0 passed  0 failed  0 error  ")
	p.Resize(t, 20, 10)
	p.Await(t, "\r0/1  0 passed  0 fa…")
	end()
}

// hostile is text that must never reach a terminal unchanged.
const hostile = "\x1b[2J\x1b]0;owned\a\r\n\t\b\x7f\u009b31m\u202eevil\u2028\xff\xfe\u200b\ufe0f漢字漢字漢字漢字漢字漢字漢字漢字漢字 é"

func hostileEvents() []run.Event {
	events := []run.Event{after(0, run.Event{Kind: run.ImagePull, Detail: hostile}), after(0, run.Event{Kind: run.RunStart, Tasks: 3, Attempts: 10_000})}
	for i := range 30 {
		e := run.Event{Task: hostile + strings.Repeat("x", i), Attempt: 1, Detail: hostile, Tokens: 1 << 40, RunID: hostile, Reason: hostile, FailureMessage: hostile}
		for _, e.Kind = range []run.Kind{run.TaskStart, run.ProducerStart, run.Egress, run.VerifierStart, run.AgentOutput, run.Stopping, run.Resume} {
			events = append(events, after(1, e))
		}
		if e.Kind, e.Again, e.Status = run.TaskDone, i%2 > 0, record.Failed; i > 20 {
			events = append(events, after(2, e))
		}
	}
	return append(events, after(3, run.Event{Kind: run.Waiting, Task: hostile, Detail: hostile}))
}

// TestHostileOnTerminal: no text of a task, an agent or a model controls the terminal, whatever is
// shown of it and however narrow the terminal is.
func TestHostileOnTerminal(t *testing.T) {
	for _, columns := range []int{1, 9, 80} {
		d, _, end := onTerminal(t, progress.Auto, columns)
		show := d.Show(run.AgentOutput, run.SandboxCommand, run.SandboxResult)
		for _, e := range hostileEvents() {
			show(e)
		}
		show(run.Event{Kind: run.RunDone, Detail: hostile})
		if got := end(); !strings.Contains(got, `\x1b[2J`) {
			t.Errorf("%d columns: no escaped text:\n%q", columns, got)
		}
	}
}

// TestProgressElsewhere: without a terminal, auto is plain, and json is one object on
// each line, whatever it contains.
func TestProgressElsewhere(t *testing.T) {
	for _, format := range []progress.Format{progress.Auto, progress.Plain, progress.JSON} {
		t.Run(string(format), func(t *testing.T) {
			var out bytes.Buffer
			show := progress.New(&out, format).Show()
			events := hostileEvents()
			for _, e := range events {
				show(e)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			for i, line := range lines {
				var e run.Event
				switch err := json.Unmarshal([]byte(line), &e); {
				case format != progress.JSON && !regexp.MustCompile(`^(\[\d+/10000\] failed |sbench: )`).MatchString(line), strings.ContainsFunc(line, unicode.IsControl) && format != progress.JSON:
					t.Errorf("%q", line)
				case format == progress.JSON && (err != nil || e.Kind != events[i].Kind || len(lines) != len(events)):
					t.Errorf("line %d of %d is %q: %v", i, len(lines), line, err)
				}
			}
		})
	}
}
