package fake_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/fake"
	"github.com/securebench/sbench/internal/test/runtimetest"
	"github.com/securebench/sbench/runtime"
)

func TestContract(t *testing.T) {
	e := &fake.Engine{Lookup: shell, Directory: t.TempDir()}
	runtimetest.Contract(t, e, runtime.Image{Ref: "fake"})
}

// files matches a file of the contract suite's scripts, with the sign of a redirection to it.
var files = regexp.MustCompile(`(> )?/(kept|new|log|before|work|left|link|agent|made|etc/passwd)\b[\w/]*`)

// shell runs a script in the host's shell, on the files of the sandbox.
func shell(args []string) fake.Program {
	if args[0] != "sh" {
		return nil
	}
	return func(ctx context.Context, p *fake.Proc) fake.Status {
		cmd := exec.Command("sh", "-c", files.ReplaceAllStringFunc(args[2], func(file string) string {
			name, written := strings.CutPrefix(file, "> ")
			host, writable := p.Path(name)
			if written && !writable {
				host = "/proc/read-only" // which nobody can make
			}
			return strings.TrimSuffix(file, name) + host
		}))
		cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Dir, p.Stdin, p.Stdout, p.Stderr
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
		for name, value := range p.Env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if cmd.Start() != nil {
			return fake.Status{Code: 126}
		}
		kill := func(s syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, s) } // all may have ended
		defer context.AfterFunc(ctx, func() { kill(syscall.SIGKILL) })()
		ended := make(chan struct{})
		go func() {
			select {
			case <-p.Term:
				kill(syscall.SIGTERM)
			case <-ended:
			}
		}()
		_ = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		close(ended)
		kill(syscall.SIGKILL) // what it left in the background
		_ = cmd.Wait()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
			return fake.Status{Signal: int(status.Signal())}
		}
		return fake.Status{Code: cmd.ProcessState.ExitCode()}
	}
}
