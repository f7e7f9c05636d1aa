// Package split judges candidates in two places, so that no candidate ever is where the expectation is.
//
// A driver puts one question to the candidate and reports what the candidate did. It runs beside the
// candidate, in a new sandbox for every question, in which nothing is hidden. An oracle asks the questions,
// gets the answers as evidence that sbench has bound to question and sandbox, and judges them. It runs in a
// sandbox of its own, without candidate and network. Only its last word is a verdict.
//
// The door is [Verify]. place.go brings a candidate into the drivers' sandboxes; driver.go and oracle.go run the
// two programs, and securebench.go has what packs of SecureBench 2.0 do in place of [check.converse]. For these packs,
// capture.go, parsers.go and parse.py read what a candidate left.
package split

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/workspace"
)

const (
	maxAnswer   = 1 << 20     // bytes of a question, and of an answer
	defaultWall = time.Minute // for one answer of a driver or an oracle
)

// Directories of the volume of a check.
const (
	driverDir    = "driver"
	oracleDir    = "oracle"
	candidateDir = "candidate"
)

// check is one verification.
type check struct {
	engine verifiers.Engine
	in     verifiers.Input
	volume string          // has the files of driver and oracle, and of the candidate
	mounts []runtime.Mount // of the files of the driver
	seed   string          // the oracle makes the same questions of the same seed
	done   []func() error  // called afterwards, the last first
}

// broken is the error of a driver or an oracle that broke, so that there is no verdict.
type broken struct {
	part string // driverDir or oracleDir
	how  string // for people; nothing that a process wrote
	exit runtime.Exit
}

// Error implements error.
func (b *broken) Error() string { return b.part + ": " + b.how }

func (b *broken) reason() string {
	return map[string]string{driverDir: "driver_broken", oracleDir: "oracle_broken"}[b.part]
}

// denied is the error of a candidate that comes into no sandbox, with the verdict.
type denied struct{ verifiers.Verdict }

// Error implements error.
func (d *denied) Error() string { return d.Message }

// Verify has an oracle judge the candidate by what a driver saw it do. If one of the two breaks, everything is
// repeated in sandboxes without the candidate. If one breaks then, too, the pack is at fault, and else the candidate.
func Verify(ctx context.Context, e verifiers.Engine, in verifiers.Input) (v verifiers.Verdict, err error) {
	vol, err := in.Stage(ctx, e)
	if err != nil {
		return v, err
	}
	if in.CheckerImage.Ref == "" { // the oracle's
		in.CheckerImage = in.Image
	}
	c := &check{engine: e, in: in, volume: vol.Path(), seed: rand.Text(), done: []func() error{vol.Close}}
	defer func() {
		for _, done := range slices.Backward(c.done) {
			err = errors.Join(err, done())
		}
	}()
	if err := c.stage(ctx); err != nil {
		return v, fmt.Errorf("stage driver and oracle: %w", err)
	}
	s, err := c.candidate(ctx)
	if early := (*denied)(nil); errors.As(err, &early) {
		return early.Verdict, nil
	}
	if err != nil {
		return v, fmt.Errorf("prepare the candidate: %w", err)
	}
	v, err = c.converse(ctx, s)
	var first, without *broken
	if errors.As(err, &first) {
		if s.config, err = c.control(ctx); err == nil {
			s.taken = &capture{}
			_, err = c.converse(ctx, s)
		}
		switch {
		case errors.As(err, &without):
			v = verifiers.Fault(without.reason(), fmt.Sprintf("the %s breaks without the candidate, too: %s", without.part, without.how))
			first, err = without, nil
		case err != nil:
			return v, fmt.Errorf("without the candidate: %w", err)
		default:
			v = verifiers.Fail(first.reason(), fmt.Sprintf("the candidate broke the %s, which works without it: %s", first.part, first.how))
		}
		v.Stdout, v.Stderr = first.exit.Stdout, first.exit.Stderr
	}
	switch {
	case errors.Is(err, errPython):
		return verifiers.Fault("oracle_broken", errPython.Error()), nil
	case errors.Is(err, runtime.ErrDenied):
		return verifiers.Fail(verifiers.CommandDenied, "the tester file denies a command of the driver or the oracle"), nil
	}
	return v, err
}

// stage writes the files of the programs from the pack, each into a directory that its sandbox mounts.
func (c *check) stage(ctx context.Context) error {
	driver, oracle, err := workspace.PlanSplit(c.in.Task, c.in.Pack)
	for name, plan := range map[string]workspace.Plan{driverDir: driver, oracleDir: oracle, candidateDir: {}} {
		at := filepath.Join(c.volume, name)
		err = errors.Join(err, os.Mkdir(at, 0o755))
		if err == nil {
			err = plan.WriteDir(ctx, at, c.in.WorkspaceBytes)
		}
	}
	if c.in.Task.Verification() == nil {
		c.mounts = []runtime.Mount{{Source: filepath.Join(c.volume, driverDir), Dest: paths.CheckerMount}}
		return err
	}
	for _, e := range driver.Entries {
		c.mounts = append(c.mounts, runtime.Mount{Source: filepath.Join(c.volume, driverDir, e.Dest), Dest: "/" + e.Dest})
	}
	return err
}

// converse has the oracle ask all questions, and returns its verdict. The error may be a broken.
func (c *check) converse(ctx context.Context, s subject) (v verifiers.Verdict, err error) {
	split := c.in.Task.Split()
	if split == nil {
		return c.converseSecureBench(ctx, s)
	}
	o, err := c.startOracle(ctx, split.Oracle.Args(), cmp.Or(split.Oracle.Timeout, defaultWall))
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, o.close(ctx)) }()
	if err := o.say(ctx, map[string]any{"seed": c.seed, "questions": split.Questions}); err != nil {
		return v, err
	}
	questions := make([]json.RawMessage, split.Questions)
	for i := range questions {
		question, err := o.hear(ctx)
		if err != nil {
			return v, err
		}
		if questions[i] = question.Raw(); len(questions[i]) > maxAnswer {
			return v, o.broken(ctx, fmt.Sprintf("it wrote a question of more than %d bytes", maxAnswer))
		}
	}
	var digests []string
	err = c.ask(ctx, s, split.Driver, questions, func(evidence json.RawMessage) error {
		digests = append(digests, digest(evidence))
		return o.say(ctx, evidence)
	})
	if err != nil {
		return v, err
	}
	last, err := o.lastWord(ctx)
	if err != nil {
		return v, err
	}
	for key := range last.Fields() {
		if !slices.ContainsFunc([]string{"passed", "score", "diagnostics"}, key.Is) {
			return v, o.broken(ctx, "its verdict has a key other than passed, score and diagnostics")
		}
	}
	v, err = o.verdict(ctx, last.Get("passed"), last.Get("score"), last.Get("diagnostics"))
	return v.With("questions", split.Questions).With("seed", c.seed).With("evidence", digests), err
}

// parse reads one JSON value. The error says what is wrong without quoting it.
func parse(text []byte) (document.Value, error) {
	var doc document.Document
	switch problems := doc.ParseJSON(bytes.TrimSpace(text), 1); {
	case len(problems) > 0 && problems[0].Path != "": // its message quotes the key
		return document.Value{}, errors.New("not one JSON value: an object has a key twice")
	case len(problems) > 0:
		return document.Value{}, errors.New("not one JSON value: " + problems[0].Message)
	}
	return doc.Root(), nil
}

func digest(text []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(text)) }
