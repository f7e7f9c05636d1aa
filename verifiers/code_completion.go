package verifiers

import (
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
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
)

func codeCompletion() Family {
	return Family{
		Family: compiler.CodeCompletion(), Verify: by(compiler.CodeCompletionOf, verifyCode), Sandboxed: true,
		Reference: func(t *compiler.Task) candidate.Candidate {
			return candidate.Candidate{Text: codeSolution(compiler.CodeCompletionOf(t))}
		},
	}
}

// verifyCode runs the hidden tests, unchanged and changed. Each run is one process with
// the candidate as a module of its own.
func verifyCode(ctx context.Context, e Engine, in Input, eval compiler.CodeCompletionEval) (v Verdict, err error) {
	if eval.Language != "python" {
		return Verdict{Status: Pending, Reason: "language_without_verifier", Message: "no verifier for code in the language of this task; only python has one"}, nil
	}
	if !eval.Inline {
		return Verdict{Status: Pending, Reason: "tests_without_verifier", Message: "no verifier for tests that are not inline"}, nil
	}
	if in.Code == nil {
		in.Code = NewCodePool(e)
		defer func() { err = errors.Join(err, in.Code.Close(ctx)) }()
	}
	return (&codeCheck{in: in, eval: eval, engine: e}).verify(ctx)
}

// codeCheck is one verification.
type codeCheck struct {
	in     Input
	eval   compiler.CodeCompletionEval
	engine Engine
	real   codeRun // the last run of the unchanged tests
	wrong  Verdict // the verdict on that run
}

func (c *codeCheck) tests() contrast.File {
	return contrast.File{Path: "tests.py", Text: c.eval.Tests}
}

func (c *codeCheck) verify(ctx context.Context) (Verdict, error) {
	calibration, err := c.calibration(ctx)
	switch {
	case errors.Is(err, contrast.ErrTests):
		return faulty("tests_malformed", "the image's interpreter cannot compile the tests, or lacks a module that the prompt imports"), nil
	case errors.Is(err, contrast.ErrReference):
		return faulty("reference_fails", "the reference solution does not pass the task's own tests: "+c.wrong.Reason), nil
	case errors.Is(err, contrast.ErrLimit):
		return notListed, nil
	case errors.Is(err, contrast.ErrPython):
		return faulty("python_missing", "the image has no python3 that the tests' user can use"), nil
	case err != nil:
		return Verdict{}, err
	}
	real, follows, summary, err := calibration.Judge(ctx, contrast.Mutants, c.try(c.in.Candidate.Text, true))
	switch {
	case errors.Is(err, contrast.ErrTests):
		return faulty("tests_malformed", "the prompt imports a module that the image lacks"), nil
	case err != nil:
		return Verdict{}, err
	}
	v := passed()
	switch {
	case real != contrast.Passed:
		v = c.wrong
	case follows && calibration.Reference:
		v = failed(contrast.Reason, "the candidate passes tests that expect something wrong")
	}
	v.Contrast = &summary
	v.Stderr = runtime.Output{Tail: c.real.Output, Total: c.real.Total}
	v.Metadata = map[string]any{"exit_reason": c.real.End, "wall_seconds": c.real.took.Seconds()}
	return v, nil
}

// calibration returns the task's calibration, making it first if necessary.
func (c *codeCheck) calibration(ctx context.Context) (contrast.Calibration, error) {
	solution := codeSolution(c.eval)
	key := contrast.Key(c.in.Image.Digest, codeUser(c.in), c.eval.Tests, solution, c.eval.Prompt, c.eval.StarterCode)
	return c.in.Calibrations.Get(ctx, key, func() (contrast.Calibration, error) {
		names, _ := declared(strings.Join([]string{c.eval.Prompt, c.eval.StarterCode, solution}, "\n"))
		listing, err := contrast.List(ctx, c.python, []contrast.File{c.tests()}, contrast.Options{Seed: key, Names: names})
		switch {
		case err != nil:
			return contrast.Calibration{}, err
		case len(listing.Broken) > 0:
			return contrast.Calibration{}, contrast.ErrTests
		case solution == "":
			return contrast.Without(listing), nil
		}
		return contrast.Calibrate(ctx, listing, c.try(solution, false))
	})
}

// codeSolution returns the task's own solution: the complete one if there is one, otherwise the
// canonical one. If the latter's indentation shows that it is a function's body, it continues
// the starter code.
func codeSolution(eval compiler.CodeCompletionEval) string {
	if whole := eval.ReferenceSolution.Reveal(); whole != "" {
		return whole
	}
	canonical := eval.CanonicalSolution.Reveal()
	if body := strings.TrimLeft(canonical, "\r\n"); !strings.HasPrefix(body, " ") && !strings.HasPrefix(body, "\t") {
		return canonical
	}
	return eval.Continue(canonical)
}

// python is a contrast.Python: no candidate has touched its sandbox.
func (c *codeCheck) python(ctx context.Context, request []byte) ([]byte, error) {
	cfg := codeConfig(c.in, "")
	cfg.Name, cfg.Mounts, cfg.Capabilities = "calibration", nil, nil
	return contrast.InSandbox(c.engine, cfg)(ctx, request)
}

// try returns a function that runs code with the tests. foreign says that code is the
// candidate's, not the reference solution or empty.
func (c *codeCheck) try(code string, foreign bool) contrast.Try {
	return func(ctx context.Context, edits ...contrast.Edit) (contrast.Outcome, error) {
		tests, err := contrast.Apply(c.tests(), edits...)
		if err != nil {
			return 0, err
		}
		token := rand.Text() // no candidate can guess it
		run, err := c.run(ctx, code, tests, token, foreign)
		if err != nil {
			return 0, err
		}
		v, lines, err := codeVerdict(run, token)
		if errors.Is(err, contrast.ErrTests) && foreign { // a candidate can forge this report
			if _, without := c.try("", false)(ctx, edits...); without != nil {
				return 0, without
			}
			v, err = failed("tests_not_finished", "the process reported a false result of the tests"), nil
		}
		if err != nil {
			return 0, err
		}
		if len(edits) == 0 {
			c.real, c.wrong = run, v
			if v.Reason == "verifier_timeout" {
				c.wrong.Message = fmt.Sprintf("the tests did not end within %s", c.in.wall())
			}
		}
		return outcome(v, lines, edits), nil
	}
}

// outcome returns contrast.FailedThere if there are failures and all of them are at changed
// assertions.
func outcome(v Verdict, failures [][]int, edits []contrast.Edit) contrast.Outcome {
	if v.Status == Passed {
		return contrast.Passed
	}
	there := func(lines []int) bool {
		return slices.ContainsFunc(lines, func(l int) bool {
			return slices.ContainsFunc(edits, func(e contrast.Edit) bool { return e.Line <= l && l <= e.Last })
		})
	}
	if len(failures) == 0 || slices.ContainsFunc(failures, func(lines []int) bool { return !there(lines) }) {
		return contrast.FailedElsewhere
	}
	return contrast.FailedThere
}

// run runs code with the tests in a sandbox of the pool. foreign is as for try.
func (c *codeCheck) run(ctx context.Context, code, tests, token string, foreign bool) (codeRun, error) {
	defined, mentioned := declared(c.eval.Prompt + "\n" + c.eval.StarterCode)
	request, err := json.Marshal(map[string]any{
		"token": token, "candidate": code, "tests": tests,
		"given": []string{c.eval.Prompt, c.eval.StarterCode}, "declared": slices.Concat([]string{""}, defined, mentioned),
	})
	if err != nil {
		return codeRun{}, err
	}
	seen := ""
	if foreign {
		seen = c.eval.Tests
	}
	sandbox, err := c.in.Code.take(ctx, c.in, seen)
	if err != nil {
		return codeRun{}, err
	}
	if foreign {
		sandbox.seen[seen] = true
	}
	run, clean, err := sandbox.run(ctx, request, c.in.wall(), c.in.OutputBytes)
	if clean && err == nil {
		return run, c.in.Code.put(ctx, sandbox)
	}
	return run, errors.Join(err, sandbox.close(ctx))
}

// declared returns the names of the functions and classes that a text declares, and the
// names that it calls or quotes in backquotes.
func declared(text string) (defined, mentioned []string) {
	for _, m := range regexp.MustCompile("(?m)^(?:(?:async[ \t]+)?def|class)[ \t]+([A-Za-z_]\\w*)|`([A-Za-z_]\\w*)`|\\b([A-Za-z_]\\w*)\\(").FindAllStringSubmatch(text, -1) {
		if m[1] != "" {
			defined = append(defined, m[1])
		} else {
			mentioned = append(mentioned, m[2]+m[3])
		}
	}
	return defined, mentioned
}

// codeVerdict judges how a run ended, and returns for each failure the lines of the tests in
// its traceback.
func codeVerdict(run codeRun, token string) (v Verdict, failures [][]int, err error) {
	switch {
	case run.End == "timeout":
		return failed("verifier_timeout", ""), nil, nil
	case run.limit == runtime.OutOfMemory:
		return failed("verifier_out_of_memory", "the process ran out of memory"), nil, nil
	case run.limit == runtime.PidsLimit:
		return failed("verifier_pids_limit", "the process ran out of processes"), nil, nil
	}
	rest, ok := strings.CutPrefix(run.Result, token+" ")
	if !ok || strings.Contains(rest, token) {
		return failed("tests_not_finished", fmt.Sprintf("the process ended before the tests did (%s)", run.End)), nil, nil
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
		return passed(), nil, nil
	case "failed":
		return failed("tests_failed", "an assertion of the tests does not hold"), failures, nil
	case "raised":
		return failed("tests_raised", "an exception ended the tests"), failures, nil
	case "unloaded":
		return failed("candidate_not_loaded", "the candidate raised an exception when it was loaded"), nil, nil
	case "ended":
		return failed("tests_ended", "the candidate ended the tests"), nil, nil
	case "broken":
		return Verdict{}, nil, contrast.ErrTests
	}
	return failed("tests_not_finished", "the process reported no result"), nil, nil
}
