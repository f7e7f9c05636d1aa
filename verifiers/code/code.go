// Package code judges code_completion: [Family] runs a candidate's code with the task's hidden tests. Where
// plain data suffices, the candidate runs in a process of its own, and the pass is sealed. Otherwise it runs
// beside the tests, and must fail when the package contrast changes them.
package code

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/verifiers/pool"
)

// Family returns the family code_completion.
func Family() verifiers.Family {
	return verifiers.Family{
		Family: family.CodeCompletion(), Verify: verifiers.By(family.CodeCompletionOf, verifyCode), Sandboxed: true,
		Reference: func(t *compiler.Task) candidate.Candidate {
			return candidate.Candidate{Text: codeSolution(family.CodeCompletionOf(t))}
		},
	}
}

// verifyCode runs the hidden tests, with the candidate in a process of its own or beside them.
func verifyCode(ctx context.Context, e verifiers.Engine, in verifiers.Input, eval family.CodeCompletionEval) (v verifiers.Verdict, err error) {
	if eval.Language != "python" {
		return verifiers.Verdict{Status: verifiers.Pending, Reason: "language_without_verifier", Message: "no verifier for code in the language of this task; only python has one"}, nil
	}
	if in.Code == nil {
		in.Code = pool.New(e)
		defer func() { err = errors.Join(err, in.Code.Close(ctx)) }()
	}
	in.Candidate.Text = eval.Written(in.Candidate.Text)
	v, err = (&codeCheck{in: in, eval: eval, engine: e}).verify(ctx)
	if v.Status == verifiers.Failed && eval.Extract == family.Fenced {
		v = v.With(verifiers.Read, line(strings.TrimSpace(in.Candidate.Text), 1))
	}
	return v, err
}

// line returns a line of a text, numbered from 1; "" if there is none. It is cut to a hundred characters.
func line(text string, number int) string {
	lines := strings.Split(text, "\n")
	if number < 1 || number > len(lines) {
		return ""
	}
	r := []rune(lines[number-1])
	return string(r[:min(len(r), 100)])
}

// codeCheck is one verification.
type codeCheck struct {
	in     verifiers.Input
	eval   family.CodeCompletionEval
	engine verifiers.Engine
	repair bool              // the tests get the candidate's versions of what the prompt has
	real   pool.Result       // the last run of the unchanged tests
	wrong  verifiers.Verdict // the verdict on that run
}

// codeTry is one run of the tests.
type codeTry struct {
	code   string
	edits  []contrast.Edit
	all    []contrast.Edit // among which edits were chosen
	sealed bool            // the candidate gets a process of its own
	// foreign says that code is the candidate's, not the reference solution.
	foreign bool
	broken  bool // the tests fail after their end
	eased   bool // values of derived classes arrive as plain ones, and the tests may read the candidate's files
}

// Errors of a run that judges nothing.
var (
	errRefused      = errors.New("plain data does not suffice")
	errAlwaysPasses = errors.New("the reference solution passes broken tests")
)

func (c *codeCheck) verify(ctx context.Context) (verifiers.Verdict, error) {
	v, err := c.judge(ctx)
	switch {
	case errors.Is(err, contrast.ErrTests):
		return verifiers.Fault("tests_malformed", "the image's interpreter cannot compile the tests, or lacks a module that the prompt imports"), nil
	case errors.Is(err, contrast.ErrReference):
		return verifiers.Fault("reference_fails", "the reference solution does not pass the task's own tests: "+c.wrong.Reason), nil
	case errors.Is(err, errAlwaysPasses):
		return verifiers.Fault("tests_cannot_fail", "the reference solution passes tests that were made to fail"), nil
	case errors.Is(err, contrast.ErrPython):
		return verifiers.Fault("python_missing", "the image has no python3 that the tests' user can use"), nil
	case err != nil:
		return verifiers.Verdict{}, err
	}
	v.Stderr = c.real.Output
	return v.With("exit_reason", c.real.End).With("wall_seconds", c.real.Took.Seconds()), nil
}

// judge judges the candidate by the strongest way in which the reference solution passes. A
// candidate for which plain data does not suffice is judged beside the tests.
func (c *codeCheck) judge(ctx context.Context) (verifiers.Verdict, error) {
	solution := codeSolution(c.eval)
	var calibration contrast.Calibration
	var err error
	if solution != "" {
		if calibration, err = c.calibration(ctx, "", func() (contrast.Calibration, error) { return c.calibrate(ctx, solution) }); err != nil {
			return verifiers.Verdict{}, err
		}
		c.repair = calibration.Repair
	}
	if !calibration.Sealed && solution != "" {
		return c.beside(ctx, calibration, c.in.Contrast.Mutants())
	}
	outcome, err := c.try(ctx, codeTry{code: c.in.Candidate.Text, sealed: true, foreign: true})
	if errors.Is(err, errRefused) {
		if again, ok := c.try(ctx, codeTry{code: c.in.Candidate.Text, sealed: true, foreign: true, eased: true}); ok == nil && again == contrast.Passed {
			outcome, err = again, nil
		}
	}
	switch {
	case err == nil && outcome == contrast.Passed:
		v := verifiers.Pass()
		v.Assurance = cmp.Or(c.wrong.Assurance, verifiers.Sealed)
		return v, nil
	case !errors.Is(err, errRefused):
		return c.wrong, err
	}
	if c.in.Contrast == contrast.Off {
		return c.beside(ctx, contrast.Calibration{}, 0)
	}
	calibration, err = c.calibration(ctx, "beside", func() (contrast.Calibration, error) { return c.contrast(ctx, solution) })
	switch {
	case errors.Is(err, contrast.ErrReference), errors.Is(err, errAlwaysPasses):
		return verifiers.Fail("not_plain_data", "the candidate answers with objects, and the reference solution passes only with plain data"), nil
	case err != nil:
		return verifiers.Verdict{}, err
	case solution != "" && !calibration.Expects(): // or it would choose the weakest way
		return verifiers.Fail("not_plain_data", "the candidate answers with objects, and no change of the tests can show whether it solves the task"), nil
	}
	return c.beside(ctx, calibration, len(calibration.Edits)) // it may have chosen this way
}

// beside judges the candidate in the tests' process: it has to fail with each of n changes of
// what the tests expect, and, unless [contrast.Off] is asked for, when they are broken.
func (c *codeCheck) beside(ctx context.Context, calibration contrast.Calibration, n int) (verifiers.Verdict, error) {
	run := codeTry{code: c.in.Candidate.Text, all: calibration.Edits, foreign: true}
	real, follows, summary, err := calibration.Judge(ctx, n, c.contrasted(run))
	if err != nil {
		return verifiers.Verdict{}, err
	}
	off := c.in.Contrast == contrast.Off
	if off {
		summary.State = string(contrast.Off)
	}
	v := c.wrong
	all := summary.Mutants > 0 && summary.Followed == summary.Mutants
	switch {
	case real != contrast.Passed:
	case follows && calibration.Reference, all && !calibration.Reference:
		v = verifiers.Fail(contrast.Reason, "the candidate passes tests that expect something wrong")
	case off:
		v = verifiers.Pass()
	default:
		if v, err = c.canary(ctx, run); err != nil {
			return v, err
		}
	}
	if v.Status == verifiers.Passed {
		v.Assurance = verifiers.Executed
		switch {
		case calibration.Reference && summary.Mutants > 0 && calibration.Expects():
			v.Assurance = verifiers.Contrasted
		case summary.Followed > 0:
			v = v.With(verifiers.Doubtful, true)
		}
	}
	v.Contrast = &summary
	return v, nil
}

// canary runs tests that fail after their end. Code that passes them passes any.
func (c *codeCheck) canary(ctx context.Context, run codeTry) (verifiers.Verdict, error) {
	run.broken = true
	outcome, err := c.try(ctx, run)
	if err == nil && outcome == contrast.Passed {
		return verifiers.Fail("passes_broken_tests", "the candidate passes tests that were made to fail"), nil
	}
	return verifiers.Pass(), err
}

func (c *codeCheck) calibration(ctx context.Context, kind string, calibrate func() (contrast.Calibration, error)) (contrast.Calibration, error) {
	key := contrast.Key(c.in.Image.Digest, c.user(), c.eval.Tests, codeSolution(c.eval), c.eval.Prompt, c.eval.StarterCode, pool.Programs(), kind)
	return c.in.Calibrations.Get(ctx, key, calibrate)
}

// calibrate finds the strongest way in which the reference solution passes.
func (c *codeCheck) calibrate(ctx context.Context, solution string) (contrast.Calibration, error) {
	for _, c.repair = range []bool{false, true} {
		outcome, err := c.try(ctx, codeTry{code: solution, sealed: true})
		if err == nil && outcome == contrast.Passed { // by luck, perhaps: what tests seed may not reach the solution
			outcome, err = c.try(ctx, codeTry{code: solution, sealed: true})
		}
		switch {
		case err == nil && outcome == contrast.Passed:
			return contrast.Calibration{Reference: true, Sealed: true, Repair: c.repair}, nil
		case err != nil && !errors.Is(err, errRefused):
			return contrast.Calibration{}, err
		}
		if calibration, err := c.contrast(ctx, solution); !errors.Is(err, contrast.ErrReference) {
			return calibration, err
		}
	}
	return contrast.Calibration{}, contrast.ErrReference
}

// contrast finds changes of the tests, and keeps those that a reference solution shows to be of use.
func (c *codeCheck) contrast(ctx context.Context, solution string) (contrast.Calibration, error) {
	names := declared("def|class", c.eval.Prompt, c.eval.StarterCode, solution)
	cfg := c.in.Sandbox("calibration")
	cfg.User = "0:0"
	listing, err := contrast.List(ctx, contrast.InSandbox(c.engine, cfg), []contrast.File{c.tests()}, contrast.Options{Seed: c.eval.Tests, Names: names})
	switch {
	case errors.Is(err, contrast.ErrLimit): // no error: a candidate can bring it about
		listing.Unread = []string{c.tests().Path}
	case err != nil:
		return contrast.Calibration{}, err
	case len(listing.Broken) > 0:
		return contrast.Calibration{}, contrast.ErrTests
	}
	if solution == "" {
		return contrast.Without(listing), nil
	}
	calibration, err := contrast.Calibrate(ctx, listing, c.contrasted(codeTry{code: solution, all: listing.Edits}))
	if err != nil {
		return calibration, err
	}
	calibration.Repair = c.repair
	if v, err := c.canary(ctx, codeTry{code: solution}); err != nil || v.Status != verifiers.Passed {
		return contrast.Calibration{}, cmp.Or(err, errAlwaysPasses)
	}
	return calibration, nil
}

// codeSolution returns the task's own solution: the complete one, or else the canonical one, which continues
// the starter code if it is indented as a function's body, or the starter code ends in an indentation.
func codeSolution(eval family.CodeCompletionEval) string {
	if whole := eval.ReferenceSolution.Reveal(); whole != "" {
		return whole
	}
	canonical := eval.CanonicalSolution.Reveal()
	body := strings.TrimLeft(canonical, "\r\n")
	indented := strings.TrimLeft(body, " \t") != body
	begun := strings.TrimRight(eval.StarterCode, " \t") != eval.StarterCode && len(declared("def|class", canonical)) == 0
	if !indented && !begun {
		return canonical
	}
	return eval.Continue(canonical)
}

func (c *codeCheck) tests() contrast.File {
	return contrast.File{Path: "tests.py", Text: c.eval.Tests}
}

// contrasted returns a function that makes run with edits.
func (c *codeCheck) contrasted(run codeTry) contrast.Try {
	return func(ctx context.Context, edits ...contrast.Edit) (contrast.Outcome, error) {
		run.edits = edits
		return c.try(ctx, run)
	}
}

// try makes a run. The error is errRefused if it is sealed and plain data does not suffice.
func (c *codeCheck) try(ctx context.Context, t codeTry) (contrast.Outcome, error) {
	tests, err := contrast.Apply(c.tests(), t.edits...)
	if err != nil {
		return 0, err
	}
	token := rand.Text() // no candidate can guess it
	run, err := c.run(ctx, t, tests, token)
	if err != nil {
		return 0, err
	}
	v, failures, err := codeVerdict(run, token, t.code)
	if err != nil && t.foreign && !t.sealed { // a forged report: the tests have been loaded before
		v, err = verifiers.Fail("tests_not_finished", "the process reported a false result of the tests"), nil
	}
	if err != nil {
		return 0, err
	}
	if len(t.edits) == 0 && !t.broken {
		c.real, c.wrong = run, v
		if v.Reason == "verifier_timeout" {
			c.wrong.Message = fmt.Sprintf("the tests did not end within %s", c.in.Wall())
		}
	}
	return t.outcome(v, failures), nil
}

// outcome returns contrast.FailedThere if all failures are at changed assertions, which a traceback names
// first. The reference solution must not be able to catch what these raise.
func (t codeTry) outcome(v verifiers.Verdict, failures [][]int) contrast.Outcome {
	if v.Status == verifiers.Passed {
		return contrast.Passed
	}
	there := func(lines []int) bool {
		if i := slices.Index(lines, 0); i >= 0 && !t.foreign {
			lines = lines[:i]
		}
		at := func(line int, edits []contrast.Edit) bool {
			return slices.ContainsFunc(edits, func(e contrast.Edit) bool { return e.Line <= line && line <= e.Last })
		}
		i := slices.IndexFunc(lines, func(l int) bool { return at(l, t.all) })
		return i >= 0 && at(lines[i], t.edits)
	}
	if len(failures) == 0 || slices.ContainsFunc(failures, func(lines []int) bool { return !there(lines) }) {
		return contrast.FailedElsewhere
	}
	return contrast.FailedThere
}

func (c *codeCheck) run(ctx context.Context, t codeTry, tests, token string) (pool.Result, error) {
	request := map[string]any{
		"token": token, "candidate": t.code, "tests": tests, "after": "", "repair": c.repair, "solution": "",
		"given": []string{c.eval.Prompt, c.eval.StarterCode},
	}
	if t.broken {
		request["after"] = "assert not 'reached'"
	}
	if t.sealed { // what the solution declares is for the tests' process only
		request["eased"] = t.eased
		request["declared"] = declared("def|class", c.eval.Prompt, c.eval.StarterCode)
		request["classes"] = declared("class", c.eval.Prompt, c.eval.StarterCode, codeSolution(c.eval))
		request["solution"] = codeSolution(c.eval)
	}
	text, err := json.Marshal(request)
	if err != nil {
		return pool.Result{}, err
	}
	seen := ""
	if t.foreign && !t.sealed {
		seen = c.eval.Tests
	}
	return c.in.Code.Run(ctx,
		pool.Config{Image: c.in.Image, Isolation: runtime.Isolation(c.in.Task.Environment().Isolation), Limits: c.in.Limits, User: c.user(), Env: environment.Environ(c.in.Task.Environment().Env)},
		pool.Request{Text: text, Tests: seen, Apart: t.sealed, Wall: c.in.Wall(), OutputBytes: c.in.OutputBytes})
}

// user returns the user of the tests that the task or, failing that, the image names.
func (c *codeCheck) user() string { return cmp.Or(c.in.Task.Environment().User, c.in.Image.User) }

func declared(keyword string, texts ...string) []string {
	names := []string{}
	for _, m := range regexp.MustCompile(`(?m)^(?:async[ \t]+)?(?:`+keyword+`)[ \t]+([A-Za-z_]\w*)`).FindAllStringSubmatch(strings.Join(texts, "\n"), -1) {
		names = append(names, m[1])
	}
	return names
}

// codeVerdict judges how a run of code ended, and returns for each failure the lines of the tests in
// its traceback; 0 stands for code of the candidate.
func codeVerdict(run pool.Result, token, code string) (v verifiers.Verdict, failures [][]int, err error) {
	switch {
	case run.End == "timeout":
		return verifiers.Fail("verifier_timeout", ""), nil, nil
	case run.Limit == runtime.OutOfMemory:
		return verifiers.Fail("verifier_out_of_memory", "the process ran out of memory"), nil, nil
	case run.Limit == runtime.PidsLimit:
		return verifiers.Fail("verifier_pids_limit", "the process ran out of processes"), nil, nil
	}
	rest, ok := strings.CutPrefix(run.Result, token+" ")
	if !ok || strings.Contains(rest, token) {
		return verifiers.Fail("tests_not_finished", fmt.Sprintf("the process ended before the tests did (%s)", run.End)), nil, nil
	}
	word, where, _ := strings.Cut(rest, " ")
	for part := range strings.SplitSeq(where, ";") {
		var lines []int
		for l := range strings.SplitSeq(part, ",") {
			if n, err := strconv.Atoi(l); err == nil {
				lines = append(lines, n)
			}
		}
		failures = append(failures, lines)
	}
	switch word {
	case "passed":
		return verifiers.Pass(), nil, nil
	case "unsure": // the tests may have used a helper that the candidate has replaced
		v := verifiers.Pass()
		v.Assurance = verifiers.Executed
		return v, nil, nil
	case "failed":
		return verifiers.Fail("tests_failed", "an assertion of the tests does not hold"), failures, nil
	case "raised":
		return verifiers.Fail("tests_raised", "an exception ended the tests"), failures, nil
	case "unloaded":
		return verifiers.Fail("candidate_not_loaded", "the candidate raised an exception when it was loaded"), nil, nil
	case "ended":
		return verifiers.Fail("tests_ended", "the candidate ended the tests, or its process gave no valid answer"), nil, nil
	case "malformed":
		n := slices.Max(append(failures[0], 1))
		return verifiers.Fail("candidate_not_python", fmt.Sprintf("the candidate is no Python: SyntaxError at line %d: %q", n, line(code, n))), nil, nil
	case "broken":
		return verifiers.Verdict{}, nil, contrast.ErrTests
	case "refused":
		return verifiers.Verdict{}, nil, errRefused
	}
	return verifiers.Fail("tests_not_finished", "the process reported no result"), nil, nil
}
