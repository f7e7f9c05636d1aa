package split

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
)

const (
	maxLine    = 2 << 20 // bytes of a line of an oracle
	oracleWall = 24 * time.Hour
	keptOutput = 64 << 10 // bytes of each stream of an oracle
)

// oracle is a running oracle, which reads and writes lines.
type oracle struct {
	sandbox runtime.Sandbox
	stdin   *io.PipeWriter
	lines   chan []byte // closed when there are no more
	tooLong bool        // the last line was; set before lines is closed
	kill    context.CancelFunc
	ended   chan struct{} // closed when the process has ended; then exit and err are set
	exit    runtime.Exit
	err     error
}

// startOracle starts the oracle in a sandbox of its own, with nothing of the candidate.
func (c *check) startOracle(ctx context.Context, args []string) (*oracle, error) {
	cfg := runtime.Config{
		Name: "oracle", Image: c.in.Oracle, Limits: runtime.DefaultLimits(), Workdir: compiler.CheckerMount,
		Mounts: []runtime.Mount{{Source: filepath.Join(c.dir, oracleDir), Dest: compiler.CheckerMount}},
		Env:    []string{"PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"},
	}
	if v := c.in.Task.Verification(); v != nil {
		id := strings.TrimPrefix(v.Oracle, "host.")
		cfg.Workdir = path.Join(compiler.CheckerMount, id, path.Base(v.Resources.Host[id].Path))
	}
	sandbox, err := c.engine.Create(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("the oracle's sandbox: %w", err)
	}
	input, stdin := io.Pipe()
	output, stdout := io.Pipe()
	life, kill := context.WithCancel(ctx)
	o := &oracle{sandbox: sandbox, stdin: stdin, lines: make(chan []byte), kill: kill, ended: make(chan struct{})}
	go func() {
		o.exit, o.err = sandbox.Exec(life, runtime.Process{
			Args: args, Stdin: input, Stdout: stdout, Wall: oracleWall, Grace: time.Millisecond, OutputBytes: keptOutput,
		})
		close(o.ended)
		_, _ = input.CloseWithError(io.ErrClosedPipe), stdout.Close()
	}()
	go o.read(life, output)
	return o, nil
}

// read passes on the lines of the oracle.
func (o *oracle) read(ctx context.Context, output *io.PipeReader) {
	defer close(o.lines)
	defer func() { _, _ = io.Copy(io.Discard, output) }()
	lines := bufio.NewReaderSize(output, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if o.tooLong = errors.Is(err, bufio.ErrBufferFull); o.tooLong || len(bytes.TrimSpace(line)) == 0 && err != nil {
			return
		}
		select {
		case o.lines <- bytes.Clone(bytes.TrimSpace(line)):
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// broken returns the error of an oracle that broke, or the error of its sandbox.
func (o *oracle) broken(how string) error {
	o.kill()
	<-o.ended
	switch {
	case errors.Is(o.err, runtime.ErrNotStarted):
		how = "it could not be executed"
	case o.err != nil && !errors.Is(o.err, context.Canceled):
		return fmt.Errorf("the oracle's sandbox: %w", o.err)
	case o.err == nil && !o.exit.Success():
		how += ", and it " + o.exit.String()
	}
	return &broken{Part: oracleDir, How: how, Exit: o.exit}
}

// say sends a message as one line.
func (o *oracle) say(ctx context.Context, message any, limit time.Duration) error {
	text, err := marshal(message)
	if err != nil {
		return err
	}
	return o.write(ctx, text, limit)
}

// write sends a line.
func (o *oracle) write(ctx context.Context, text []byte, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	done := make(chan error, 1)
	go func() {
		_, err := o.stdin.Write(append(text, '\n'))
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return o.broken("it ended before it had read everything")
		}
		return nil
	case <-timer.C:
		return o.broken(fmt.Sprintf("it read nothing for %s", limit))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hear waits for the next line, which is one JSON value.
func (o *oracle) hear(ctx context.Context, limit time.Duration) ([]byte, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case line, ok := <-o.lines:
		switch {
		case !ok && o.tooLong:
			return nil, o.broken(fmt.Sprintf("it wrote a line of more than %d bytes", maxLine))
		case !ok:
			return nil, o.broken("it ended before it had said everything")
		}
		if _, err := parse(line); err != nil {
			return nil, o.broken("it wrote a line that is " + err.Error())
		}
		return line, nil
	case <-timer.C:
		return nil, o.broken(fmt.Sprintf("it wrote nothing for %s; it may not flush its output", limit))
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// lastWord waits for the last line, after which the oracle must end well and say nothing more.
func (o *oracle) lastWord(ctx context.Context, limit time.Duration) ([]byte, error) {
	_ = o.stdin.Close()
	last, err := o.hear(ctx, limit)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case _, more := <-o.lines:
		if more || o.tooLong {
			return nil, o.broken("it wrote more after its verdict")
		}
		<-o.ended
	case <-timer.C:
		return nil, o.broken(fmt.Sprintf("it had not ended %s after its verdict", limit))
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if o.err != nil || !o.exit.Success() {
		return nil, o.broken("after its verdict")
	}
	return last, nil
}

// close ends the oracle and removes its sandbox.
func (o *oracle) close(ctx context.Context) error {
	o.kill()
	_ = o.stdin.Close()
	<-o.ended
	var err error
	if errors.Is(o.err, runtime.ErrStillAlive) {
		err = o.err
	}
	return errors.Join(err, o.sandbox.Close(ctx))
}
