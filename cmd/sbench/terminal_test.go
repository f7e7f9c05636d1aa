package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/pty"
)

// start runs sbench with all three of its streams on the terminal.
func start(t *testing.T, p *pty.Terminal, h testHost, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sbench", args...)
	cmd.Env = append(h.env, "TERM=xterm-256color", "CI=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Slave, p.Slave, p.Slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// sleeper writes a pack with one task, and returns a tester file with a harness that sleeps.
func sleeper(t *testing.T, seconds string) (config string) {
	return writePack(t, filepath.Join(t.TempDir(), "live"), taskRow("sleeps", "true", ""), commandHarness("sleep "+seconds))
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
		p := pty.New(t, 200, 24)
		cmd := start(t, p, h, append([]string{"run", "--config", config}, test.args...)...)
		must.Report(t, cmd.Wait())
		p.Hangup(t)
		got := p.Text()
		lines := strings.Split(strings.TrimSpace(got), "\n")
		if last := lines[len(lines)-1]; !strings.HasPrefix(last, "sbench: run_id=live total=1 verification=complete verified=1 passed=1 output=") {
			t.Errorf("the last line is %q", last)
		}
		must.Contains(t, pty.Redraw().ReplaceAllString(got, "\n"), test.want...)
		p.Unbroken(t)
	}
}

// TestPtyInterrupted: after Ctrl-C and a hang-up, the terminal can be used as before.
func TestPtyInterrupted(t *testing.T) {
	h := newHost(t)
	t.Cleanup(func() { h.sbench(0, "gc") }) // removes the sandboxes and files of the killed runs
	for _, test := range []struct {
		name  string
		end   func(p *pty.Terminal, cmd *exec.Cmd) error
		code  int
		shows string
	}{
		{"ctrl-c", func(p *pty.Terminal, _ *exec.Cmd) error { _, err := p.Master.WriteString("\x03"); return err }, 130, "sbench: the run was stopped"},
		{"ctrl-c twice", func(p *pty.Terminal, _ *exec.Cmd) error { _, err := p.Master.WriteString("\x03\x03"); return err }, 130, "\nsbench: "},
		{"hangup", func(_ *pty.Terminal, cmd *exec.Cmd) error { return cmd.Process.Signal(syscall.SIGHUP) }, 130, "sbench: the run was stopped"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h, p := newHost(t), pty.New(t, 80, 24)
			cmd := start(t, p, h, "run", "--config", sleeper(t, "300"))
			p.Await(t, " 0/1  0 passed  0 failed  0 error  ")
			must.Do(t, test.end(p, cmd))
			_ = cmd.Wait()
			must.Equal(t, test.code, cmd.ProcessState.ExitCode())
			p.Await(t, test.shows)
			p.Hangup(t)
			p.Unbroken(t)
		})
	}
}
