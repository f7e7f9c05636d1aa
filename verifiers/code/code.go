// Package code judges code_completion: [Family] runs a candidate's code with the task's hidden tests. Where
// plain data suffices, the candidate runs in a process of its own, and the pass is sealed. Otherwise it runs
// beside the tests, and also answers blind tests of the package contrast.
package code

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
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
	blind  string // blind tests to run in place of the tests
	sealed bool   // the candidate gets a process of its own
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
		return c.beside(ctx, calibration)
	}
	passed, _, err := c.try(ctx, codeTry{code: c.in.Candidate.Text, sealed: true, foreign: true})
	if errors.Is(err, errRefused) {
		if again, _, ok := c.try(ctx, codeTry{code: c.in.Candidate.Text, sealed: true, foreign: true, eased: true}); ok == nil && again {
			passed, err = again, nil
		}
	}
	switch {
	case err == nil && passed:
		v := verifiers.Pass()
		v.Assurance = cmp.Or(c.wrong.Assurance, verifiers.Sealed)
		return v, nil
	case !errors.Is(err, errRefused):
		return c.wrong, err
	}
	if c.in.Contrast == contrast.Off {
		return c.beside(ctx, contrast.Calibration{})
	}
	calibration, err = c.calibration(ctx, "beside", func() (contrast.Calibration, error) { return c.contrast(ctx, solution) })
	switch {
	case errors.Is(err, contrast.ErrReference), errors.Is(err, errAlwaysPasses):
		return verifiers.Fail("not_plain_data", "the candidate answers with objects, and the reference solution passes only with plain data"), nil
	case err != nil:
		return verifiers.Verdict{}, err
	case solution != "" && len(calibration.Want) == 0: // or it would choose the weakest way
		return verifiers.Fail("not_plain_data", "the candidate answers with objects, and the tests ask nothing that can show whether it solves the task"), nil
	}
	return c.beside(ctx, calibration)
}

// beside judges the candidate in the tests' process: it has to answer blind tests and then pass the tests and, unless
// [contrast.Off] is asked for, to fail when they are broken.
func (c *codeCheck) beside(ctx context.Context, calibration contrast.Calibration) (v verifiers.Verdict, err error) {
	run := codeTry{code: c.in.Candidate.Text, foreign: true}
	off := c.in.Contrast == contrast.Off
	summary := contrast.Summary{State: contrast.None, Places: calibration.Unread}
	answered := true
	var wrong []contrast.Question
	switch {
	case off:
		summary.State, calibration = string(contrast.Off), contrast.Calibration{}
	case len(calibration.Want) > 0 || !calibration.Reference && len(calibration.Questions) > 0:
		ask := run
		ask.blind = calibration.Files[0].Text
		var answers contrast.Answers
		if answered, answers, err = c.try(ctx, ask); err != nil {
			return v, err
		}
		summary, wrong = calibration.Judge(answers)
	}
	passed, _, err := c.try(ctx, run)
	v = c.wrong
	all := summary.Asked > 0 && summary.Wrong == summary.Asked
	switch {
	case err != nil:
		return v, err
	case !passed:
	case calibration.Reference && !(answered && len(wrong) == 0), all:
		v = verifiers.Fail(contrast.Reason, "the candidate passes the tests, but not when they do not say what they expect")
		if len(wrong) > 0 {
			v.Message += fmt.Sprintf(": it answers otherwise at line %d", wrong[0].Line)
		}
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
		case calibration.Hidden():
			v.Assurance = verifiers.Contrasted
		case summary.Wrong > 0, !answered:
			v = v.With(verifiers.Doubtful, true)
		}
	}
	v.Contrast = &summary
	return v, nil
}

// canary runs tests that fail after their end. Code that passes them passes any.
func (c *codeCheck) canary(ctx context.Context, run codeTry) (verifiers.Verdict, error) {
	run.broken = true
	passed, _, err := c.try(ctx, run)
	if err == nil && passed {
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
		passed, _, err := c.try(ctx, codeTry{code: solution, sealed: true})
		if err == nil && passed { // by luck, perhaps: what tests seed may not reach the solution
			passed, _, err = c.try(ctx, codeTry{code: solution, sealed: true})
		}
		switch {
		case err == nil && passed:
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

// contrast makes the tests blind, and learns the answers of a reference solution that passes them.
func (c *codeCheck) contrast(ctx context.Context, solution string) (calibration contrast.Calibration, err error) {
	if solution != "" {
		if passed, _, err := c.try(ctx, codeTry{code: solution}); err != nil || !passed {
			return calibration, cmp.Or(err, contrast.ErrReference)
		}
		if v, err := c.canary(ctx, codeTry{code: solution}); err != nil || v.Status != verifiers.Passed {
			return calibration, cmp.Or(err, errAlwaysPasses)
		}
	}
	calibration, err = c.list(ctx, contrast.Options{Names: declared("def|class", c.eval.Prompt, c.eval.StarterCode, solution), Bare: solution == ""})
	calibration.Repair = c.repair
	if calibration.Reference = solution != ""; err != nil || !calibration.Reference || len(calibration.Questions) == 0 {
		return calibration, err
	}
	var answers [2]contrast.Answers
	for i := range answers {
		var passed bool
		if passed, answers[i], err = c.try(ctx, codeTry{code: solution, blind: calibration.Files[0].Text}); err != nil || !passed {
			return calibration, err
		}
	}
	calibration.Learn(answers[0], answers[1])
	return calibration, nil
}

// list makes the tests blind.
func (c *codeCheck) list(ctx context.Context, options contrast.Options) (calibration contrast.Calibration, err error) {
	cfg := c.in.Sandbox("calibration")
	cfg.User = "0:0"
	calibration.Listing, err = contrast.List(ctx, contrast.InSandbox(c.engine, cfg), []contrast.File{c.tests()}, options)
	switch {
	case errors.Is(err, contrast.ErrLimit): // no error: a candidate can bring it about
		return contrast.Calibration{Listing: contrast.Listing{Unread: []string{c.tests().Path}}}, nil
	case err == nil && len(calibration.Broken) > 0:
		err = contrast.ErrTests
	}
	return calibration, err
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

// try makes a run, and reports whether it passed, and what blind tests noted. The error is errRefused if the run is
// sealed and plain data does not suffice.
func (c *codeCheck) try(ctx context.Context, t codeTry) (passed bool, answers contrast.Answers, err error) {
	token := rand.Text() // no candidate can guess it
	run, err := c.run(ctx, t, token)
	if err != nil {
		return false, nil, err
	}
	noted, result, _ := strings.Cut(run.Result, token)
	run.Result = token + result
	v, err := codeVerdict(run, token, t.code)
	if err != nil && t.foreign && !t.sealed { // a forged report: the tests have been loaded before
		v, err = verifiers.Fail("tests_not_finished", "the process reported a false result of the tests"), nil
	}
	if err == nil && t.blind == "" && !t.broken {
		c.real, c.wrong = run, v
		if v.Reason == "verifier_timeout" {
			c.wrong.Message = fmt.Sprintf("the tests did not end within %s", c.in.Wall())
		}
	}
	return err == nil && v.Status == verifiers.Passed, contrast.ParseAnswers(noted), err
}

func (c *codeCheck) run(ctx context.Context, t codeTry, token string) (pool.Result, error) {
	request := map[string]any{
		"token": token, "candidate": t.code, "tests": cmp.Or(t.blind, c.eval.Tests), "ask": contrast.Ask, "after": "", "repair": c.repair, "solution": "",
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

// codeVerdict judges how a run of code ended.
func codeVerdict(run pool.Result, token, code string) (verifiers.Verdict, error) {
	switch {
	case run.End == "timeout":
		return verifiers.Fail("verifier_timeout", ""), nil
	case run.Limit == runtime.OutOfMemory:
		return verifiers.Fail("verifier_out_of_memory", "the process ran out of memory"), nil
	case run.Limit == runtime.PidsLimit:
		return verifiers.Fail("verifier_pids_limit", "the process ran out of processes"), nil
	}
	rest, ok := strings.CutPrefix(run.Result, token+" ")
	if !ok || strings.Contains(rest, token) {
		return verifiers.Fail("tests_not_finished", fmt.Sprintf("the process ended before the tests did (%s)", run.End)), nil
	}
	word, where, _ := strings.Cut(rest, " ")
	switch word {
	case "passed":
		return verifiers.Pass(), nil
	case "unsure": // the tests may have used a helper that the candidate has replaced
		v := verifiers.Pass()
		v.Assurance = verifiers.Executed
		return v, nil
	case "failed":
		return verifiers.Fail("tests_failed", "an assertion of the tests does not hold"), nil
	case "raised":
		return verifiers.Fail("tests_raised", "an exception ended the tests"), nil
	case "unloaded":
		return verifiers.Fail("candidate_not_loaded", "the candidate raised an exception when it was loaded"), nil
	case "ended":
		return verifiers.Fail("tests_ended", "the candidate ended the tests, or its process gave no valid answer"), nil
	case "malformed":
		n, _ := strconv.Atoi(where) // 0 if Python does not say
		n = max(n, 1)
		return verifiers.Fail("candidate_not_python", fmt.Sprintf("the candidate is no Python: SyntaxError at line %d: %q", n, line(code, n))), nil
	case "broken":
		return verifiers.Verdict{}, contrast.ErrTests
	case "refused":
		return verifiers.Verdict{}, errRefused
	}
	return verifiers.Fail("tests_not_finished", "the process reported no result"), nil
}
