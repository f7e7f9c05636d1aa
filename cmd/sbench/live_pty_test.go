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
	"syscall"
	"testing"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime/containerd/containerdtest"
)

// pty is a pseudo-terminal of the kernel, whose output is shown on a screen.
type pty struct {
	master, slave *os.File
	before        *unix.Termios
	screen        *screen
	changed       chan struct{} // the screen has changed
	gone          chan struct{} // nobody has the slave open
}

func newPty(t *testing.T, columns, rows int) *pty {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	must(t, err)
	must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(t, err)
	p := &pty{master: os.NewFile(uintptr(fd), "ptmx"), screen: newScreen(columns, rows), changed: make(chan struct{}, 1), gone: make(chan struct{})}
	p.slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	must(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)}))
	p.before, err = unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	must(t, err)
	t.Cleanup(func() { _ = p.slave.Close(); <-p.gone; _ = p.master.Close() })
	go p.read()
	return p
}

// read shows the output on the screen until the last writer is gone (EIO).
func (p *pty) read() {
	defer close(p.gone)
	buf := make([]byte, 4096)
	for {
		n, err := p.master.Read(buf)
		if err != nil {
			return
		}
		p.screen.mu.Lock()
		p.screen.feed(string(buf[:n]))
		p.screen.mu.Unlock()
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
}

// await waits until the screen shows want.
func (p *pty) await(t *testing.T, want string) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for !strings.Contains(p.screen.text(), want) {
		select {
		case <-p.changed:
		case <-late:
			t.Fatalf("no %q:\n%s", want, p.screen.text())
		}
	}
}

// unbroken fails unless the terminal's mode is as it was, and its cursor on a free line.
func (p *pty) unbroken(t *testing.T) {
	t.Helper()
	now, err := unix.IoctlGetTermios(int(p.master.Fd()), unix.TCGETS) // of the slave
	must(t, err)
	if *now != *p.before {
		t.Errorf("the modes are %+v, were %+v", now, p.before)
	}
	p.screen.sane(t)
}

// start runs sbench with all three of its streams on the terminal.
func (p *pty) start(t *testing.T, h host, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sbench", args...)
	cmd.Env = append(h.env, "TERM=xterm-256color", "CI=", "NO_COLOR=")
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
	for file, text := range map[string]string{
		"manifest.yaml": "id: p\nversion: 1\ndefaults: {family: terminal_task, environment: {image: '" + containerdtest.Image + "', timeout_seconds: 300}}\n",
		"tasks.jsonl":   `{"id": "sleeps", "input": {"instructions": "x"}, "eval": {"checker": {"command": "true"}}}` + "\n",
		"tester.yaml": "schema_version: '0.2'\nrun: {id: live, output_dir: out}\nbenchmark: {manifest: manifest.yaml, tasks: tasks.jsonl}\n" +
			"harness: {type: command, config: {command: [sleep, '" + seconds + "']}}\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
	return filepath.Join(dir, "tester.yaml")
}

// TestPtyRun: the last line of a whole run, and of its resumption, is the summary.
func TestPtyRun(t *testing.T) {
	h, config := newHost(t), sleeper(t, "0")
	for _, test := range []struct {
		args []string
		want []string
	}{
		{nil, []string{" 1/1 ", "1 passed", "\nsleeps  passed"}},
		{[]string{"--resume"}, []string{"sbench: 1 attempts were recorded before", " 1/1 ", "0 passed", "1 recorded before"}},
	} {
		p := newPty(t, 200, 24)
		cmd := p.start(t, h, append([]string{"run", "--config", config}, test.args...)...)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v", err)
		}
		must(t, p.slave.Close())
		<-p.gone // everything is on the screen
		got := p.screen.text()
		lines := strings.Split(got, "\n")
		if last := lines[len(lines)-2]; !strings.HasPrefix(last, "sbench: run_id=live total=1 verification=complete verified=1 passed=1 output=") {
			t.Errorf("the last line is %q", last)
		}
		if strings.Count(got, "attempts [") != 1 || strings.Contains(got, "run_start") {
			t.Errorf("%s", got)
		}
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("no %q:\n%s", want, got)
			}
		}
		p.unbroken(t)
	}
}

// TestPtyResizes changes the size of a terminal that a run is on.
func TestPtyResizes(t *testing.T) {
	h, p := newHost(t), newPty(t, 80, 24)
	cmd := p.start(t, h, "run", "--config", sleeper(t, "300"))
	p.await(t, "  harness ")
	p.screen.mu.Lock()
	p.screen.columns = 40 // the screen keeps its lines, as xterm does
	p.screen.mu.Unlock()
	must(t, unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 40, Row: 10}))
	p.await(t, "\n  0 pending\n") // it was on the line before
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
}

// TestPtyInterrupted: after Ctrl-C, a hang-up, a crash and a kill, the terminal can be
// used as before.
func TestPtyInterrupted(t *testing.T) {
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
		{"kill", func(_ *pty, cmd *exec.Cmd) error { return cmd.Process.Kill() }, -1, "  harness "},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, p := newHost(t), newPty(t, 80, 24)
			cmd := p.start(t, h, "run", "--config", sleeper(t, "300"))
			p.await(t, "  harness ")
			must(t, test.end(p, cmd))
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != test.code {
				t.Errorf("exit code %d, want %d", got, test.code)
			}
			p.await(t, test.shows)
			must(t, p.slave.Close())
			<-p.gone // everything is on the screen
			if got := p.screen.text(); strings.Count(got, "attempts [") != 1 {
				t.Errorf("%s", got)
			}
			p.unbroken(t)
		})
	}
	// The next command removes what the killed runs left.
	h := newHost(t)
	h.sbench(0, "gc")
}

// TestTerminalOf: on what a live view is shown.
func TestTerminalOf(t *testing.T) {
	p, flat := newPty(t, 80, 24), newPty(t, 0, 0)
	r, w, err := os.Pipe()
	must(t, err)
	defer func() { must(t, errors.Join(r.Close(), w.Close())) }()
	for _, test := range []struct {
		name         string
		out          io.Writer
		env          map[string]string
		live, colour bool
	}{
		{"a terminal", p.slave, map[string]string{"TERM": "xterm"}, true, true},
		{"no colour", p.slave, map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, true, false},
		{"dumb", p.slave, map[string]string{"TERM": "dumb"}, false, false},
		{"no kind of terminal", p.slave, nil, false, false},
		{"continuous integration", p.slave, map[string]string{"TERM": "xterm", "CI": "true"}, false, false},
		{"a terminal without a size", flat.slave, map[string]string{"TERM": "xterm"}, false, false},
		{"a pipe", w, map[string]string{"TERM": "xterm"}, false, false},
		{"a buffer", &bytes.Buffer{}, map[string]string{"TERM": "xterm"}, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, live := terminalOf(test.out, func(name string) string { return test.env[name] })
			if live != test.live || live && got.colour != test.colour {
				t.Errorf("live %v, colour %v", live, got.colour)
			}
		})
	}
}

// TestProgressOnTerminal: --progress decides, too, and two runs of one command share the
// terminal.
func TestProgressOnTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("CI", "")
	for _, format := range []string{"auto", "plain", "json"} {
		t.Run(format, func(t *testing.T) {
			p := newPty(t, 80, 24)
			a := &app{stderr: p.slave}
			for range 2 {
				show := progress(a, format, false)
				show(run.Event{Time: time.Now(), Kind: run.ImagePull, Detail: "a:1"})
				show(run.Event{Time: time.Now(), Kind: run.TaskDone, Task: "the-task", Status: record.Passed})
				show(run.Event{Time: time.Now(), Kind: run.RunDone})
			}
			a.endLive()
			_, err := p.slave.WriteString("the end\n")
			must(t, err)
			p.await(t, "the end")
			if got := p.screen.text(); strings.Contains(got, "run_done") != (format == "json") || strings.Contains(got, "] passed the-task") != (format == "plain") ||
				strings.Count(got, "images") != map[string]int{"auto": 2}[format] {
				t.Errorf("%s", got)
			}
			p.unbroken(t)
		})
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
