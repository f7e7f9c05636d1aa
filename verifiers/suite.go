package verifiers

import (
	"context"
	"errors"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
)

// A suite is a command that runs hidden tests in Python. A pass is checked by contrast:
// the command runs twice more, each time in a new sandbox, with one half of the test
// functions changed and with the other. Just the changed functions have to fail. A
// candidate that follows the tests does not know which those are, because the halves are
// drawn at random when the suite is calibrated.
type suite struct {
	in    Input
	key   string // names the evaluation in the store of calibrations
	files []contrast.File
	// unused says that the command may not use the files, so that it is no fault if they do
	// not compile, or if it succeeds with all of them broken.
	unused bool
	// candidate and reference run the command with files in place of the hidden ones
	// of the same paths. reference is nil if there is no reference solution.
	candidate, reference suiteRun
	// unsolved runs the unchanged tests on what candidates start from, and returns an empty
	// Exit if they do not start there. nil if it is not known what candidates start from.
	unsolved func(ctx context.Context) (runtime.Exit, error)
	// listing runs contrast.Program.
	listing contrast.Python
}

type suiteRun func(ctx context.Context, files []contrast.File) (runtime.Exit, error)

// errCannotFail means that the command succeeds although its tests raise errors.
var errCannotFail = errors.New("the tests' command succeeds although tests fail")

// errNoReference means that there is no solution to calibrate with.
var errNoReference = errors.New("no reference solution")

// judge returns the verdict on a candidate that has passed.
func (s suite) judge(ctx context.Context, v Verdict) (Verdict, error) {
	none := v
	none.Contrast = &contrast.Summary{State: contrast.None}
	if len(s.files) == 0 {
		return none, nil
	}
	c, err := s.calibration(ctx)
	switch {
	case errors.Is(err, contrast.ErrPython), s.unused && (errors.Is(err, errCannotFail) || errors.Is(err, contrast.ErrTests)):
		return none, nil
	case errors.Is(err, contrast.ErrTests):
		return faulty("tests_malformed", malformedTests), nil
	case errors.Is(err, errCannotFail):
		return faulty("tests_cannot_fail", "the tests' command exits with 0 although every test fails"), nil
	case err != nil:
		return Verdict{}, err
	case len(c.Sets) == 0:
		return none, nil
	}
	return s.try(ctx, v, c)
}

// malformed turns a failure into a fault of the pack if the output reports a syntax error
// and names a hidden test file that has one.
func (s suite) malformed(ctx context.Context, v Verdict) (Verdict, error) {
	text := v.Stderr.String() + v.Stdout.String()
	if len(s.files) == 0 || !strings.Contains(text, "SyntaxError") && !strings.Contains(text, "IndentationError") && !strings.Contains(text, "TabError") {
		return v, nil
	}
	found, err := contrast.List(ctx, s.listing, s.files, contrast.Options{})
	if errors.Is(err, contrast.ErrPython) || err == nil && !slices.ContainsFunc(found.Broken, func(name string) bool { return strings.Contains(text, path.Base(name)) }) {
		return v, nil
	}
	v.Status, v.Reason, v.Message = Faulty, "tests_malformed", malformedTests
	return v, err
}

const malformedTests = "a hidden test file is no Python that the image's interpreter compiles"

// calibration returns the stored calibration or makes one. Without a reference solution
// it prefers one that was stored when there was one.
func (s suite) calibration(ctx context.Context) (contrast.Calibration, error) {
	get := func(kind string) (contrast.Calibration, error) {
		return s.in.Calibrations.Get(contrast.Key(s.in.Image.Digest, s.key, kind), func() (contrast.Calibration, error) {
			if kind == contrast.Calibrated && s.reference == nil {
				return contrast.Calibration{}, errNoReference
			}
			return s.calibrate(ctx)
		})
	}
	c, err := get(contrast.Calibrated)
	if errors.Is(err, errNoReference) {
		return get(contrast.Uncalibrated)
	}
	return c, err
}

// try runs the candidate with each set of changes, in random order. Where a candidate
// that notices changes could tell which they are, it also runs the unchanged tests once
// more, so that the candidate would have to notice that, too.
func (s suite) try(ctx context.Context, v Verdict, c contrast.Calibration) (Verdict, error) {
	sum := &contrast.Summary{State: contrast.Uncalibrated}
	v.Contrast = sum
	sets := slices.Clone(c.Sets)
	if c.Reference {
		sum.State = contrast.Calibrated
		if len(sets) == 1 || slices.ContainsFunc(sets, func(set contrast.Set) bool { return len(set.Others) == 0 }) {
			sets = append(sets, contrast.Set{})
		}
	}
	rand.Shuffle(len(sets), func(i, j int) { sets[i], sets[j] = sets[j], sets[i] })
	for _, set := range sets {
		exit, err := s.changed(ctx, s.candidate, set.Edits)
		if err != nil {
			return Verdict{}, err
		}
		sum.Mutants += len(set.Edits)
		if endsAs(exit, set) {
			continue
		}
		sum.Followed++
		if c.Reference {
			message := "the tests pass, and still do once they expect something else"
			if len(set.Edits) == 0 {
				message = "the tests pass, and do not when they are run once more"
			}
			refused := failed(contrast.Reason, message)
			refused.Contrast, refused.Metadata = sum, v.Metadata
			return refused, nil
		}
	}
	return v, nil
}

// endsAs reports whether a run ended as the set's changes require: the command fails, or
// meets a limit, and reports the changed tests, and none of the Others, as failed. With an
// empty set it succeeds.
func endsAs(exit runtime.Exit, set contrast.Set) bool {
	if exit.Success() != (len(set.Edits) == 0) {
		return false
	}
	for _, e := range set.Edits {
		if e.Test != "" && !reported(exit, e) {
			return false
		}
	}
	return !slices.ContainsFunc(set.Others, func(e contrast.Edit) bool { return reported(exit, e) })
}

// failureLine matches a line that begins or ends with the word. Elsewhere the word may be
// what a candidate prints beside a test's name.
var failureLine = regexp.MustCompile(`^(\W|\[.*\])*(FAILED|FAIL|ERROR)\b|\s(FAILED|FAIL|ERROR)(\s+\[[ \d%]+\])?\s*$`)

// colors matches escape sequences for colors (ECMA-48, SGR).
var colors = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// reported says whether the output names the edit's test as one that failed, as
// pytest's and unittest's do.
func reported(exit runtime.Exit, e contrast.Edit) bool {
	var words []*regexp.Regexp // the function's name and, if it is a method, its class's
	for _, name := range strings.Split(e.Test, "::") {
		words = append(words, regexp.MustCompile(`(^|[^\pL\pN_])`+regexp.QuoteMeta(name)+`($|[^\pL\pN_])`))
	}
	file := regexp.MustCompile(`(^|[\s/])` + regexp.QuoteMeta(path.Base(e.Path)) + "::")
	for line := range strings.Lines(colors.ReplaceAllString(exit.Stdout.String()+"\n"+exit.Stderr.String(), "")) {
		if failureLine.MatchString(line) && !slices.ContainsFunc(words, func(w *regexp.Regexp) bool { return !w.MatchString(line) }) &&
			(!strings.Contains(line, ".py::") || file.MatchString(line)) {
			return true
		}
	}
	return false
}

// changed runs the command with the edits applied to the hidden files.
func (s suite) changed(ctx context.Context, run suiteRun, edits []contrast.Edit) (runtime.Exit, error) {
	files := slices.Clone(s.files)
	for i, f := range files {
		text, err := contrast.Apply(f, edits...)
		if err != nil {
			return runtime.Exit{}, err
		}
		files[i].Text = text
	}
	return run(ctx, files)
}

// calibrate draws sets of changes, and finds out which of them the reference fails. It
// clears the Test of edits if the command's output names no tests.
func (s suite) calibrate(ctx context.Context) (contrast.Calibration, error) {
	found, err := contrast.List(ctx, s.listing, s.files, contrast.Options{Seed: s.key, Places: 2, Each: true})
	if err != nil {
		return contrast.Calibration{}, err
	}
	if len(found.Broken) == len(s.files) { // if only some are, those are data that is named like tests
		return contrast.Calibration{}, contrast.ErrTests
	}
	if s.reference == nil {
		c := contrast.Without(found.Edits)
		if drawn := halves(functions(c.Edits, nil)); len(drawn[0]) > 0 {
			c.Sets = []contrast.Set{{Edits: anonymous(drawn[0])}}
		}
		c.Edits = nil
		return c, nil
	}
	c := contrast.Calibration{Reference: true}
	var needed func(contrast.Edit) bool // whether its test fails without a solution
	if s.unsolved != nil {
		exit, err := s.unsolved(ctx)
		if err != nil {
			return c, err
		}
		if needed = func(e contrast.Edit) bool { return reported(exit, e) }; !slices.ContainsFunc(found.Edits, needed) {
			needed = nil
		}
	}
	of := functions(found.Edits, needed)
	drawn := halves(of)
	fails := false
	for i, half := range drawn {
		if len(half) == 0 {
			continue
		}
		exit, err := s.changed(ctx, s.reference, half)
		if err != nil {
			return c, err
		}
		if exit.Success() {
			continue
		}
		fails = true
		set := contrast.Set{
			Edits:  slices.DeleteFunc(slices.Clone(half), func(e contrast.Edit) bool { return !reported(exit, e) }),
			Others: slices.DeleteFunc(slices.Clone(drawn[1-i]), func(e contrast.Edit) bool { return reported(exit, e) }),
		}
		if len(set.Edits) == 0 {
			set = contrast.Set{Edits: anonymous(half)}
		}
		c.Sets = append(c.Sets, set)
	}
	if !fails {
		return c, s.mustFail(ctx)
	}
	return c, s.alone(ctx, &c, of, needed)
}

// maxAlone bounds the functions that are changed alone.
const maxAlone = 3

// alone adds a set for each of some functions that no set names, such as where a command
// stops at the first failure, or where a half was already changed where they could be.
func (s suite) alone(ctx context.Context, c *contrast.Calibration, of [][]contrast.Edit, needed func(contrast.Edit) bool) error {
	named := func(e contrast.Edit) bool {
		return slices.ContainsFunc(c.Sets, func(set contrast.Set) bool {
			return slices.ContainsFunc(set.Edits, func(o contrast.Edit) bool { return o.Path == e.Path && o.Test == e.Test })
		})
	}
	of = slices.DeleteFunc(slices.Clone(of), func(own []contrast.Edit) bool { return needed != nil && !needed(own[0]) || named(own[0]) })
	for _, own := range of[:min(len(of), maxAlone)] {
		edits := own[:1]
		exit, err := s.changed(ctx, s.reference, edits)
		if err != nil {
			return err
		}
		if exit.Success() {
			continue
		}
		if !reported(exit, edits[0]) {
			edits = anonymous(edits)
		}
		c.Sets = append(c.Sets, contrast.Set{Edits: edits})
	}
	return nil
}

func anonymous(edits []contrast.Edit) []contrast.Edit {
	edits = slices.Clone(edits)
	for i := range edits {
		edits[i].Test = ""
	}
	return edits
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

// maxChanged bounds the functions that are changed, so that their failures are not cut
// from the output.
const maxChanged = 40

// functions returns the edits of each of at most maxChanged test functions, in random
// order, those that are needed first. needed may be nil.
func functions(edits []contrast.Edit, needed func(contrast.Edit) bool) (of [][]contrast.Edit) {
	for _, e := range edits {
		i := slices.IndexFunc(of, func(o []contrast.Edit) bool { return o[0].Path == e.Path && o[0].Test == e.Test })
		if i < 0 {
			i, of = len(of), append(of, nil)
		}
		of[i] = append(of[i], e)
	}
	rand.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	if needed != nil {
		first := slices.DeleteFunc(slices.Clone(of), func(own []contrast.Edit) bool { return !needed(own[0]) })
		of = append(first, slices.DeleteFunc(of, func(own []contrast.Edit) bool { return needed(own[0]) })...)
	}
	return of[:min(len(of), maxChanged)]
}

// halves divides test functions, and returns one edit for each function of either half. A
// single function is in both, with different edits if it has several. A function that can
// only be changed where another one is changed already, such as in a value that both
// expect, is in neither.
func halves(of [][]contrast.Edit) (sets [2][]contrast.Edit) {
	if len(of) == 1 {
		return [2][]contrast.Edit{of[0][:1], of[0][len(of[0])-1:]}
	}
	var drawn []contrast.Edit
	for _, own := range of {
		free := slices.IndexFunc(own, func(e contrast.Edit) bool { return !slices.ContainsFunc(drawn, e.Overlaps) })
		if free < 0 {
			continue
		}
		half := len(drawn) % 2
		drawn, sets[half] = append(drawn, own[free]), append(sets[half], own[free])
	}
	return sets
}
