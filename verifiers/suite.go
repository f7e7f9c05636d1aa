package verifiers

import (
	"context"
	"errors"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
)

// A suite is a command that runs hidden tests in Python. Its verdicts are checked
// by contrast: the command runs once more, in a sandbox of its own, with about half
// of the test functions changed, and then just these have to fail. Who follows the
// tests does not know which.
type suite struct {
	in    Input
	key   string
	files []contrast.File
	// unused says that the command may have no use for the files, and that what does not
	// fail with them broken is no fault.
	unused bool
	// candidate and reference run the command with files in place of the hidden ones
	// of the same paths. A nil reference is none.
	candidate, reference suiteRun
	// listing runs Python's part of it.
	listing contrast.Python
}

type suiteRun func(ctx context.Context, files []contrast.File) (runtime.Exit, error)

// rounds are how many sets of changes a suite has.
const rounds = 2

// errCannotFail: the command succeeds although its tests raise errors.
var errCannotFail = errors.New("the tests' command succeeds although tests fail")

// errNoReference: there is nothing to calibrate by.
var errNoReference = errors.New("no reference solution")

// judge returns the verdict on a candidate that has passed.
func (s suite) judge(ctx context.Context, v Verdict) (Verdict, error) {
	none := v
	none.Contrast = &contrast.Summary{State: contrast.None}
	if len(s.files) == 0 {
		return none, nil
	}
	var sets []contrast.Calibration
	for round := range rounds {
		c, err := s.calibration(ctx, round)
		switch {
		case errors.Is(err, contrast.ErrPython):
			return none, nil
		case errors.Is(err, contrast.ErrTests):
			return faulty("tests_malformed", malformedTests), nil
		case errors.Is(err, errCannotFail) && s.unused:
			return none, nil
		case errors.Is(err, errCannotFail):
			return faulty("tests_cannot_fail", "the tests' command exits with 0 although every test fails"), nil
		case err != nil:
			return Verdict{}, err
		}
		if len(c.Edits) > 0 {
			sets = append(sets, c)
		}
	}
	if len(sets) == 0 {
		return none, nil
	}
	return s.try(ctx, v, sets)
}

// malformed makes a failure the pack's if the output tells of a syntax error and a
// hidden test file has one.
func (s suite) malformed(ctx context.Context, v Verdict) (Verdict, error) {
	text := v.Stderr.String() + v.Stdout.String()
	if len(s.files) == 0 || !strings.Contains(text, "SyntaxError") && !strings.Contains(text, "IndentationError") && !strings.Contains(text, "TabError") {
		return v, nil
	}
	found, err := contrast.List(ctx, s.listing, s.files, contrast.Options{})
	if errors.Is(err, contrast.ErrPython) || err == nil && len(found.Broken) == 0 {
		return v, nil
	}
	v.Status, v.Reason, v.Message = Faulty, "tests_malformed", malformedTests
	return v, err
}

const malformedTests = "a hidden test file is no Python that the image's interpreter compiles"

// calibration returns the kept one of a round, or makes it.
func (s suite) calibration(ctx context.Context, round int) (contrast.Calibration, error) {
	get := func(kind string) (contrast.Calibration, error) {
		return s.in.Calibrations.Get(contrast.Key(s.in.Image.Digest, s.key, kind, strconv.Itoa(round)), func() (contrast.Calibration, error) {
			if kind == contrast.Calibrated && s.reference == nil {
				return contrast.Calibration{}, errNoReference
			}
			return s.calibrate(ctx, round)
		})
	}
	c, err := get(contrast.Calibrated)
	if errors.Is(err, errNoReference) {
		return get(contrast.Uncalibrated)
	}
	return c, err
}

// try runs the candidate with one set of changes, and with the other if it did not
// fail there as it should. Where the output does not tell tests apart it has to fail
// with both.
func (s suite) try(ctx context.Context, v Verdict, sets []contrast.Calibration) (Verdict, error) {
	rand.Shuffle(len(sets), func(i, j int) { sets[i], sets[j] = sets[j], sets[i] })
	sum := &contrast.Summary{State: sets[0].State()}
	v.Contrast = sum
	follows := false
	for _, set := range sets {
		exit, err := s.candidate(ctx, s.changed(set.Edits))
		if err != nil {
			return Verdict{}, err
		}
		sum.Mutants += len(set.Edits)
		apart := len(set.Unobserved) > 0
		switch {
		case !failsAs(exit, set):
			sum.Followed++
			follows = true
		case apart:
			sum.Retried, sum.Followed, follows = sum.Followed, 0, false
		}
		if apart && !follows {
			break
		}
	}
	if follows && sum.State == contrast.Calibrated {
		refused := failed(contrast.Reason, "the tests pass, and still do once they expect something else")
		refused.Contrast, refused.Metadata = sum, v.Metadata
		v = refused
	}
	return v, nil
}

// failsAs reports whether the command failed, and of the tests that the set knows
// just those that it changes.
func failsAs(exit runtime.Exit, set contrast.Calibration) bool {
	if exit.Reason != runtime.Exited || exit.Code == 0 {
		return false
	}
	for _, e := range set.Edits {
		if e.Test != "" && !reported(exit, e) {
			return false
		}
	}
	return !slices.ContainsFunc(set.Unobserved, func(e contrast.Edit) bool { return reported(exit, e) })
}

var failureLine = regexp.MustCompile(`\b(FAILED|FAIL|ERROR)\b`)

// reported says whether the output names the edit's test as one that failed, as
// pytest's and unittest's do.
func reported(exit runtime.Exit, e contrast.Edit) bool {
	name := e.Test[strings.LastIndex(e.Test, ":")+1:]
	stem := strings.TrimSuffix(path.Base(e.Path), ".py")
	word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
	for line := range strings.Lines(exit.Stdout.String() + "\n" + exit.Stderr.String()) {
		if failureLine.MatchString(line) && word.MatchString(line) && (!strings.Contains(line, "::") || strings.Contains(line, stem+".py")) {
			return true
		}
	}
	return false
}

// changed returns all files with the edits in them.
func (s suite) changed(edits []contrast.Edit) []contrast.File {
	files := slices.Clone(s.files)
	for i, f := range files {
		if text, err := contrast.Apply(f, edits...); err == nil { // of other files the edits are of no concern
			files[i].Text = text
		}
	}
	return files
}

// calibrate finds the changes of one round. Of a set, Edits are those that the
// reference fails, and Unobserved those of other functions, which it passes. Edits
// without a Test are of a command whose output names no tests.
func (s suite) calibrate(ctx context.Context, round int) (contrast.Calibration, error) {
	found, err := contrast.List(ctx, s.listing, s.files, contrast.Options{Seed: s.key, Places: rounds, Variants: rounds, Each: true})
	if err != nil {
		return contrast.Calibration{}, err
	}
	if len(found.Broken) > 0 {
		return contrast.Calibration{}, contrast.ErrTests
	}
	set, rest := half(found.Edits, round)
	if s.reference == nil {
		c := contrast.Without(set)
		for i := range c.Edits {
			c.Edits[i].Test = ""
		}
		return c, nil
	}
	c := contrast.Calibration{Reference: true}
	if len(set) == 0 {
		return c, s.mustFail(ctx)
	}
	exit, err := s.reference(ctx, s.changed(set))
	if err != nil {
		return c, err
	}
	if exit.Success() {
		return c, s.mustFail(ctx)
	}
	for _, e := range set {
		if reported(exit, e) {
			c.Edits = append(c.Edits, e)
		}
	}
	for _, e := range rest {
		if !reported(exit, e) {
			c.Unobserved = append(c.Unobserved, e)
		}
	}
	if len(c.Edits) == 0 {
		for i := range set {
			set[i].Test = ""
		}
		c.Edits, c.Unobserved = set, nil
	}
	return c, nil
}

// mustFail makes sure that the command fails when every test file raises an error.
func (s suite) mustFail(ctx context.Context) error {
	files := slices.Clone(s.files)
	for i := range files {
		files[i].Text = "raise AssertionError\n" + files[i].Text
	}
	exit, err := s.reference(ctx, files)
	if err == nil && exit.Success() {
		err = errCannotFail
	}
	return err
}

// maxChanged bounds the functions that are changed, so that what the output says of
// them is not cut.
const maxChanged = 40

// half returns one edit for every second test function, the others' for the next
// round; of a single function another edit.
func half(edits []contrast.Edit, round int) (set, rest []contrast.Edit) {
	var of [][]contrast.Edit // by function
	for _, e := range edits {
		i := slices.IndexFunc(of, func(o []contrast.Edit) bool { return o[0].Path == e.Path && o[0].Test == e.Test })
		if i < 0 {
			i, of = len(of), append(of, nil)
		}
		of[i] = append(of[i], e)
	}
	for i, own := range of[:min(len(of), maxChanged)] {
		switch {
		case len(of) == 1:
			set = append(set, own[round%len(own)])
		case i%rounds == round:
			set = append(set, own[0])
		default:
			rest = append(rest, own[0])
		}
	}
	return set, rest
}
