package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Launch calls start, which starts cmd with its output in the file log and a session of its own,
// and waits until ready reports true. It kills the program if that takes too long. An error of
// start is returned as it is; any other has the last lines of the log.
func Launch(ctx context.Context, cmd *exec.Cmd, log string, start func() error, ready func() bool) error {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready within %s", startTimeout))
	defer cancel()
	for !ready() {
		select {
		case err := <-exited:
			return fmt.Errorf("ended at once (%w); its last words: %s", cmp.Or(err, errors.New("exit status 0")), lastWords(log))
		case <-ctx.Done():
			_ = cmd.Process.Kill() // it may have ended meanwhile
			return fmt.Errorf("%w; its last words: %s", context.Cause(ctx), lastWords(log))
		case <-time.After(pollInterval):
		}
	}
	return nil
}

func lastWords(log string) string {
	text, err := os.ReadFile(log)
	if err != nil || len(text) == 0 {
		return "none"
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}
