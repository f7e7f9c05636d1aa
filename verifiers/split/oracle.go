package split

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/securebench"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
)

const (
	maxLine        = 2 << 20  // bytes of a line of an oracle
	maxDiagnostics = 64 << 10 // bytes
	keptOutput     = 64 << 10 // bytes of each stream of an oracle
	oracleWall     = 24 * time.Hour
)

// oracle is a running oracle, which reads and writes lines.
type oracle struct {
	sandbox       runtime.Sandbox
	limit         time.Duration // for each line
	stdin, stdout net.Conn      // the ends of the pipes that are sbench's
	lines         *bufio.Reader // of stdout
	kill          context.CancelFunc
	ended         chan struct{} // closed when the process has ended; then exit and err are set
	exit          runtime.Exit
	err           error
}

// startOracle starts the oracle in a sandbox of its own, with nothing of the candidate.
func (c *check) startOracle(ctx context.Context, args []string, limit time.Duration) (o *oracle, err error) {
	cfg := runtime.Config{
		Name: "oracle", Image: c.in.CheckerImage, Limits: runtime.DefaultLimits(), Workdir: paths.CheckerMount,
		Mounts: []runtime.Mount{{Source: filepath.Join(c.volume, oracleDir), Dest: paths.CheckerMount}},
		Env:    []string{"PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"},
	}
	if v := c.in.Task.Verification(); v != nil {
		cfg.Workdir = hostPath(v, strings.TrimPrefix(v.Oracle, "host."))
	}
	input, stdin := net.Pipe()
	stdout, output := net.Pipe()
	o = &oracle{limit: limit, stdin: stdin, stdout: stdout, lines: bufio.NewReaderSize(stdout, maxLine), ended: make(chan struct{})}
	if o.sandbox, err = c.engine.Create(ctx, cfg); err != nil {
		return nil, fmt.Errorf("the oracle's sandbox: %w", err)
	}
	ctx, o.kill = context.WithCancel(ctx)
	go func() {
		o.exit, o.err = o.sandbox.Exec(ctx, runtime.Process{
			Args: args, Stdin: input, Stdout: output, Wall: oracleWall, Grace: time.Millisecond, OutputBytes: keptOutput,
		})
		_, _ = input.Close(), output.Close()
		close(o.ended)
	}()
	return o, nil
}

// hostPath returns where the oracle's sandbox has a resource of a pack of SecureBench 2.0.
func hostPath(v *securebench.Verification, id string) string {
	return path.Join(paths.CheckerMount, id, path.Base(v.Resources.Host[id].Path))
}

func (o *oracle) stop() {
	o.kill()
	_, _ = o.stdin.Close(), o.stdout.Close()
	<-o.ended
}

// broken returns the error of an oracle that broke, or the error of its sandbox.
func (o *oracle) broken(ctx context.Context, how string) error {
	o.stop()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(o.err, runtime.ErrNotStarted):
		how = "it could not be executed"
	case o.err != nil && !errors.Is(o.err, context.Canceled):
		return fmt.Errorf("the oracle's sandbox: %w", o.err)
	case o.err == nil && !o.exit.Success():
		how += ", and it " + o.exit.String()
	}
	return &broken{part: oracleDir, how: how, exit: o.exit}
}

func (o *oracle) say(ctx context.Context, message any) error {
	text, err := document.Marshal(message)
	if err != nil {
		return err
	}
	_ = o.stdin.SetWriteDeadline(time.Now().Add(o.limit)) // it fails if the other end is closed, as Write then does
	if _, err := o.stdin.Write(append(text, '\n')); err != nil {
		return o.broken(ctx, fmt.Sprintf("it ended before it had read everything, or read nothing for %s", o.limit))
	}
	return nil
}

// hear waits for the next line, which is one JSON value.
func (o *oracle) hear(ctx context.Context) (v document.Value, err error) {
	_ = o.stdout.SetReadDeadline(time.Now().Add(o.limit)) // it fails if the other end is closed, as ReadSlice then does
	line, err := o.lines.ReadSlice('\n')
	line = bytes.TrimSpace(line)
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return v, o.broken(ctx, fmt.Sprintf("it wrote a line of more than %d bytes", maxLine))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return v, o.broken(ctx, fmt.Sprintf("it wrote nothing for %s; it may not flush its output", o.limit))
	case err != nil && len(line) == 0:
		return v, o.broken(ctx, "it ended before it had said everything")
	}
	if v, err = parse(bytes.Clone(line)); err != nil {
		return v, o.broken(ctx, "it wrote a line that is "+err.Error())
	}
	return v, nil
}

// lastWord waits for the last line, after which the oracle must end well and say nothing more.
func (o *oracle) lastWord(ctx context.Context) (document.Value, error) {
	_ = o.stdin.Close()
	last, err := o.hear(ctx)
	if err != nil {
		return last, err
	}
	switch _, err := o.lines.ReadByte(); {
	case err == nil:
		return last, o.broken(ctx, "it wrote more after its verdict")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return last, o.broken(ctx, fmt.Sprintf("it had not ended %s after its verdict", o.limit))
	}
	if <-o.ended; o.err != nil || !o.exit.Success() {
		return last, o.broken(ctx, "after its verdict")
	}
	return last, nil
}

// verdict reads what an oracle decided, and what it tells everybody. A pass without a score has the score 1.
func (o *oracle) verdict(ctx context.Context, passed, score, diagnostics document.Value) (v verifiers.Verdict, err error) {
	n, ok := score.Float64()
	if score.Kind() == 0 && passed.IsTrue() {
		n = 1
	}
	switch {
	case passed.Kind() != document.Bool:
		return v, o.broken(ctx, `its verdict has no boolean "passed"`)
	case score.Kind() != 0 && !ok || n < 0 || n > 1:
		return v, o.broken(ctx, "the score of its verdict is no number from 0 to 1")
	case diagnostics.Kind() != 0 && (diagnostics.Kind() != document.Object || len(diagnostics.Raw()) > maxDiagnostics):
		return v, o.broken(ctx, fmt.Sprintf("the diagnostics of its verdict are no object of at most %d bytes", maxDiagnostics))
	}
	if v = (verifiers.Verdict{Status: verifiers.Passed, Assurance: verifiers.Sealed}); !passed.IsTrue() {
		v = verifiers.Fail("oracle_rejected", fmt.Sprintf("the oracle does not accept the candidate's answers (score %.3g)", n))
	}
	if v.Score = n; diagnostics.Kind() != 0 {
		v = v.With("diagnostics", diagnostics.Any())
	}
	return v, nil
}

func (o *oracle) close(ctx context.Context) (err error) {
	o.stop()
	if errors.Is(o.err, runtime.ErrStillAlive) {
		err = o.err
	}
	return errors.Join(err, o.sandbox.Close(ctx))
}
