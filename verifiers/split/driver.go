package split

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
)

// ask asks the questions, each in a new sandbox, up to three at a time, and calls tell with the evidence in
// their order. Two at a time wait for the kernel so much that they leave a third of two processors idle.
func (c *check) ask(ctx context.Context, s subject, driver compiler.SplitProgram, questions []json.RawMessage, tell func(json.RawMessage) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(1)
	for n := 2; c.in.Pace != nil && n <= min(3, len(questions)); n++ {
		give, spare := c.in.Pace.Spare()
		if !spare {
			break
		}
		defer give()
		group.SetLimit(n)
	}
	told := make(chan struct{}) // closed when tell has the evidence on the question before
	close(told)
	for i, question := range questions {
		if ctx.Err() != nil {
			break
		}
		before, after := told, make(chan struct{})
		told = after
		group.Go(func() error {
			evidence, err := c.askOne(ctx, s, driver, i, question)
			if err != nil {
				return fmt.Errorf("question %d: %w", i, err)
			}
			select {
			case <-before:
				defer close(after)
				return tell(evidence)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
	return group.Wait()
}

func (c *check) askOne(ctx context.Context, s subject, driver compiler.SplitProgram, i int, question json.RawMessage) (json.RawMessage, error) {
	exit, err := c.drive(ctx, s.config, nil, runtime.Process{
		Args: driver.Args(), Wall: cmp.Or(driver.Timeout, defaultWall), OutputBytes: maxAnswer, Stdin: bytes.NewReader(append(slices.Clip(question), '\n')),
	})
	if err != nil {
		return nil, err
	}
	answer, how := answerOf(exit)
	if how != "" {
		return nil, &broken{driverDir, fmt.Sprintf("question %d: %s", i, how), exit}
	}
	return document.Marshal(struct {
		Index    int             `json:"index"`
		Question json.RawMessage `json:"question"`
		Sandbox  string          `json:"sandbox"`
		Seconds  float64         `json:"seconds"`
		Answer   json.RawMessage `json:"answer"` // the last, for shells
	}{i, question, rand.Text(), exit.Wall.Round(time.Millisecond).Seconds(), answer.Raw()})
}

func answerOf(exit runtime.Exit) (answer document.Value, how string) {
	switch {
	case exit.Reason == "":
		return answer, "it could not be executed"
	case exit.Reason == runtime.WallTime:
		return answer, "it was " + exit.String()
	case !exit.Success():
		return answer, "it " + exit.String()
	case exit.Stdout.Cut() > 0:
		return answer, fmt.Sprintf("its output has more than %d bytes", maxAnswer)
	}
	answer, err := parse(exit.Stdout.Bytes())
	if err != nil {
		return answer, "its output is " + err.Error()
	}
	return answer, ""
}

// drive runs a driver in a new sandbox, and calls stopped, unless nil, with the sandbox after the driver has ended.
// The Exit is zero if the driver could not be executed.
func (c *check) drive(ctx context.Context, cfg runtime.Config, stopped func(runtime.Sandbox) error, p runtime.Process) (exit runtime.Exit, err error) {
	if p.Args, err = c.in.Beside(c.in.Entrypoint(c.in.Image, false), p.Args, &cfg); err != nil {
		return exit, err
	}
	sandbox, err := service.Create(ctx, c.engine, cfg, c.in.Sidecars)
	if err != nil {
		return exit, fmt.Errorf("the driver's sandbox: %w", err)
	}
	p.Grace = time.Millisecond
	exit, err = sandbox.Exec(ctx, p)
	if errors.Is(err, runtime.ErrNotStarted) {
		exit, err = runtime.Exit{}, nil
	} else if err == nil && stopped != nil {
		err = stopped(sandbox)
	}
	if err = errors.Join(err, sandbox.Close(ctx)); err != nil {
		return exit, fmt.Errorf("the driver's sandbox: %w", err)
	}
	return exit, nil
}
