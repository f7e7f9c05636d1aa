// Package suite judges a candidate by hidden tests that a command runs: unchanged, and changed so that the
// candidate must fail. [Suite.Judge] is its door.
//
// The packages repo and terminal find the hidden files and run the command in their sandboxes; they are
// the [Command] here. The package contrast finds the changes of tests in Python. A file in another
// language is broken as a whole (the canary).
package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
)

// A Suite is a command that runs hidden tests. A pass is checked by more runs, in random order with the run of
// the unchanged tests. With a reference and tests in Python, the candidate has to fail each half of the changed
// test functions as the reference does. Otherwise it has to fail the canary, which makes all tests fail, and
// changed functions in Python. Beside processes that the harness left, only the canary runs, since each run may
// change the state of these processes.
type Suite struct {
	Engine  verifiers.Engine
	Input   verifiers.Input
	Command Command         // runs the tests
	Key     string          // names the evaluation in the store of calibrations
	Files   []contrast.File // hidden tests in Python
	// Seen are texts of tests that authors of candidates can read. A candidate that finds a line of them
	// changed knows in which run it is.
	Seen []string
	// Selects is the text of the command and its scripts. Rows of a table that it names by their values are not changed,
	// and files that it names run in its order.
	Selects string
	// Others are hidden files that the command runs or reads, if there are no tests in Python.
	Others []contrast.File
	// Certain says that the command surely uses the files, so that it is a fault of the pack if
	// the reference passes all the same.
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
	Run(ctx context.Context, on Subject, files []contrast.File) (runtime.Exit, error)
	// Unchanged judges the candidate by the unchanged tests. The candidate cannot tell this run from
	// a run of changed tests.
	Unchanged(ctx context.Context) (verifiers.Verdict, error)
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

// Numbers of a candidate's runs. 0 and 1 are the first two sets of a [contrast.Calibration].
const (
	allSet       = 2 // the set with every function
	unchangedRun = -1
	canaryRun    = -2
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
	drawn, err := s.Input.Calibrations.Get(ctx, s.storeKey("drawn"), func() (contrast.Calibration, error) { return s.draw(ctx) })
	limit := errors.Is(err, contrast.ErrLimit)
	if err != nil && !limit {
		return verifiers.Verdict{}, err
	}
	c, err := s.calibration(ctx, nil, nil)
	stored := err == nil
	if err != nil && !errors.Is(err, errNoReference) {
		return verifiers.Verdict{}, err
	}
	sets := drawn.Sets
	if stored {
		sets = c.Sets
	}
	runs := s.runs(sets, stored, c.CannotFail)
	v, ends, err := s.try(ctx, append(runs, unchangedRun), drawn, sets)
	switch {
	case err != nil:
		return v, err
	case v.Status == verifiers.Failed:
		return s.malformed(ctx, v, drawn)
	case v.Status != verifiers.Passed:
		return v, nil
	case limit && s.Certain:
		return verifiers.Fault("tests_not_listed", "the image's python3 meets a limit when it looks for the assertions of the tests"), nil
	}
	if !stored && s.Reference {
		c, err = s.calibration(ctx, &drawn, ends)
		switch {
		case errors.Is(err, ErrReference):
			return verifiers.Fault("reference_fails", ErrReference.Error()), nil
		case err != nil:
			return verifiers.Verdict{}, err
		}
		if err := s.tryUsable(ctx, c, ends); err != nil {
			return verifiers.Verdict{}, err
		}
	}
	sum := contrast.Summary{State: contrast.None, Unread: drawn.Unread}
	if v, judged, err := s.contrasted(ctx, v, sum, c, drawn, ends); judged || err != nil {
		return v, err
	}
	if c.CannotFail {
		return s.cannotFail(v, sum, drawn), nil
	}
	if _, ran := ends[canaryRun]; !ran {
		if ends[canaryRun], err = s.Command.Run(ctx, Candidate, s.broken(drawn)); err != nil {
			return verifiers.Verdict{}, err
		}
	}
	switch {
	case ends[canaryRun].Success():
		return s.passesBroken(ctx, v, sum, c, drawn)
	case s.skips(ends[canaryRun], drawn):
		return refuseBroken(v, sum), nil
	}
	return s.uncalibrated(v, sum, drawn, ends), nil
}

// runs returns the candidate's runs with changed tests: at most two once there is a calibration, and one
// where [contrast.Quick] suffices.
func (s Suite) runs(sets []contrast.Set, calibrated, cannotFail bool) (runs []int) {
	quick := s.Input.Contrast == contrast.Quick
	switch {
	case calibrated || s.Reference:
		if runs = usable(sets); quick && len(runs) > 1 {
			one := rand.IntN(len(runs))
			runs = runs[one : one+1]
		}
	case !quick && len(sets) > allSet && len(sets[allSet].Edits) > 0:
		runs = []int{allSet}
	}
	if !slices.Contains(runs, 0) && !slices.Contains(runs, 1) && !cannotFail && s.Input.Left == nil {
		runs = append(runs, canaryRun)
	}
	return runs
}

// usable returns the numbers of the sets of two runs that have edits.
func usable(sets []contrast.Set) (runs []int) {
	for i, set := range sets[:min(len(sets), allSet)] {
		if len(set.Edits) > 0 {
			runs = append(runs, i)
		}
	}
	return runs
}

// tryUsable makes a run with a calibrated set if the set of a quick judgement turned out to be of no use.
func (s Suite) tryUsable(ctx context.Context, c contrast.Calibration, ends map[int]runtime.Exit) error {
	left := usable(c.Sets)
	if s.Input.Contrast != contrast.Quick || len(left) == 0 || slices.ContainsFunc(left, func(i int) bool { _, ran := ends[i]; return ran }) {
		return nil
	}
	exit, err := s.changed(ctx, Candidate, c.Sets[left[0]].Edits)
	ends[left[0]] = exit
	return err
}

func (s Suite) storeKey(kind string) string { return contrast.Key(s.Input.Image.Digest, s.Key, kind) }

// try makes the runs in random order, until the unchanged tests fail. The verdict is on these.
func (s Suite) try(ctx context.Context, runs []int, drawn contrast.Calibration, sets []contrast.Set) (v verifiers.Verdict, ends map[int]runtime.Exit, err error) {
	rand.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
	exits, errs := make([]runtime.Exit, len(runs)), make([]error, len(runs))
	err = s.each(ctx, "the tests, unchanged and changed", len(runs), func(ctx context.Context, i int) (err error) {
		switch run := runs[i]; run {
		case unchangedRun:
			if v, err = s.Command.Unchanged(ctx); err == nil && v.Status != verifiers.Passed {
				err = errEnough
			}
			return err
		case canaryRun:
			exits[i], errs[i] = s.Command.Run(ctx, Candidate, s.broken(drawn))
		default:
			exits[i], errs[i] = s.changed(ctx, Candidate, sets[run].Edits)
		}
		return nil // the unchanged tests may say why
	})
	if errors.Is(err, errEnough) {
		return v, nil, nil
	}
	ends = map[int]runtime.Exit{}
	for i, run := range runs {
		if run != unchangedRun {
			ends[run] = exits[i]
		}
	}
	return v, ends, cmp.Or(err, cmp.Or(errs...))
}

// errEnough ends [Suite.each] early.
var errEnough = errors.New("no more runs are needed")

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

// contrasted returns the verdict on a candidate that passed if a calibrated set tells it.
func (s Suite) contrasted(ctx context.Context, v verifiers.Verdict, sum contrast.Summary, c, drawn contrast.Calibration, ends map[int]runtime.Exit) (verifiers.Verdict, bool, error) {
	if !c.Reference {
		return v, false, nil
	}
	for i, set := range c.Sets {
		if exit, ran := ends[i]; ran && len(set.Edits) > 0 {
			sum.State = contrast.Calibrated
			sum.Mutants += len(set.Edits)
			as := endsAs(exit, set)
			if !as && !exit.Success() && len(set.Failed) > 0 {
				var err error
				if as, err = s.leftBehind(ctx, exit, set, c.Sets[len(c.Sets)-1-i], drawn.Sets[allSet]); err != nil {
					return v, false, err
				}
			}
			if !as {
				sum.Followed++
			}
		}
	}
	if sum.State != contrast.Calibrated {
		return v, false, nil
	}
	if sum.Followed > 0 {
		return refuse(v, contrast.Reason, "the tests still pass after what they expect has been changed", sum), true, nil
	}
	if v.Assurance, v.Contrast = verifiers.Contrasted, &sum; c.Seen {
		v.Assurance = verifiers.Executed
	}
	return v, true, nil
}

// leftBehind reports whether a run with set failed more tests than the reference because of what the failed tests left
// behind. It changes one of the additional tests alone: this test has to fail, and no test before it. A candidate that
// fails a test only after it has noticed another changed test passes here. other is the set of the other run, all has
// every function.
func (s Suite) leftBehind(ctx context.Context, exit runtime.Exit, set, other, all contrast.Set) (bool, error) {
	more, changed := compare(exit, set)
	first := func(o contrast.Edit) bool {
		return more.name(o) && !slices.ContainsFunc(set.Edits, func(e contrast.Edit) bool { return !s.before(o, e) })
	}
	if !changed || slices.ContainsFunc(all.Edits, first) {
		return false, nil
	}
	edits := slices.DeleteFunc(slices.Clone(other.Edits), more.omit)
	if len(edits) == 0 {
		return true, nil
	}
	rand.Shuffle(len(edits), func(i, j int) { edits[i], edits[j] = edits[j], edits[i] })
	alone := edits[max(0, slices.IndexFunc(edits, func(e contrast.Edit) bool { return slices.ContainsFunc(all.Needed, e.SameTest) }))]
	exit, err := s.changed(ctx, Candidate, []contrast.Edit{alone})
	lines := failureLinesOf(exit)
	return lines.name(alone) && !slices.ContainsFunc(all.Edits, func(o contrast.Edit) bool { return lines.name(o) && s.before(o, alone) }), err
}

// refuse returns the verdict on a candidate that passed, if neither the pass nor its reward counts.
func refuse(pass verifiers.Verdict, reason, message string, sum contrast.Summary) verifiers.Verdict {
	v := verifiers.Fail(reason, message)
	v.Metadata, v.Contrast = maps.Clone(pass.Metadata), &sum
	delete(v.Metadata, verifiers.Reward)
	return v
}

// uncalibrated judges a candidate that passed and failed the canary: one that follows all changed
// functions that the command runs fails, and one that follows some is doubtful.
func (s Suite) uncalibrated(v verifiers.Verdict, sum contrast.Summary, drawn contrast.Calibration, ends map[int]runtime.Exit) verifiers.Verdict {
	exit, ran := ends[allSet]
	if !ran {
		return s.executed(v, sum, "failed")
	}
	edits := drawn.Sets[allSet].Edits
	sum.State, sum.Mutants = contrast.Uncalibrated, len(edits)
	run := slices.DeleteFunc(slices.Clone(edits), failureLinesOf(ends[canaryRun]).omit)
	followed := slices.DeleteFunc(slices.Clone(run), failureLinesOf(exit).name)
	all := len(run) > 0 && len(followed) == len(run)
	if sum.Followed = len(followed); len(run) == 0 && exit.Success() { // the command names no tests
		sum.Followed, all = len(edits), s.Certain
	}
	if all {
		return refuse(v, contrast.Reason, "the tests still pass after everything that they expect has been changed", sum)
	}
	if v = s.executed(v, sum, "failed"); sum.Followed > 0 {
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
func (s Suite) cannotFail(v verifiers.Verdict, sum contrast.Summary, drawn contrast.Calibration) verifiers.Verdict {
	switch {
	case !s.Certain:
		return s.executed(v, sum, "none")
	case len(s.Files) > 0 && len(drawn.Broken) == len(s.Files):
		return verifiers.Fault(malformedReason, malformedTests)
	}
	return verifiers.Fault(CannotFail, "the tests' command exits with 0 although every test fails")
}

// passesBroken returns the verdict on a candidate that passes broken tests: its own fault unless
// the empty candidate passes them, too.
func (s Suite) passesBroken(ctx context.Context, v verifiers.Verdict, sum contrast.Summary, c, drawn contrast.Calibration) (verifiers.Verdict, error) {
	if !c.Reference {
		exit, err := s.Command.Run(ctx, Unsolved, s.broken(drawn))
		switch {
		case err != nil && !neverStarted(err):
			return verifiers.Verdict{}, err
		case err == nil && exit.Success():
			return s.cannotFail(v, sum, drawn), nil
		case !s.Certain && s.Redirected == nil:
			return s.executed(v, sum, "passed").With(verifiers.Doubtful, true), nil
		}
	}
	return refuseBroken(v, sum), nil
}

func refuseBroken(v verifiers.Verdict, sum contrast.Summary) verifiers.Verdict {
	return refuse(v, brokenReason, "the candidate passes tests that were made to fail", sum)
}

// skips reports whether a test that fails without a solution did not fail in the run with the canary,
// although a later one did: a candidate may skip it.
func (s Suite) skips(exit runtime.Exit, drawn contrast.Calibration) bool {
	if len(drawn.Sets) == 0 {
		return false
	}
	all, lines := drawn.Sets[allSet], failureLinesOf(exit)
	return slices.ContainsFunc(all.Needed, func(e contrast.Edit) bool {
		return lines.omit(e) && slices.ContainsFunc(all.Edits, func(later contrast.Edit) bool { return s.before(e, later) && lines.name(later) })
	})
}

// before reports whether e's test runs before other's: files that the command names run in the command's order.
func (s Suite) before(e, other contrast.Edit) bool {
	at, otherAt := strings.Index(s.Selects, path.Base(e.Path)), strings.Index(s.Selects, path.Base(other.Path))
	if e.Path != other.Path && at >= 0 && otherAt >= 0 {
		return at < otherAt
	}
	return e.Before(other)
}

func neverStarted(err error) bool {
	return errors.Is(err, runtime.ErrNotStarted) || errors.Is(err, runtime.ErrDenied)
}

// malformed turns a failure into a fault of the pack if the image's python3 does not compile a hidden test
// file, and the command reports the same without a candidate.
func (s Suite) malformed(ctx context.Context, v verifiers.Verdict, drawn contrast.Calibration) (verifiers.Verdict, error) {
	if len(drawn.Broken) == 0 || !syntaxError.MatchString(v.Stderr.String()+v.Stdout.String()) {
		return v, nil
	}
	exit, err := s.Command.Run(ctx, Unsolved, s.Files)
	if err != nil && !neverStarted(err) {
		return v, err
	}
	text := exit.Stderr.String() + exit.Stdout.String()
	if syntaxError.MatchString(text) && slices.ContainsFunc(drawn.Broken, func(name string) bool { return strings.Contains(text, path.Base(name)) }) {
		v.Status, v.Score, v.Reason, v.Message = verifiers.Faulty, 0, malformedReason, malformedTests
	}
	return v, nil
}

var syntaxError = regexp.MustCompile(`SyntaxError|IndentationError|TabError`)

// calibration returns the stored calibration. If there is none, it makes one from what was
// drawn, if that is not nil and there is a reference solution. ends are the candidate's runs.
func (s Suite) calibration(ctx context.Context, drawn *contrast.Calibration, ends map[int]runtime.Exit) (contrast.Calibration, error) {
	return s.Input.Calibrations.Get(ctx, s.storeKey(contrast.Calibrated), func() (contrast.Calibration, error) {
		if drawn == nil || !s.Reference {
			return contrast.Calibration{}, errNoReference
		}
		return s.calibrate(ctx, *drawn, ends)
	})
}

// calibrate finds out which of the drawn sets make the reference fail or, if none does, whether the canary
// does. ends are the runs that a candidate made that is the reference.
func (s Suite) calibrate(ctx context.Context, drawn contrast.Calibration, ends map[int]runtime.Exit) (c contrast.Calibration, err error) {
	c.Reference, c.Seen = true, drawn.Seen
	exits := map[int]runtime.Exit{}
	if s.Input.Reference {
		exits = maps.Clone(ends)
		exits[unchangedRun] = runtime.Exit{Reason: runtime.Exited}
	}
	runs := slices.DeleteFunc(append([]int{unchangedRun}, usable(drawn.Sets)...), func(i int) bool { _, ran := exits[i]; return ran })
	made := make([]runtime.Exit, len(runs))
	err = s.each(ctx, "the reference solution, for a calibration", len(runs), func(ctx context.Context, i int) (err error) {
		if runs[i] != unchangedRun {
			made[i], err = s.changed(ctx, Reference, drawn.Sets[runs[i]].Edits)
			return err
		}
		if made[i], err = s.Command.Run(ctx, Reference, slices.Concat(s.Files, s.Others)); neverStarted(err) || err == nil && !made[i].Success() {
			err = errEnough // it shows nothing if it fails the unchanged tests
		}
		return err
	})
	switch {
	case errors.Is(err, errEnough):
		return c, nil
	case err != nil:
		return c, err
	}
	for i, run := range runs {
		exits[run] = made[i]
	}
	for i, set := range drawn.Sets[:min(len(drawn.Sets), allSet)] {
		var calibrated contrast.Set
		if exit, ran := exits[i]; ran && !exit.Success() {
			calibrated = setOf(exit, set.Edits)
		}
		c.Sets = append(c.Sets, calibrated)
	}
	if len(usable(c.Sets)) > 0 {
		return c, nil
	}
	broken := Reference
	if s.Redirected != nil { // whether the files can be redirected shows without a candidate
		broken = Unsolved
	}
	exit, ran := exits[canaryRun]
	if !ran || broken != Reference {
		exit, err = s.Command.Run(ctx, broken, s.broken(drawn))
	}
	if err != nil && !neverStarted(err) {
		return c, err
	}
	c.CannotFail = err == nil && exit.Success()
	return c, nil
}

// setOf returns the set for a run in which the reference failed with these edits.
func setOf(exit runtime.Exit, edits []contrast.Edit) contrast.Set {
	lines := failureLinesOf(exit)
	if named := slices.DeleteFunc(slices.Clone(edits), lines.omit); len(named) > 0 {
		return contrast.Set{Edits: named, Failed: lines.tests()}
	}
	set := contrast.Set{Edits: edits}
	if !slices.ContainsFunc(edits, func(e contrast.Edit) bool { return e.Shared }) {
		set.Failures = failures(exit.Stdout, exit.Stderr) // of the rows of a table, each is one
	}
	return set
}

// compare returns the tests that failed although the reference does not fail them with the set, and whether each changed
// test failed in as many rows as for the reference: objects of the candidate may name the rows. The reference can fail
// other tests by chance, or because of what it keeps between tests.
func compare(exit runtime.Exit, set contrast.Set) (more failureLines, all bool) {
	failed, reference := failureLines(failureLinesOf(exit).tests()), failureLines(set.Failed)
	more = slices.DeleteFunc(slices.Clone(failed), func(name string) bool { return slices.Contains(reference, name) })
	for _, e := range set.Edits {
		if len(failed.of(e)) != len(reference.of(e)) {
			return more, false
		}
		more = slices.DeleteFunc(more, func(name string) bool { return failureLines{name}.name(e) })
	}
	return more, true
}

// endsAs reports whether a run ended as the set's changes require: the command fails, and names as failed the changed
// tests that the reference fails, and no test that the reference does not fail. If the output names no tests, as many
// have failed as for the reference, or the command meets a limit before it says how many.
func endsAs(exit runtime.Exit, set contrast.Set) bool {
	switch {
	case exit.Success():
		return false
	case len(set.Failed) > 0:
		more, all := compare(exit, set)
		return all && len(more) == 0
	}
	return set.Failures == 0 || exit.Reason != runtime.Exited || failures(exit.Stdout, exit.Stderr) == set.Failures
}

// changed runs the command with the edits applied to the hidden files.
func (s Suite) changed(ctx context.Context, on Subject, edits []contrast.Edit) (runtime.Exit, error) {
	files := slices.Clone(s.Files)
	for i, f := range files {
		text, err := contrast.Apply(f, edits...)
		if err != nil {
			return runtime.Exit{}, err
		}
		files[i].Text = text
	}
	return s.Command.Run(ctx, on, files)
}
