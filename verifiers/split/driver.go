package split

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
)

// atOnce is how many questions are asked at the same time. Closing one sandbox then takes no time from the
// next.
const atOnce = 2

// answer is the evidence on one question.
type answer struct {
	evidence []byte
	err      error // a broken if the driver broke
}

// ask asks the questions, each in a new sandbox, and yields the answers in their order.
func (c *check) ask(ctx context.Context, candidate runtime.Config, driver compiler.SplitProgram, questions []json.RawMessage) iter.Seq[answer] {
	return func(yield func(answer) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var pending []chan answer
		defer func() {
			cancel()
			for _, p := range pending {
				<-p
			}
		}()
		next := func() bool {
			first := <-pending[0]
			pending = pending[1:]
			return yield(first)
		}
		for i, question := range questions {
			if len(pending) == atOnce && !next() {
				return
			}
			p := make(chan answer, 1)
			pending = append(pending, p)
			go func() {
				evidence, err := c.askOne(ctx, candidate, driver, i, question)
				p <- answer{evidence, err}
			}()
		}
		for len(pending) > 0 && next() {
		}
	}
}

// askOne asks one question and returns the evidence.
func (c *check) askOne(ctx context.Context, candidate runtime.Config, driver compiler.SplitProgram, i int, question json.RawMessage) ([]byte, error) {
	d := drive{args: driver.Args(), wall: orMinute(driver.Timeout), output: maxAnswer, request: question}
	exit, err := c.drive(ctx, candidate, d)
	if err != nil {
		return nil, fmt.Errorf("question %d: %w", i, err)
	}
	said, how := answerOf(exit)
	if how != "" {
		return nil, &broken{Part: driverDir, How: fmt.Sprintf("question %d: %s", i, how), Exit: exit}
	}
	return json.Marshal(struct {
		Index    int             `json:"index"`
		Question json.RawMessage `json:"question"`
		Sandbox  string          `json:"sandbox"`
		Seconds  float64         `json:"seconds"`
		Answer   json.RawMessage `json:"answer"` // the last, for shells
	}{i, question, rand.Text(), exit.Wall.Round(time.Millisecond).Seconds(), said})
}

// answerOf returns the one JSON value that a driver wrote, or how it broke.
func answerOf(exit runtime.Exit) (said []byte, how string) {
	switch {
	case exit.Reason == 0:
		return nil, "it could not be executed"
	case exit.Reason == runtime.WallTime:
		return nil, "it was " + exit.String()
	case !exit.Success():
		return nil, "it " + exit.String()
	case exit.Stdout.Cut() > 0:
		return nil, fmt.Sprintf("its output has more than %d bytes", maxAnswer)
	}
	said = bytes.TrimSpace(exit.Stdout.Bytes())
	if _, err := parse(said); err != nil {
		return nil, "its output is " + err.Error()
	}
	return said, ""
}

// drive is one run of a driver.
type drive struct {
	args    []string
	wall    time.Duration
	output  int64 // bytes of its output
	request []byte
	stopped func(runtime.Sandbox) error // sees the sandbox after the driver has ended; nil for nothing
}

// drive runs a driver in a new sandbox. The Exit is zero if the driver
// could not be executed.
func (c *check) drive(ctx context.Context, cfg runtime.Config, d drive) (exit runtime.Exit, err error) {
	args, own, err := service.Beside(c.in.Services, d.args)
	if err != nil {
		return exit, err
	}
	cfg.Name, cfg.Mounts = "driver", slices.Concat(cfg.Mounts, c.mounts, own)
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
