package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

// pty is a pseudo-terminal of the kernel.
type pty struct {
	master, slave *os.File
	before        *unix.Termios
	changed       chan struct{} // there is more output
	gone          chan struct{} // nobody has the slave open

	mu     sync.Mutex
	output []byte
}

func newPty(t *testing.T, columns, rows int) *pty {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	must(t, err)
	must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(t, err)
	p := &pty{master: os.NewFile(uintptr(fd), "ptmx"), changed: make(chan struct{}, 1), gone: make(chan struct{})}
	p.slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	must(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)}))
	p.before, err = unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	must(t, err)
	t.Cleanup(func() { _ = p.slave.Close(); <-p.gone; _ = p.master.Close() })
	go p.read()
	return p
}

// read collects the output until the last writer is gone (EIO).
func (p *pty) read() {
	defer close(p.gone)
	buf := make([]byte, 4096)
	for {
		n, err := p.master.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.output = append(p.output, buf[:n]...)
		p.mu.Unlock()
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
}

// text returns all that was written to the terminal.
func (p *pty) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.output)
}

// await waits until want was written.
func (p *pty) await(t *testing.T, want string) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for !strings.Contains(p.text(), want) {
		select {
		case <-p.changed:
		case <-late:
			t.Fatalf("no %q:\n%q", want, p.text())
		}
	}
}

// redraw is what precedes a bar that is drawn again: up to the bar, and erase it.
var redraw = regexp.MustCompile("\x1b\\[[1-9][0-9]*A\x1b\\[J")

// unbroken fails unless the terminal can be used as before: its mode has not changed, its cursor is on a free
// line, and it got no control sequence except to redraw the bar.
func (p *pty) unbroken(t *testing.T) {
	t.Helper()
	now, err := unix.IoctlGetTermios(int(p.master.Fd()), unix.TCGETS) // of the slave
	must(t, err)
	if *now != *p.before {
		t.Errorf("the modes are %+v, were %+v", now, p.before)
	}
	text := redraw.ReplaceAllString(p.text(), "")
	if !strings.HasSuffix(text, "\n") {
		t.Errorf("the cursor is on no free line: %q", text)
	}
	for _, r := range text {
		if !strings.ContainsRune("\r\n\t", r) && report.Hidden(r) {
			t.Fatalf("%q has %q", text, r)
		}
	}
}

// start runs sbench with all three of its streams on the terminal.
func (p *pty) start(t *testing.T, h testHost, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sbench", args...)
	cmd.Env = append(h.env, "TERM=xterm-256color", "CI=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.slave, p.slave, p.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// sleeper writes a pack of one task, whose harness sleeps.
func sleeper(t *testing.T, seconds string) (config string) {
	t.Helper()
	dir := t.TempDir()
	filetest.Write(t, dir, map[string]string{
		"manifest.yaml": "id: p\nversion: 1\ndefaults: {family: terminal_task, environment: {image: '" + containerdtest.Image + "', timeout_seconds: 300}}\n",
		"tasks.jsonl":   `{"id": "sleeps", "input": {"instructions": "x"}, "eval": {"checker": {"command": "true"}}}` + "\n",
		"tester.yaml": "schema_version: '0.2'\nrun: {id: live, output_dir: out}\nbenchmark: {manifest: manifest.yaml, tasks: tasks.jsonl}\n" +
			"harness: {type: command, config: {command: [sleep, '" + seconds + "']}}\n",
	})
	return filepath.Join(dir, "tester.yaml")
}

// TestPtyRun: the bar stays above the verdicts, and the last line of a whole run, and of its
// resumption, is the summary.
func TestPtyRun(t *testing.T) {
	h, config := newHost(t), sleeper(t, "0")
	for _, test := range []struct {
		args []string
		want []string
	}{
		{nil, []string{" 1/1  1 passed  0 failed  0 error  ", "\r[1/1] passed sleeps ", "\nsleeps  passed"}},
		{[]string{"--resume"}, []string{"sbench: 1 attempts were recorded before", " 1/1  0 passed "}},
	} {
		p := newPty(t, 200, 24)
		cmd := p.start(t, h, append([]string{"run", "--config", config}, test.args...)...)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v", err)
		}
		must(t, p.slave.Close())
		<-p.gone // everything is on the terminal
		got := p.text()
		lines := strings.Split(strings.TrimSpace(got), "\n")
		if last := lines[len(lines)-1]; !strings.HasPrefix(last, "sbench: run_id=live total=1 verification=complete verified=1 passed=1 output=") {
			t.Errorf("the last line is %q", last)
		}
		for _, want := range test.want {
			if !strings.Contains(redraw.ReplaceAllString(got, "\n"), want) {
				t.Errorf("no %q:\n%q", want, got)
			}
		}
		p.unbroken(t)
	}
}

// TestPtyInterrupted: after Ctrl-C, a hang-up, a crash and a kill, the terminal can be
// used as before.
func TestPtyInterrupted(t *testing.T) {
	h := newHost(t)
	t.Cleanup(func() { h.sbench(0, "gc") }) // removes the sandboxes and files of the killed runs
	for _, test := range []struct {
		name  string
		end   func(p *pty, cmd *exec.Cmd) error
		code  int
		shows string
	}{
		{"ctrl-c", func(p *pty, _ *exec.Cmd) error { _, err := p.master.WriteString("\x03"); return err }, 130, "sbench: the run was stopped"},
		{"ctrl-c twice", func(p *pty, _ *exec.Cmd) error { _, err := p.master.WriteString("\x03\x03"); return err }, 130, "\nsbench: "},
		{"hangup", func(_ *pty, cmd *exec.Cmd) error { return cmd.Process.Signal(syscall.SIGHUP) }, 130, "sbench: the run was stopped"},
		{"crash", func(_ *pty, cmd *exec.Cmd) error { return cmd.Process.Signal(syscall.SIGQUIT) }, 2, "SIGQUIT: quit"},
		{"kill", func(_ *pty, cmd *exec.Cmd) error { return cmd.Process.Kill() }, -1, " 0/1  0 passed "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h, p := newHost(t), newPty(t, 80, 24)
			cmd := p.start(t, h, "run", "--config", sleeper(t, "300"))
			p.await(t, " 0/1  0 passed  0 failed  0 error  1s")
			must(t, test.end(p, cmd))
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != test.code {
				t.Errorf("exit code %d, want %d", got, test.code)
			}
			p.await(t, test.shows)
			must(t, p.slave.Close())
			<-p.gone // everything is on the terminal
			p.unbroken(t)
		})
	}
}

// TestIsTerminal: a bar is drawn only on a terminal that somebody may watch.
func TestIsTerminal(t *testing.T) {
	p, flat := newPty(t, 80, 24), newPty(t, 0, 0)
	r, w, err := os.Pipe()
	must(t, err)
	defer func() { must(t, errors.Join(r.Close(), w.Close())) }()
	for _, test := range []struct {
		name string
		out  io.Writer
		env  map[string]string
		want bool
	}{
		{"a terminal", p.slave, map[string]string{"TERM": "xterm"}, true},
		{"dumb", p.slave, map[string]string{"TERM": "dumb"}, false},
		{"no kind of terminal", p.slave, nil, false},
		{"continuous integration", p.slave, map[string]string{"TERM": "xterm", "CI": "true"}, false},
		{"a terminal without a size", flat.slave, map[string]string{"TERM": "xterm"}, false},
		{"a pipe", w, map[string]string{"TERM": "xterm"}, false},
		{"a buffer", &bytes.Buffer{}, map[string]string{"TERM": "xterm"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := isTerminal(test.out, func(name string) string { return test.env[name] }); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// onPty returns an app whose standard error is a terminal, and the function that ends it.
func onPty(t *testing.T, columns int) (a *app, p *pty, end func() string) {
	t.Helper()
	t.Setenv("TERM", "xterm")
	t.Setenv("CI", "")
	p = newPty(t, columns, 24)
	a = &app{stderr: p.slave}
	return a, p, func() string {
		t.Helper()
		a.endBar()
		_, err := p.slave.WriteString("the end\n")
		must(t, err)
		p.await(t, "the end\r\n")
		p.unbroken(t)
		return redraw.ReplaceAllString(p.text(), "\n")
	}
}

// TestProgressOnTerminal: --progress decides, too, and two runs of one command share the
// terminal.
func TestProgressOnTerminal(t *testing.T) {
	for _, format := range []string{"auto", "plain", "json"} {
		t.Run(format, func(t *testing.T) {
			a, _, end := onPty(t, 100)
			for n := range 2 {
				show := progress(a, format, false)
				show(run.Event{Time: time.Now(), Kind: run.RunStart, Tasks: 2, Attempts: 2, Detail: "tasks: 2"})
				show(run.Event{Time: time.Now(), Kind: run.TaskDone, Task: "the-task", Status: record.Error, Again: true})
				_, _ = fmt.Fprint(a.stderr, "level=WARN msg=")
				_, _ = fmt.Fprintln(a.stderr, "n", n)
				show(run.Event{Time: time.Now(), Kind: run.TaskDone, Task: "the-task", Status: record.Passed})
				show(run.Event{Time: time.Now(), Kind: run.RunDone})
				_, _ = fmt.Fprintln(a.stderr, "a late warning")
			}
			got := end()
			if format == "json" {
				if !strings.Contains(got, "run_done") || strings.Contains(got, " 1/2  ") {
					t.Errorf("%q", got)
				}
				return
			}
			for want, times := range map[string]int{
				"sbench: tasks: 2\r\n": 2, "[0/2] error the-task": 2, "[1/2] passed the-task": 2, "a late warning\r\n": 2,
				" 1/2  1 passed  0 failed  0 error  0s\r\n": map[string]int{"auto": 2}[format],
			} {
				if strings.Count(got, want) < times || times == 0 && strings.Contains(got, want) {
					t.Errorf("%d times %q, want %d:\n%q", strings.Count(got, want), want, times, got)
				}
			}
			if format == "auto" && (!strings.Contains(got, "\rlevel=WARN msg=n 0\r\n") || !strings.Contains(got, "\rlevel=WARN msg=n 1\r\n")) {
				t.Errorf("a line was torn:\n%q", got)
			}
		})
	}
}

// TestBarResized: on a terminal that is made narrower, the bar is, too.
func TestBarResized(t *testing.T) {
	a, p, end := onPty(t, 100)
	progress(a, "auto", false)(run.Event{Kind: run.RunStart, Tasks: 1, Attempts: 1})
	p.await(t, " 0/1  0 passed  0 failed  0 error  ")
	must(t, unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 20, Row: 10}))
	p.await(t, "\r0/1  0 passed  0 fa…")
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
		a, _, end := onPty(t, columns)
		show := progress(a, "auto", false, run.AgentOutput, run.SandboxCommand, run.SandboxResult)
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
	for _, test := range []struct {
		format string
		quiet  bool
	}{{"auto", false}, {"plain", false}, {"json", false}, {"none", false}, {"auto", true}} {
		t.Run(fmt.Sprint(test.format, test.quiet), func(t *testing.T) {
			var out bytes.Buffer
			show := progress(&app{stderr: &out}, test.format, test.quiet)
			if test.quiet || test.format == "none" {
				if show != nil {
					t.Error("shows something")
				}
				return
			}
			events := hostileEvents()
			for _, e := range events {
				show(e)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			for i, line := range lines {
				var e run.Event
				switch err := json.Unmarshal([]byte(line), &e); {
				case test.format != "json" && !regexp.MustCompile(`^(\[\d+/10000\] failed |sbench: )`).MatchString(line), strings.ContainsFunc(line, unicode.IsControl) && test.format != "json":
					t.Errorf("%q", line)
				case test.format == "json" && (err != nil || e.Kind != events[i].Kind || len(lines) != len(events)):
					t.Errorf("line %d of %d is %q: %v", i, len(lines), line, err)
				}
			}
		})
	}
}
