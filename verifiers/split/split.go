// Package split judges candidates in two places, so that no candidate ever is where the expectation is.
//
// A driver puts one question to the candidate and reports what the candidate did. It runs beside the
// candidate, in a new sandbox for every question, in which nothing is hidden. An oracle asks the questions,
// gets the answers as evidence that sbench has bound to question and sandbox, and judges them. It runs in a
// sandbox of its own, without candidate and network. Only its last word is a verdict.
//
// The door is [Verify]. A candidate is brought into a driver's sandbox by place.go; driver.go and oracle.go run the two.
package split

import (
	"bytes"
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

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/workspace"
)

const (
	maxAnswer      = 1 << 20 // bytes of a question, and of an answer
	maxDiagnostics = 64 << 10
	defaultWall    = time.Minute // for one answer of a driver or an oracle
	stageInodes    = 1 << 16
)

// An input describes one verification.
type input struct {
	Task *compiler.Task
	Pack *compiler.Pack
	// Candidate describes a driver's sandbox, with the candidate at its place.
	Candidate runtime.Config
	Taken     *capture          // of a candidate for a task of SecureBench 2.0
	Sidecars  []service.Sidecar // in the network of each driver
	Services  []service.Service // beside each driver
	Oracle    runtime.Image
	Bytes     int64 // bounds the files of driver and oracle
}

// A result is what came of a verification: a verdict of the oracle or, if Broken is not nil, none.
type result struct {
	Passed      bool
	Score       float64        // 0 to 1
	Checks      map[string]any // for the record: questions, evidence and what else the oracle may tell
	Diagnostics map[string]any // what the oracle tells everybody; nil for nothing
	Broken      *broken
}

// broken says which part broke, so that there is no verdict.
type broken struct {
	Part string // driver or oracle
	How  string // for people; nothing that a process wrote
	Exit runtime.Exit
	// ByCandidate says that the part works without the candidate.
	ByCandidate bool
}

// Error implements error.
func (b *broken) Error() string { return b.Part + ": " + b.How }

// judge has the oracle judge the candidate. If a part breaks, everything is repeated in sandboxes without the
// candidate, which control describes. If a part breaks then, too, the pack is at fault, and else the
// candidate. An error means that nothing was judged.
func judge(ctx context.Context, e verifiers.Engine, in input, control func(context.Context) (runtime.Config, error)) (r result, err error) {
	vol, err := e.NewVolume(ctx, runtime.VolumeConfig{Bytes: in.Bytes, Inodes: stageInodes})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, vol.Close()) }()
	c := check{engine: e, in: in, dir: vol.Path(), seed: rand.Text()}
	if err := c.stage(ctx); err != nil {
		return r, fmt.Errorf("stage driver and oracle: %w", err)
	}
	r, err = c.run(ctx, in.Candidate, in.Taken)
	var first, without *broken
	if !errors.As(err, &first) {
		return r, err
	}
	cfg, err := control(ctx)
	if err == nil {
		_, err = c.run(ctx, cfg, &capture{})
	}
	switch {
	case errors.As(err, &without):
		return result{Broken: without}, nil
	case err != nil:
		return result{}, fmt.Errorf("without the candidate: %w", err)
	}
	first.ByCandidate = true
	return result{Broken: first}, nil
}

// check is one verification.
type check struct {
	engine verifiers.Engine
	in     input
	dir    string          // a volume with the files of driver and oracle
	mounts []runtime.Mount // of the files of the drivers
	seed   string          // the oracle makes the same questions of the same seed
}

const (
	driverDir = "driver"
	oracleDir = "oracle"
)

// stage writes the files of the programs from the pack, each into a directory that its sandbox mounts.
func (c *check) stage(ctx context.Context) error {
	driver, oracle, err := workspace.PlanSplit(c.in.Task, c.in.Pack)
	for name, plan := range map[string]workspace.Plan{driverDir: driver, oracleDir: oracle} {
		at := filepath.Join(c.dir, name)
		err = errors.Join(err, os.Mkdir(at, 0o755))
		if err == nil {
			err = plan.WriteDir(ctx, at, workspace.WriteOptions{MaxBytes: c.in.Bytes})
		}
	}
	c.mounts = []runtime.Mount{{Source: filepath.Join(c.dir, driverDir), Dest: compiler.CheckerMount}}
	if c.in.Task.Verification() != nil {
		c.mounts = nil
		for _, e := range driver.Entries {
			c.mounts = append(c.mounts, runtime.Mount{Source: filepath.Join(c.dir, driverDir, e.Dest), Dest: "/" + e.Dest})
		}
	}
	return err
}

// run asks all questions in sandboxes like candidate, and returns the oracle's verdict. The error may be a
// broken.
func (c *check) run(ctx context.Context, candidate runtime.Config, taken *capture) (r result, err error) {
	split := c.in.Task.Split()
	if split == nil {
		return c.runSecureBench(ctx, candidate, taken)
	}
	limit := orMinute(split.Oracle.Timeout)
	oracle, err := c.startOracle(ctx, split.Oracle.Args())
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, oracle.close(ctx)) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := oracle.say(ctx, map[string]any{"seed": c.seed, "questions": split.Questions}, limit); err != nil {
		return r, err
	}
	questions := make([]json.RawMessage, split.Questions)
	for i := range questions {
		questions[i], err = oracle.hear(ctx, limit)
		if err == nil && len(questions[i]) > maxAnswer {
			err = oracle.broken(fmt.Sprintf("it wrote a question of more than %d bytes", maxAnswer))
		}
		if err != nil {
			return r, err
		}
	}
	var digests []string
	for answer := range c.ask(ctx, candidate, split.Driver, questions) {
		evidence, err := answer.evidence, answer.err
		if err == nil {
			digests = append(digests, digest(evidence))
			err = oracle.write(ctx, evidence, limit)
		}
		if err != nil {
			return r, err
		}
	}
	last, err := oracle.lastWord(ctx, limit)
	if err != nil {
		return r, err
	}
	r, err = verdictOf(last)
	if err != nil {
		return r, oracle.broken(err.Error())
	}
	r.Checks = map[string]any{"questions": split.Questions, "seed": c.seed, "evidence": digests}
	return r, nil
}

// verdictOf reads the last word of an oracle: {"passed": BOOLEAN, "score": NUMBER, "diagnostics": OBJECT}.
func verdictOf(text []byte) (r result, err error) {
	doc, err := parse(text)
	if err != nil {
		return r, fmt.Errorf("its verdict is %w", err)
	}
	passed, score := doc.Get("passed"), doc.Get("score")
	diagnostics := doc.Get("diagnostics")
	for key := range doc.Fields() {
		if !slices.ContainsFunc([]string{"passed", "score", "diagnostics"}, key.Is) {
			return r, errors.New("its verdict has a key other than passed, score and diagnostics")
		}
	}
	r.Passed = passed.IsTrue()
	if r.Passed {
		r.Score = 1
	}
	number, ok := score.Float64()
	switch {
	case passed.Kind() != document.Bool:
		return r, errors.New(`its verdict has no boolean "passed"`)
	case score.Kind() != 0 && (!ok || number < 0 || number > 1):
		return r, errors.New("the score of its verdict is no number from 0 to 1")
	case score.Kind() != 0:
		r.Score = number
	}
	return r, r.setDiagnostics(diagnostics)
}

// setDiagnostics sets what the oracle tells everybody.
func (r *result) setDiagnostics(v document.Value) error {
	if v.Kind() != 0 && (v.Kind() != document.Object || len(v.Raw()) > maxDiagnostics) {
		return fmt.Errorf("the diagnostics of its verdict are no object of at most %d bytes", maxDiagnostics)
	}
	r.Diagnostics, _ = v.Any().(map[string]any)
	return nil
}

// maxNesting bounds how deep values nest that a candidate, a driver or an oracle wrote. It is smaller than the bound
// of package document, so that evidence with such a value in it can be read, too.
const maxNesting = 900

// parse reads one JSON value. The error says what is wrong without quoting it.
func parse(text []byte) (document.Value, error) {
	v, err := parseOwn(text)
	if err == nil && nests(v, maxNesting) {
		return document.Value{}, fmt.Errorf("not one JSON value: values nest more than %d deep", maxNesting)
	}
	return v, err
}

// nests reports whether more than depth arrays and objects are inside one another.
func nests(v document.Value, depth int) bool {
	deeper := false
	for _, item := range v.Items() {
		deeper = deeper || nests(item, depth-1)
	}
	for _, field := range v.Fields() {
		deeper = deeper || nests(field, depth-1)
	}
	return deeper || depth <= 0 && (v.Kind() == document.Array || v.Kind() == document.Object)
}

// parseOwn is parse for what this package wrote.
func parseOwn(text []byte) (document.Value, error) {
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

func orMinute(limit time.Duration) time.Duration {
	if limit == 0 {
		return defaultWall
	}
	return limit
}
