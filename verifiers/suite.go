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
	"time"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
)

// A suite is a command that runs hidden tests in Python. A pass is checked by contrast: the
// command runs again, in new sandboxes, with one half of the test functions changed, with
// the other half, and with a third group. Exactly the changed functions have to fail. A
// candidate that follows the tests does not know which they are, since the groups are drawn
// at random in the calibration.
type suite struct {
	in    Input
	key   string // names the evaluation in the store of calibrations
	files []contrast.File
	// unused says that the command may not use the files, so that it is no fault if they do
	// not compile, or if the command succeeds with all of them broken.
	unused bool
	// candidate and reference run the command with files in place of the hidden ones at the
	// same paths. reference is nil if there is no reference solution.
	candidate, reference suiteRun
	// unsolved runs the unchanged tests on what candidates start from, and returns an empty
	// Exit if they do not start there; nil if that start is unknown.
	unsolved func(ctx context.Context) (runtime.Exit, error)
	// listing runs contrast's program.
	listing contrast.Python
}

type suiteRun func(ctx context.Context, files []contrast.File) (runtime.Exit, error)

// errCannotFail means that the command succeeds although its tests raise errors.
var errCannotFail = errors.New("the tests' command succeeds although tests fail")

// errGoldPatch means that the repository cannot be prepared with the reference solution.
var errGoldPatch = errors.New("the gold patch does not apply")

// errNoReference means that there is no solution to calibrate with.
var errNoReference = errors.New("no reference solution")

// judge returns the verdict on a candidate that passed.
func (s suite) judge(ctx context.Context, v Verdict) (Verdict, error) {
	none := v
	none.Contrast = &contrast.Summary{State: contrast.None}
	if len(s.files) == 0 {
		return none, nil
	}
	c, err := s.calibration(ctx)
	none.Contrast.Unread = c.Unread
	if err == nil && s.in.Reference && s.reference != nil {
		none.Contrast.Unobserved, err = s.weak(ctx)
	}
	switch {
	case errors.Is(err, contrast.ErrPython), s.unused && (errors.Is(err, errCannotFail) || errors.Is(err, contrast.ErrTests) || errors.Is(err, contrast.ErrLimit)):
		return none, nil
	case errors.Is(err, contrast.ErrLimit):
		return notListed, nil
	case errors.Is(err, contrast.ErrTests):
		return faulty("tests_malformed", malformedTests), nil
	case errors.Is(err, errCannotFail):
		return faulty("tests_cannot_fail", "the tests' command exits with 0 although every test fails"), nil
	case errors.Is(err, errGoldPatch):
		return faulty("reference_fails", errGoldPatch.Error()), nil
	case err != nil:
		return Verdict{}, err
	case len(c.Sets) == 0:
		return none, nil
	}
	return s.try(ctx, none, c)
}

// malformed turns a failure into a fault of the pack if the image's python3 does not compile
// a hidden test file, and the command (which may use another interpreter) reports the same
// without a candidate.
func (s suite) malformed(ctx context.Context, v Verdict) (Verdict, error) {
	if len(s.files) == 0 || !syntaxError.MatchString(v.Stderr.String()+v.Stdout.String()) {
		return v, nil
	}
	found, err := contrast.List(ctx, s.listing, s.files, contrast.Options{})
	if errors.Is(err, contrast.ErrPython) || errors.Is(err, contrast.ErrLimit) || len(found.Broken) == 0 && err == nil {
		return v, nil
	}
	var exit runtime.Exit
	if err == nil {
		exit, err = s.unsolved(ctx)
	}
	if err != nil && !errors.Is(err, runtime.ErrNotStarted) {
		return v, err
	}
	text := exit.Stderr.String() + exit.Stdout.String()
	if syntaxError.MatchString(text) && slices.ContainsFunc(found.Broken, func(name string) bool { return strings.Contains(text, path.Base(name)) }) {
		v.Status, v.Reason, v.Message = Faulty, "tests_malformed", malformedTests
	}
	return v, nil
}

var syntaxError = regexp.MustCompile(`SyntaxError|IndentationError|TabError`)

var notListed = faulty("tests_not_listed", "the image's python3 meets a limit when it looks for the assertions of the tests")

const malformedTests = "the image's interpreter cannot compile a hidden test file"

// calibration returns the stored calibration or makes one. If there is no reference
// solution, it prefers one that was stored when there was.
func (s suite) calibration(ctx context.Context) (contrast.Calibration, error) {
	get := func(kind string) (contrast.Calibration, error) {
		return s.in.Calibrations.Get(ctx, contrast.Key(s.in.Image.Digest, s.key, kind), func() (contrast.Calibration, error) {
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

// try runs the candidate with each set of changes, in random order. Where a candidate that
// notices changes could tell which they are, try also runs the unchanged tests again, so
// that the candidate would have to recognize these, too.
func (s suite) try(ctx context.Context, v Verdict, c contrast.Calibration) (Verdict, error) {
	sum := v.Contrast
	sum.State = contrast.Uncalibrated
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
			message := "the tests still pass after what they expect has been changed"
			if len(set.Edits) == 0 {
				message = "the tests pass, but not when they are run again"
			}
			refused := failed(contrast.Reason, message)
			refused.Contrast, refused.Metadata = sum, v.Metadata
			return refused, nil
		}
	}
	return v, nil
}

// endsAs reports whether a run ended as the set's changes require: the command fails or
// meets a limit, and reports as failed the changed tests, or as many, and none of the
// Others. With an empty set it succeeds.
func endsAs(exit runtime.Exit, set contrast.Set) bool {
	if exit.Success() != (len(set.Edits) == 0) || set.Failures > 0 && exit.Reason == runtime.Exited && !counts(exit, set.Failures) {
		return false
	}
	missing := func(e contrast.Edit) bool { return !reported(exit, e) }
	return !(set.Named && slices.ContainsFunc(set.Edits, missing)) &&
		!slices.ContainsFunc(set.Others, func(e contrast.Edit) bool { return reported(exit, e) })
}

// summaryLine matches the line that ends the output of pytest or unittest, failureCount the
// numbers in it.
var (
	summaryLine  = regexp.MustCompile(`^(=+ )?(\d+ [a-z]+, )*\d+ [a-z]+ in \d|^FAILED \(`)
	failureCount = regexp.MustCompile(`(\d+) (?:failed|errors?)\b|(?:failures|errors)=(\d+)`)
)

// counts reports whether the output counts n failed tests, on one stream or both. A
// candidate may have printed such a line on the stream that the runner does not use.
func counts(exit runtime.Exit, n int) bool {
	out, err := failures(exit.Stdout), failures(exit.Stderr)
	return n == out || n == err || n == out+err
}

// failures returns the number of failed tests in the last such line, or 0. Output of the
// tests precedes that line.
func failures(streams ...runtime.Output) (n int) {
	for _, output := range streams {
		stream := output.String()
		last := ""
		for line := range strings.Lines(colors.ReplaceAllString(stream, "")) {
			if summaryLine.MatchString(line) {
				last = line
			}
		}
		for _, m := range failureCount.FindAllStringSubmatch(last, -1) {
			count, _ := strconv.Atoi(m[1] + m[2])
			n += count
		}
	}
	return n
}

// failureLine matches a line that begins or ends with the word. Elsewhere it may be what a
// candidate prints beside a test's name.
var failureLine = regexp.MustCompile(`^(\W|\[.*\])*(FAILED|FAIL|ERROR)\b|\s(FAILED|FAIL|ERROR)(\s+\[[ \d%]+\])?\s*$`)

// colors matches escape sequences for colors (ECMA-48, SGR).
var colors = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// reported says whether pytest's or unittest's output names the edit's test as failed.
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

// calibrate draws sets of changes, and finds out which of them make the reference fail.
func (s suite) calibrate(ctx context.Context) (contrast.Calibration, error) {
	found, err := contrast.List(ctx, s.listing, s.files, contrast.Options{Seed: s.key, Places: 2, Each: true})
	c := contrast.Calibration{Reference: s.reference != nil, Unread: found.Unread}
	if err != nil {
		return c, err
	}
	if len(found.Broken) == len(s.files) { // if only some are, they are data named like tests
		if s.reference == nil {
			return c, nil
		}
		if err := s.mustFail(ctx); !errors.Is(err, errCannotFail) { // another interpreter compiles them
			return c, err
		}
		return c, contrast.ErrTests
	}
	if s.reference == nil {
		if drawn := groups(functions(contrast.Without(found).Edits, nil)); len(drawn) > 0 {
			c.Sets = []contrast.Set{{Edits: drawn[0]}}
		}
		return c, nil
	}
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
	for i, group := range groups(of) {
		if i == 2 && len(c.Sets) > 0 && !slices.ContainsFunc(c.Sets, contrast.Set.Tells) {
			break // another group would add nothing
		}
		exit, err := s.changed(ctx, s.reference, group)
		if err != nil {
			return c, err
		}
		if !exit.Success() {
			c.Sets = append(c.Sets, setOf(exit, group, of))
		}
	}
	if len(c.Sets) == 0 {
		return c, s.mustFail(ctx)
	}
	return c, s.alone(ctx, &c, of, needed)
}

// setOf returns the set for a run in which the reference failed with these edits. of are all
// functions.
func setOf(exit runtime.Exit, edits []contrast.Edit, of [][]contrast.Edit) contrast.Set {
	set := contrast.Set{Edits: edits}
	named := slices.DeleteFunc(slices.Clone(edits), func(e contrast.Edit) bool { return !reported(exit, e) })
	if len(named) == 0 {
		if !slices.ContainsFunc(edits, func(e contrast.Edit) bool { return e.Users != "" }) {
			set.Failures = failures(exit.Stdout, exit.Stderr)
		}
		return set
	}
	set.Edits, set.Named = named, true
	for _, own := range of {
		fails := func(e contrast.Edit) bool { return e.SameTest(own[0]) || e.MayFail(own[0]) }
		if !slices.ContainsFunc(edits, fails) && !reported(exit, own[0]) {
			set.Others = append(set.Others, own[0])
		}
	}
	return set
}

// Bounds of the functions that are changed alone. There are fewer if the runs take longer
// than aloneTime.
const (
	minAlone, maxAlone = 3, 12
	aloneTime          = time.Minute
)

// alone adds sets of one function each, for some of the functions about whose failure no set
// tells: the command may stop at the first failure or print nothing, or a group may have
// been changed already where they could be.
func (s suite) alone(ctx context.Context, c *contrast.Calibration, of [][]contrast.Edit, needed func(contrast.Edit) bool) error {
	told := func(e contrast.Edit) bool {
		return slices.ContainsFunc(c.Sets, func(set contrast.Set) bool { return set.Tells() && slices.ContainsFunc(set.Edits, e.SameTest) })
	}
	left := slices.DeleteFunc(slices.Clone(of), func(own []contrast.Edit) bool { return needed != nil && !needed(own[0]) || told(own[0]) })
	took := time.Duration(0)
	for i, own := range left {
		if i == maxAlone || i >= minAlone && took > aloneTime {
			break
		}
		exit, err := s.changed(ctx, s.reference, own[:1])
		if err != nil {
			return err
		}
		if took += exit.Wall; !exit.Success() {
			c.Sets = append(c.Sets, setOf(exit, own[:1], nil))
		}
	}
	return nil
}

// weak returns the assertions that the reference passes whatever change is made to them.
// Each run changes one assertion of each function, in turn.
func (s suite) weak(ctx context.Context) ([]string, error) {
	c, err := s.in.Calibrations.Get(ctx, contrast.Key(s.in.Image.Digest, s.key, "weak"), func() (c contrast.Calibration, err error) {
		found, err := contrast.List(ctx, s.listing, s.files, contrast.Options{Seed: s.key, Places: 8, Variants: 3, Each: true, Weak: true})
		left := slices.DeleteFunc(found.Edits, func(e contrast.Edit) bool { return e.Users != "" || e.Loose() })
		turns, took := map[contrast.Edit]int{}, time.Duration(0) // by assertion
		at := func(e contrast.Edit) contrast.Edit { return contrast.Edit{Path: e.Path, Place: e.Place} }
		for run := 0; err == nil && len(left) > 0 && (run < minAlone || run < maxAlone && took < aloneTime); run++ {
			slices.SortStableFunc(left, func(a, b contrast.Edit) int { return turns[at(a)] - turns[at(b)] })
			var group []contrast.Edit
			for _, e := range left {
				if len(group) < maxChanged && !slices.ContainsFunc(group, func(o contrast.Edit) bool { return o.SameTest(e) || o.Overlaps(e) }) {
					group = append(group, e)
					turns[at(e)]++
				}
			}
			var exit runtime.Exit
			exit, err = s.changed(ctx, s.reference, group)
			took += exit.Wall
			fails := func(e contrast.Edit) bool { return reported(exit, e) || !exit.Success() && len(group) == 1 }
			tells := exit.Success() || slices.ContainsFunc(group, fails)
			for _, e := range group {
				switch {
				case fails(e):
					c.Edits = append(c.Edits, e)
				case tells:
					c.Unobserved = append(c.Unobserved, e)
				}
			}
			left = slices.DeleteFunc(left, func(e contrast.Edit) bool {
				return slices.Contains(group, e) || slices.ContainsFunc(c.Edits, func(o contrast.Edit) bool { return at(o) == at(e) })
			})
		}
		return c, err
	})
	return c.Weak(), err
}

// mustFail checks that the command fails when every test file raises an error.
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

// maxChanged bounds the changed functions, so that the output holds all their failures.
const maxChanged = 40

// functions returns the edits of at most maxChanged test functions, in random order, needed
// ones first. needed may be nil.
func functions(edits []contrast.Edit, needed func(contrast.Edit) bool) (of [][]contrast.Edit) {
	for _, e := range edits {
		i := slices.IndexFunc(of, func(o []contrast.Edit) bool { return o[0].SameTest(e) })
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

// groups draws groups of test functions, and returns one edit for each function of a group:
// a function is in one of two halves, and every other one also in a third group. Which
// functions are in a group reveals nothing about the others. A single function is in up to
// four groups, changed in different places. A function that can only be changed where
// another one is changed already, such as in a value that both expect, is in none.
func groups(of [][]contrast.Edit) (groups [][]contrast.Edit) {
	if len(of) == 1 {
		apart := []contrast.Edit{of[0][0]}
		for _, e := range of[0] {
			if !slices.ContainsFunc(apart, e.Overlaps) {
				apart = append(apart, e)
			}
		}
		if len(apart) == 1 {
			apart = append(apart, of[0][1:]...)
			apart = apart[:min(len(apart), 2)]
		}
		for _, e := range apart[:min(len(apart), 4)] {
			groups = append(groups, []contrast.Edit{e})
		}
		return groups
	}
	groups = make([][]contrast.Edit, 3)
	for _, own := range of {
		free := slices.DeleteFunc(slices.Clone(own), func(e contrast.Edit) bool {
			return slices.ContainsFunc(slices.Concat(groups...), e.Overlaps)
		})
		if len(free) == 0 {
			continue
		}
		half := rand.IntN(2)
		if len(groups[half]) > 0 && len(groups[1-half]) == 0 && len(groups[half])+1 == len(of) {
			half = 1 - half // no half holds all functions: the other one has to pass
		}
		groups[half] = append(groups[half], free[0])
		if rand.IntN(2) == 0 {
			kind := free[0].Kind
			same := slices.DeleteFunc(free, func(e contrast.Edit) bool { return e.Kind != kind })
			groups[2] = append(groups[2], same[len(same)-1])
		}
	}
	return slices.DeleteFunc(groups, func(group []contrast.Edit) bool { return len(group) == 0 })
}
