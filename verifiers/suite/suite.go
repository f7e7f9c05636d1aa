// Package suite judges a candidate by hidden tests that a command runs: blind, unchanged, and broken so that the
// candidate must fail. [Suite.Judge] is its door.
//
// The packages repo and terminal find the hidden files and run the command in their sandboxes; they are
// the [Command] here. The package contrast makes tests in Python blind. Tests in other languages are only
// broken (the canary).
package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
)

// A Suite is a command that runs hidden tests. A candidate answers blind tests in Python first, which do not say what
// they expect, and then the unchanged tests decide. With a reference, the candidate has to give the same answers.
// Otherwise it has to fail the canary, which makes all tests fail. Beside processes that the harness left, only the canary
// runs, since each run may change the state of these processes.
type Suite struct {
	Engine  verifiers.Engine
	Input   verifiers.Input
	Command Command         // runs the tests
	Key     string          // names the evaluation in the store of calibrations
	Files   []contrast.File // hidden tests in Python
	// Seen are texts of tests that authors of candidates can read.
	Seen []string
	// Selects is the text of the command and its scripts. Rows of a table that it names by their values are not changed.
	Selects string
	// Others are hidden files that the command runs or reads, if there are no tests in Python.
	Others []contrast.File
	// Certain says that the command surely uses the files. If the reference passes with broken files, it is then a fault
	// of the pack.
	Certain bool
	// Redirected are the Others, changed so that they leave the reward at another place. The canary runs
	// with them: a reward at the usual place is then forged. Nil if the Others leave no reward.
	Redirected []contrast.File
	// Reference says that there is a reference solution.
	Reference bool
}

// A Subject is what the command of a suite runs on.
type Subject int

// The subjects.
const (
	Candidate Subject = iota + 1
	Reference         // the task's own solution
	Unsolved          // what candidates start from
)

// A Command runs hidden tests, each time in a new sandbox.
type Command interface {
	// Run runs the command on a subject, with files in place of the hidden ones at the same paths. The
	// error is [ErrReference] if the reference solution does not fit the task.
	Run(ctx context.Context, on Subject, files []contrast.File) (Ended, error)
	// Unchanged judges the candidate by the unchanged tests.
	Unchanged(ctx context.Context) (verifiers.Verdict, error)
}

// Ended is how a run ended, and what blind tests noted at [AnswersMount].
type Ended struct {
	runtime.Exit
	Answers contrast.Answers
}

// ErrReference means that the reference solution does not fit what it should solve.
var ErrReference = errors.New("the gold patch does not apply")

// errNoReference means that there is no calibration, and none can be made now.
var errNoReference = errors.New("no reference solution")

// Reasons that the runs of a suite give.
const (
	brokenReason    = "passes_broken_tests"
	malformedReason = "tests_malformed"
	malformedTests  = "the image's interpreter cannot compile a hidden test file"

	// CannotFail is the reason if the reference passes tests that were made to fail.
	CannotFail = "tests_cannot_fail"
)

// Judge returns the verdict on the candidate.
func (s Suite) Judge(ctx context.Context) (verifiers.Verdict, error) {
	off := s.Input.Contrast == contrast.Off
	if len(s.Files)+len(s.Others) == 0 || off {
		sum := contrast.Summary{State: contrast.None}
		if off {
			sum.State = string(contrast.Off)
		}
		v, err := s.Command.Unchanged(ctx)
		return s.executed(v, sum, "none"), err
	}
	listed := map[bool]string{true: "listed", false: "listed without a reference"}[s.Reference]
	c, err := s.Input.Calibrations.Get(ctx, s.storeKey(listed), func() (contrast.Calibration, error) { return s.list(ctx) })
	limit := errors.Is(err, contrast.ErrLimit)
	if err != nil && !limit {
		return verifiers.Verdict{}, err
	}
	calibrated, err := s.calibration(ctx, nil, Ended{})
	stored := err == nil
	if err != nil && !errors.Is(err, errNoReference) {
		return verifiers.Verdict{}, err
	}
	if stored {
		c = calibrated
	}
	blind, err := s.answers(ctx, c)
	if err != nil {
		return verifiers.Verdict{}, err
	}
	v, err := s.Command.Unchanged(ctx)
	switch {
	case err != nil:
		return v, err
	case v.Status == verifiers.Failed:
		return s.malformed(ctx, v, c)
	case v.Status != verifiers.Passed:
		return v, nil
	case limit && s.Certain:
		return verifiers.Fault("tests_not_listed", "the image's python3 meets a limit when it looks for the assertions of the tests"), nil
	}
	if !stored && s.Reference {
		calibrated, err = s.calibration(ctx, &c, blind)
		switch {
		case errors.Is(err, ErrReference):
			return verifiers.Fault("reference_fails", ErrReference.Error()), nil
		case err != nil:
			return verifiers.Verdict{}, err
		}
		c = calibrated
	}
	sum := contrast.Summary{State: contrast.None, Places: c.Unread}
	switch {
	case c.CannotFail:
		return s.cannotFail(v, sum, c), nil
	case len(c.Want) > 0 && s.Input.Left == nil:
		return s.contrasted(v, c, blind), nil
	}
	return s.canary(ctx, v, sum, c, blind)
}

// list makes the tests blind. Without a reference, it notes what the unsolved task is asked.
func (s Suite) list(ctx context.Context) (c contrast.Calibration, err error) {
	python := slices.DeleteFunc(slices.Concat(s.Files, s.Others), func(f contrast.File) bool { return !IsPython(f) })
	if len(python) == 0 {
		return c, nil
	}
	o := contrast.Options{Answers: AnswersMount, Selects: strings.ReplaceAll(s.Selects, `\`, ""), Bare: !s.Reference}
	c.Listing, err = contrast.List(ctx, contrast.InSandbox(s.Engine, s.Input.Sandbox("listing")), python, o)
	if errors.Is(err, contrast.ErrPython) {
		return c, nil
	}
	if err != nil || s.Reference || len(c.Questions) == 0 || len(s.Files) == 0 || s.Input.Left != nil {
		return c, err
	}
	unsolved, err := s.Command.Run(ctx, Unsolved, s.blind(c))
	for _, q := range c.Questions {
		if !q.Optional && !q.Looped && len(unsolved.Answers[q.ID]) > 0 {
			c.Reached = append(c.Reached, q.ID)
		}
	}
	if neverStarted(err) {
		err = nil
	}
	return c, err
}

// answers returns how the candidate ends with blind tests, if there are any. The unchanged tests say why it cannot start.
func (s Suite) answers(ctx context.Context, c contrast.Calibration) (ended Ended, err error) {
	if len(c.Questions) == 0 || c.Reference && len(c.Want) == 0 || len(s.Files) == 0 || s.Input.Left != nil {
		return ended, nil
	}
	s.doing("the tests, blind")
	if ended, err = s.Command.Run(ctx, Candidate, s.blind(c)); neverStarted(err) {
		err = nil
	}
	s.doing("the tests")
	return ended, err
}

// blind returns the hidden tests without what they expect.
func (s Suite) blind(c contrast.Calibration) []contrast.File {
	files := slices.Clone(s.Files)
	for i, f := range files {
		if at := slices.IndexFunc(c.Files, func(b contrast.File) bool { return b.Path == f.Path }); at >= 0 {
			files[i] = c.Files[at]
		}
	}
	return files
}

func (s Suite) doing(what string) {
	if s.Input.Pace != nil {
		s.Input.Pace.Doing(what)
	}
}

func (s Suite) storeKey(kind string) string { return contrast.Key(s.Input.Image.Digest, s.Key, kind) }

// each makes n runs, several at a time where the host has room, until one returns an error.
func (s Suite) each(ctx context.Context, what string, n int, run func(ctx context.Context, i int) error) error {
	group, running := errgroup.WithContext(ctx)
	for i := 0; i < n && running.Err() == nil; i++ {
		give, spare := func() {}, false
		if s.Input.Pace != nil {
			s.Input.Pace.Doing(fmt.Sprintf("%s: run %d of %d", what, i+1, n))
			if i+1 < n {
				give, spare = s.Input.Pace.Spare()
			}
		}
		if spare {
			group.Go(func() error {
				defer give()
				return run(running, i)
			})
		} else if err := run(running, i); err != nil {
			group.Go(func() error { return err })
			break
		}
	}
	return cmp.Or(group.Wait(), context.Cause(ctx))
}

// contrasted returns the verdict on a candidate that passed, by its answers.
func (s Suite) contrasted(v verifiers.Verdict, c contrast.Calibration, blind Ended) verifiers.Verdict {
	sum, wrong := c.Judge(blind.Answers)
	if len(wrong) > 0 || !blind.Success() {
		v = refuse(v, contrast.Reason, "the candidate passes the tests, but not when they do not say what they expect", sum)
		if blind.Success() {
			v.Message += fmt.Sprintf(": it answers otherwise at line %d of a hidden file", wrong[0].Line)
			var places []byte
			for _, q := range wrong {
				places = fmt.Appendf(places, "%s:%d: another answer than the reference solution's\n", q.Path, q.Line)
			}
			v.Stderr = runtime.Output{Head: places, Total: int64(len(places))}
		} else {
			v.Message += " (the run with blind tests: " + blind.String() + ")"
		}
		return v
	}
	if v.Assurance, v.Contrast = verifiers.Executed, &sum; c.Hidden() {
		v.Assurance = verifiers.Contrasted
	}
	return v
}

// canary returns the verdict on a candidate that passed the tests, by whether it passes broken tests, too.
func (s Suite) canary(ctx context.Context, v verifiers.Verdict, sum contrast.Summary, c contrast.Calibration, blind Ended) (verifiers.Verdict, error) {
	ended, err := s.Command.Run(ctx, Candidate, s.broken(c))
	switch {
	case err != nil:
		return verifiers.Verdict{}, err
	case ended.Success():
		return s.passesBroken(ctx, v, sum, c)
	case c.Reference:
		return s.executed(v, sum, "failed"), nil
	}
	return s.uncalibrated(v, sum, c, blind), nil
}

// refuse returns the verdict on a candidate that passed, if neither the pass nor its reward counts.
func refuse(pass verifiers.Verdict, reason, message string, sum contrast.Summary) verifiers.Verdict {
	v := verifiers.Fail(reason, message)
	v.Metadata, v.Contrast = maps.Clone(pass.Metadata), &sum
	delete(v.Metadata, verifiers.Reward)
	return v
}

// uncalibrated judges a candidate that passed the unchanged tests and failed the canary, by its answers to blind tests.
// The candidate fails if all answers are wrong, or if it skips what the unsolved task is asked. If some answers are wrong,
// the pass is doubtful.
func (s Suite) uncalibrated(v verifiers.Verdict, sum contrast.Summary, c contrast.Calibration, blind Ended) verifiers.Verdict {
	judged, _ := c.Judge(blind.Answers)
	skips := slices.ContainsFunc(c.Reached, func(id int) bool { return len(blind.Answers[id]) == 0 })
	if judged.Asked == 0 && !skips {
		return s.executed(v, sum, "failed")
	}
	switch sum = judged; {
	case skips:
		return refuse(v, contrast.Reason, "the candidate skips tests that run without a solution", sum)
	case sum.Wrong == sum.Asked:
		return refuse(v, contrast.Reason, "the candidate passes the tests, but answers everything otherwise when they do not say what they expect", sum)
	}
	if v = s.executed(v, sum, "failed"); sum.Wrong > 0 {
		v = v.With(verifiers.Doubtful, true)
	}
	return v
}

// executed returns the verdict on a candidate that may have passed. canary is its end on broken tests.
func (s Suite) executed(v verifiers.Verdict, sum contrast.Summary, canary string) verifiers.Verdict {
	if v.Status != verifiers.Passed {
		return v
	}
	v.Assurance, v.Contrast = verifiers.Executed, &sum
	return v.With("canary", canary)
}

// cannotFail returns the verdict if broken tests pass without a candidate: the pack's fault, or
// the command may not use the files.
func (s Suite) cannotFail(v verifiers.Verdict, sum contrast.Summary, c contrast.Calibration) verifiers.Verdict {
	switch {
	case !s.Certain:
		return s.executed(v, sum, "none")
	case len(s.Files) > 0 && len(c.Broken) == len(s.Files):
		return verifiers.Fault(malformedReason, malformedTests)
	}
	return verifiers.Fault(CannotFail, "the tests' command exits with 0 although every test fails")
}

// passesBroken returns the verdict on a candidate that passes broken tests: its own fault unless
// the empty candidate passes them, too.
func (s Suite) passesBroken(ctx context.Context, v verifiers.Verdict, sum contrast.Summary, c contrast.Calibration) (verifiers.Verdict, error) {
	if !c.Reference {
		exit, err := s.Command.Run(ctx, Unsolved, s.broken(c))
		switch {
		case err != nil && !neverStarted(err):
			return verifiers.Verdict{}, err
		case err == nil && exit.Success():
			return s.cannotFail(v, sum, c), nil
		case !s.Certain && s.Redirected == nil:
			return s.executed(v, sum, "passed").With(verifiers.Doubtful, true), nil
		}
	}
	return refuse(v, brokenReason, "the candidate passes tests that were made to fail", sum), nil
}

func neverStarted(err error) bool {
	return errors.Is(err, runtime.ErrNotStarted) || errors.Is(err, runtime.ErrDenied)
}

// malformed turns a failure into a fault of the pack if the image's python3 does not compile a hidden test
// file, and the command reports the same without a candidate.
func (s Suite) malformed(ctx context.Context, v verifiers.Verdict, c contrast.Calibration) (verifiers.Verdict, error) {
	if len(c.Broken) == 0 || !syntaxError.MatchString(v.Stderr.String()+v.Stdout.String()) {
		return v, nil
	}
	exit, err := s.Command.Run(ctx, Unsolved, s.Files)
	if err != nil && !neverStarted(err) {
		return v, err
	}
	text := exit.Stderr.String() + exit.Stdout.String()
	if syntaxError.MatchString(text) && slices.ContainsFunc(c.Broken, func(name string) bool { return strings.Contains(text, path.Base(name)) }) {
		v.Status, v.Score, v.Reason, v.Message = verifiers.Faulty, 0, malformedReason, malformedTests
	}
	return v, nil
}

var syntaxError = regexp.MustCompile(`SyntaxError|IndentationError|TabError`)

// calibration returns the stored calibration. If there is none, it makes one from what was
// listed, if that is not nil and there is a reference solution. blind is the candidate's run.
func (s Suite) calibration(ctx context.Context, listed *contrast.Calibration, blind Ended) (contrast.Calibration, error) {
	return s.Input.Calibrations.Get(ctx, s.storeKey(contrast.Calibrated), func() (contrast.Calibration, error) {
		if listed == nil || !s.Reference {
			return contrast.Calibration{}, errNoReference
		}
		return s.calibrate(ctx, *listed, blind)
	})
}

// calibrate finds out what the reference answers to blind tests, if it passes them, and whether the canary fails. blind is
// the candidate's run.
func (s Suite) calibrate(ctx context.Context, c contrast.Calibration, blind Ended) (contrast.Calibration, error) {
	c.Reference = true
	if len(c.Questions) > 0 && len(s.Files) > 0 && s.Input.Left == nil {
		ends, err := s.reference(ctx, c, blind)
		if err == nil && ends[0].Success() && ends[1].Success() {
			c, err = s.learned(ctx, c, ends)
		}
		if err != nil {
			return c, err
		}
	}
	return s.fallible(ctx, c)
}

// fallible runs broken tests, and returns the calibration with CannotFail if they pass.
func (s Suite) fallible(ctx context.Context, c contrast.Calibration) (contrast.Calibration, error) {
	on := Reference
	if s.Redirected != nil { // whether the files can be redirected shows without a candidate
		on = Unsolved
	}
	ended, err := s.Command.Run(ctx, on, s.broken(c))
	if neverStarted(err) {
		return c, nil
	}
	c.CannotFail = err == nil && ended.Success()
	return c, err
}

// reference runs blind tests twice on the reference solution. blind is the first run if the candidate is the reference.
func (s Suite) reference(ctx context.Context, c contrast.Calibration, blind Ended) (ends [2]Ended, err error) {
	if s.Input.Reference {
		ends[0] = blind
	}
	err = s.each(ctx, "the reference solution, for a calibration", len(ends), func(ctx context.Context, i int) (err error) {
		if ends[i].Reason == "" {
			ends[i], err = s.Command.Run(ctx, Reference, s.blind(c))
		}
		return err
	})
	return ends, err
}

// learned returns the calibration by two runs of the reference. If the unsolved task answers as the reference does, the
// answers show nothing.
func (s Suite) learned(ctx context.Context, c contrast.Calibration, ends [2]Ended) (contrast.Calibration, error) {
	c.Learn(ends[0].Answers, ends[1].Answers)
	c.Seen = !slices.ContainsFunc(c.Asked(nil), func(q contrast.Question) bool { return !s.seen(q.Place) })
	c.Unasked = slices.DeleteFunc(c.Unasked, s.seen)
	unsolved, err := s.Command.Run(ctx, Unsolved, s.blind(c))
	if err == nil && len(c.Wrong(unsolved.Answers)) == 0 {
		c.Want = nil
	}
	if neverStarted(err) {
		err = nil
	}
	return c, err
}

// seen reports whether authors of candidates can read all lines that say what an assertion expects.
func (s Suite) seen(p contrast.Place) bool {
	lines := strings.Split(s.Files[slices.IndexFunc(s.Files, func(f contrast.File) bool { return f.Path == p.Path })].Text, "\n")
	return !slices.ContainsFunc(p.Told, func(n int) bool {
		return !slices.ContainsFunc(s.Seen, func(seen string) bool { return strings.Contains("\n"+seen+"\n", "\n"+lines[n-1]+"\n") })
	})
}
