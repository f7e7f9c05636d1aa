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

// ask asks the questions, each in a new sandbox, and calls tell with the evidence on each, in their order. If the
// host has room, two questions are asked at the same time: closing one sandbox then takes no time from the next.
func (c *check) ask(ctx context.Context, s subject, driver compiler.SplitProgram, questions []json.RawMessage, tell func(json.RawMessage) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(1)
	if c.in.Pace != nil && len(questions) > 1 {
		if give, spare := c.in.Pace.Spare(); spare {
			defer give()
			group.SetLimit(2)
		}
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

// askOne asks one question and returns the evidence.
func (c *check) askOne(ctx context.Context, s subject, driver compiler.SplitProgram, i int, question json.RawMessage) (json.RawMessage, error) {
	exit, err := c.drive(ctx, s.config, drive{args: driver.Args(), wall: cmp.Or(driver.Timeout, defaultWall), output: maxAnswer, request: question})
	if err != nil {
		return nil, err
	}
	answer, how := answerOf(exit)
	if how != "" {
		return nil, &broken{part: driverDir, how: fmt.Sprintf("question %d: %s", i, how), exit: exit}
	}
	return marshal(struct {
		Index    int             `json:"index"`
		Question json.RawMessage `json:"question"`
		Sandbox  string          `json:"sandbox"`
		Seconds  float64         `json:"seconds"`
		Answer   json.RawMessage `json:"answer"` // the last, for shells
	}{i, question, rand.Text(), exit.Wall.Round(time.Millisecond).Seconds(), answer.Raw()})
}

// answerOf returns the one JSON value that a driver wrote, or how it broke.
func answerOf(exit runtime.Exit) (answer document.Value, how string) {
	switch {
	case exit.Reason == 0:
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

// drive is one run of a driver.
type drive struct {
	args    []string
	wall    time.Duration
	output  int64 // bytes of its output
	request []byte
	stopped func(runtime.Sandbox) error // sees the sandbox after the driver has ended; nil for nothing
}

// services returns what runs beside each driver: the entry point of the image, if the task wants it.
func (c *check) services() []service.Service {
	e := c.in.Task.Environment().Entrypoint
	args := e.Args(c.in.Image.Entrypoint)
	if args == nil {
		return nil
	}
	return []service.Service{{Args: args, Ready: e.Ready.Args(), Wait: e.Timeout}}
}

// drive runs a driver in a new sandbox. The Exit is zero if the driver could not be executed.
func (c *check) drive(ctx context.Context, cfg runtime.Config, d drive) (exit runtime.Exit, err error) {
	args, own, err := service.Beside(c.services(), d.args)
	if err != nil {
		return exit, err
	}
	cfg.Name, cfg.Mounts = driverDir, slices.Concat(cfg.Mounts, c.mounts, own)
	sandbox, err := service.Create(ctx, c.engine, cfg, c.in.Sidecars)
	if err != nil {
		return exit, fmt.Errorf("the driver's sandbox: %w", err)
	}
	exit, err = sandbox.Exec(ctx, runtime.Process{
		Args: args, Stdin: bytes.NewReader(append(slices.Clip(d.request), '\n')), Wall: d.wall, Grace: time.Millisecond, OutputBytes: d.output,
	})
	if errors.Is(err, runtime.ErrNotStarted) {
		exit, err = runtime.Exit{}, nil
	} else if err == nil && d.stopped != nil {
		err = d.stopped(sandbox)
	}
	if err = errors.Join(err, sandbox.Close(ctx)); err != nil {
		return exit, fmt.Errorf("the driver's sandbox: %w", err)
	}
	return exit, nil
}
