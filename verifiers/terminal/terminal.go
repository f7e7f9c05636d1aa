// Package terminal judges terminal_task: a checker looks at what an agent left. [Family] is its door.
//
// The checker runs in a new sandbox, on a throw-away copy of the workspace (restore.go) and, for a task with
// a machine, on the image with the agent's changes (package machine), with the hidden files beside it,
// which the candidate could not change (checker.go, stage.go). It passes by its exit status or by the reward that it leaves
// (reward.go). A checker with an image of its own gets only the artifacts (separate.go). A checker that
// runs hidden tests is a suite.
package terminal

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/verifiers/machine"
	"github.com/securebench/sbench/verifiers/suite"
	"github.com/securebench/sbench/workspace"
)

const (
	// trustedDir is the directory of a workspace for what sbench materializes. The
	// verifier's sandbox gets a fresh one, whatever the candidate did to it.
	trustedDir = "securebench"
	checkerDir = "checker" // beside it, for compiler.Checker.Mount
	assetsDir  = "assets"  // beside it, for read-only assets
	pythonDir  = "python"  // beside it, modules for every Python that a checker starts
	// sbenchDir holds sbench's own files in a sandbox.
	sbenchDir  = "/opt/sbench"
	maxPutBack = 3 // paths that the message of a failure names
)

// Family returns the family terminal_task.
func Family() verifiers.Family {
	return verifiers.Family{
		Family: family.TerminalTask(), Verify: verifiers.By(family.TerminalTaskOf, verifyTerminal), Sandboxed: true,
		Solution: terminalSolution,
	}
}

// terminalSolution finds the directory or the script that the hidden expected_state refers to.
func terminalSolution(t *compiler.Task, p *compiler.Pack) (workspace.Plan, error) {
	all, err := workspace.PlanEvaluator(t, p)
	if err != nil {
		return workspace.Plan{}, err
	}
	var plan workspace.Plan
	for _, e := range all.Entries {
		if e.Lane != compiler.HiddenLane || e.Name != "expected_state" || e.Source.Root == "" {
			continue
		}
		e.Dest = verifiers.SolutionDir
		script := path.Join(e.Source.Path, verifiers.SolutionScript)
		if !e.Source.Dir {
			e.Dest, script = path.Join(e.Dest, verifiers.SolutionScript), e.Source.Path
		}
		if info, err := os.Lstat(filepath.Join(e.Source.Root, script)); err == nil && info.Mode().IsRegular() && path.Ext(script) == ".sh" {
			plan.Entries = append(plan.Entries, e)
		}
	}
	return plan, nil
}

// verifyTerminal runs the task's checker on a throw-away copy of the workspace. Exit code 0
// passes.
func verifyTerminal(ctx context.Context, e verifiers.Engine, in verifiers.Input, eval family.TerminalEval) (verifiers.Verdict, error) {
	if in.Task.Environment().KeepProcesses && in.Left == nil {
		return verifiers.Verdict{Status: verifiers.Pending, Reason: "processes_not_kept", Message: "the checker needs the processes that the harness left running, which ended with the attempt; run the task again"}, nil
	}
	capabilities, denied := needed(eval.NeededCommands, in.Permissions)
	if denied != nil {
		return *denied, nil
	}
	if eval.Checker.RunCandidate {
		capabilities = append(capabilities, "CAP_SETUID", "CAP_SETGID", "CAP_KILL")
	}
	capabilities = append(capabilities, in.Task.Environment().Capabilities...)
	in, done, err := AsLeft(ctx, e, in, eval.Checker.RunCandidate)
	if err != nil {
		return verifiers.Verdict{}, fmt.Errorf("restore the workspace: %w", err)
	}
	if eval.Checker.Image != "" {
		v, err := separately(ctx, e, in, eval, capabilities)
		return v, errors.Join(err, done())
	}
	m, removeMachine, err := machine.Restore(ctx, e, in, eval)
	if err != nil {
		return verifiers.Verdict{}, errors.Join(fmt.Errorf("restore the machine: %w", err), done())
	}
	verdict, err := (&terminalCheck{checker: checker{engine: e, in: in, eval: eval, image: m.Image, sealed: m.Sealed, capabilities: capabilities}}).verify(ctx)
	if len(m.Restored) > 0 && err == nil {
		verdict = verdict.With("restored", m.Restored)
	}
	if n := len(m.PutBack); n > 0 && verdict.Status == verifiers.Failed { // only the image's names: no message says what the candidate wrote
		verdict.Message += fmt.Sprintf("; the checker saw %s as in the image, not as the candidate left it (eval.expected_changes keeps what the task is about)", strings.Join(m.PutBack[:min(n, maxPutBack)], ", "))
	}
	return verdict, errors.Join(err, removeMachine(), done())
}

// needed returns the capabilities that commands need or, if the operator forbids a command,
// the verdict.
func needed(commands []string, p verifiers.Permissions) ([]string, *verifiers.Verdict) {
	var capabilities []string
	for _, c := range commands {
		if !p.AllowDangerous || slices.Contains(p.Deny, c) {
			return nil, new(verifiers.Fail(verifiers.CommandDenied, fmt.Sprintf("the task needs the command %q, which the tester file does not allow", c)))
		}
		if c == "chroot" { // the only one that the schema allows
			capabilities = append(capabilities, "CAP_SYS_CHROOT")
		}
	}
	return capabilities, nil
}

// terminalCheck is one verification: what the runs of a checker say of the candidate.
type terminalCheck struct {
	checker
	redirected bool               // a suite has files that leave their reward elsewhere
	unchanged  []contrast.File    // which other runs replace; written as late, or their age would tell the run
	passed     *verifiers.Verdict // on the unchanged tests, which run once: a kept server may answer once
}

func (c *terminalCheck) verify(ctx context.Context) (v verifiers.Verdict, err error) {
	stage, err := c.stage(ctx, nil)
	if err != nil {
		return v, fmt.Errorf("stage the evaluation inputs: %w", err)
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	if v, err = c.scriptFault(ctx, stage.Path()); err != nil || v.Status != verifiers.Passed {
		return v, err
	}
	if c.separate {
		return c.judge(ctx, stage.Path())
	}
	trusted := []string{path.Join(c.workdir(), trustedDir), paths.CheckerMount, paths.EvaluatorMount, sbenchDir}
	left, denied, err := machine.ForgingLinks(ctx, c.engine, c.image, c.in.Candidate.Workspace, c.workdir(), trusted)
	if err != nil {
		return verifiers.Verdict{}, err
	}
	if len(denied) > 0 {
		return verifiers.Fail("candidate_link_denied", fmt.Sprintf("%d symbolic links of the candidate lead to the checker's files, to devices, to /proc or to where a checker writes", len(denied))), nil
	}
	if len(left) == 0 {
		return c.judge(ctx, stage.Path())
	}
	in, done, err := copied(ctx, c.engine, c.in, c.eval.Checker.RunCandidate, left)
	if err != nil {
		return verifiers.Verdict{}, fmt.Errorf("leave out links: %w", err)
	}
	c.in = in
	v, err = c.judge(ctx, stage.Path())
	if err = errors.Join(err, done()); err == nil {
		v = v.With("left_out", left[:min(len(left), maxLeftOut)])
	}
	return v, err
}

// Unchanged implements suite.Command.
func (c *terminalCheck) Unchanged(ctx context.Context) (verifiers.Verdict, error) {
	if c.passed != nil {
		return *c.passed, nil
	}
	ran, prevented, err := c.beside(ctx, c.unchanged)
	switch {
	case errors.Is(err, runtime.ErrDenied):
		return verifiers.Fail(verifiers.CommandDenied, "the tester file denies the checker's command"), nil
	case errors.Is(err, runtime.ErrNotStarted):
		return c.notStarted(), nil
	case prevented:
		return keptOut("the checker's sandbox does not start"), nil
	case err != nil:
		return verifiers.Verdict{}, err
	}
	v := verifiers.OfExit(c.summarized(ran.exit))
	if v.Status == verifiers.Failed && ran.exit.Success() {
		v.Message = "the checker exited with code 0, but pytest's summary says otherwise, or there is none"
	}
	if c.eval.Checker.Reward {
		v = ran.reward.verdict(ran.exit, c.in.Reference)
	}
	v.Logs = ran.logs
	if c.eval.Checker.Network && c.in.Network == nil && v.Status == verifiers.Failed {
		v.Message += "; the checker fetches what it needs, and verification.allowed_domains is empty"
	}
	if ran.unserved > 0 && v.Status == verifiers.Failed {
		v.Message += fmt.Sprintf("; %d requests of the checker's sandbox were refused or failed", ran.unserved)
		if c.in.Reference { // no other candidate may turn its failure into an error
			v.Status, v.Reason = verifiers.Faulty, "checker_refused"
			v.Message += ": verification.allowed_domains of the tester file has to list what the checker fetches, and the hosts have to answer; egress.jsonl has each request"
		}
	}
	if v, err = c.withoutPytest(ctx, v); err == nil && v.Status == verifiers.Passed {
		c.passed = &v
	}
	return v, err
}

// beside runs what runs beside the processes that the harness left. If that fails, although alone succeeds without
// them, it runs once more, and that result counts. prevented reports that it failed again: these processes may not turn
// a failure into an error.
func beside[T any](ctx context.Context, left runtime.Sandbox, run, alone func() (T, error)) (result T, prevented bool, err error) {
	result, err = run()
	if err == nil || left == nil || errors.Is(err, runtime.ErrDenied) || errors.Is(err, runtime.ErrNotStarted) {
		return result, false, err
	}
	if _, failed := alone(); failed != nil {
		return result, false, err
	}
	result, err = run()
	return result, err != nil && ctx.Err() == nil, err
}

// keptOut returns the verdict on a candidate that prevented what could not be done.
func keptOut(what string) verifiers.Verdict {
	return verifiers.Fail("verifier_not_started", what+" beside the processes that the harness left, and does without them")
}

// summarized makes the checker's success a failure if the task wants a summary of pytest, and there is none that passes,
// or one that does not.
func (c *terminalCheck) summarized(exit runtime.Exit) runtime.Exit {
	if !c.eval.Checker.PytestSummary || !exit.Success() {
		return exit
	}
	var summaries []string
	for _, output := range []string{exit.Stdout.String(), exit.Stderr.String()} { // the last of each
		if all := pytestSummary.FindAllStringSubmatch(colors.ReplaceAllString(output, ""), -1); len(all) > 0 {
			summaries = append(summaries, all[len(all)-1][1])
		}
	}
	failed := func(s string) bool { return !strings.Contains(s, " passed") || failures.MatchString(s) }
	if len(summaries) == 0 || slices.ContainsFunc(summaries, failed) {
		exit.Code = 1
	}
	return exit
}

var (
	// pytestSummary matches the last line of a run of pytest, and its numbers of tests.
	pytestSummary = regexp.MustCompile(`(?m)^(?:=+ )?((?:\d+ (?:subtests )?[a-z]+,? )+)in \d[\d.:]* ?s`)
	failures      = regexp.MustCompile(` (failed|errors?)\b`)
	colors        = regexp.MustCompile(`\x1b\[[0-9;]*m`) // escape sequences (ECMA-48, SGR)
)

// scriptFault returns a Faulty verdict if the image lacks the interpreter of the checker's script, else a pass.
func (c *terminalCheck) scriptFault(ctx context.Context, dir string) (v verifiers.Verdict, err error) {
	if c.eval.Checker.Source != compiler.CheckerScript {
		return verifiers.Pass(), nil
	}
	text, err := os.ReadFile(filepath.Join(dir, checkerDir, path.Base(c.eval.Checker.Path)))
	interpreters := []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"}
	switch {
	case err != nil:
		return v, err
	case bytes.HasPrefix(text, []byte("#!")):
		line, _, _ := strings.Cut(string(text[2:]), "\n")
		interpreters = append(strings.Fields(line), "")[:1]
	case !c.eval.Checker.Shell:
		return verifiers.Pass(), nil
	}
	view, err := c.engine.View(ctx, c.in.Image)
	if err != nil {
		return verifiers.Verdict{}, err
	}
	v = verifiers.Fault("checker_not_runnable", "the image lacks the interpreter of the checker's script")
	for _, name := range interpreters {
		if _, err := view.Root().Lstat(workspace.InImage(view.Root(), name)); err == nil {
			v = verifiers.Pass()
		}
	}
	return v, view.Close()
}

// notStarted returns the verdict on a checker that could not be executed: the candidate's fault only if the
// program, or something in place of its working directory, is in the workspace.
func (c *terminalCheck) notStarted() verifiers.Verdict {
	dir := c.in.Dir(c.eval.Checker.Workdir)
	rel, inside := strings.CutPrefix(dir+"/", c.workdir()+"/")
	blocked, at := false, c.in.Candidate.Workspace
	for part := range strings.SplitSeq(strings.Trim(rel, "/"), "/") {
		at = filepath.Join(at, part)
		info, err := os.Lstat(at)
		blocked = blocked || err == nil && !info.IsDir()
	}
	args := c.eval.Checker.Args()
	own := !c.separate && strings.Contains(args[0], "/") && (!path.IsAbs(args[0]) || strings.HasPrefix(args[0], c.workdir()+"/"))
	if own || !c.separate && inside && blocked || c.image.UpperDir != "" { // what a machine lacks may have been the task
		return verifiers.Fail("verifier_not_started", "the checker could not be executed in the candidate's workspace")
	}
	return verifiers.Fault("checker_not_runnable", "the checker cannot be executed in the task's image")
}

// withoutPytest returns v, or a Faulty verdict if pytest seems to be missing without a candidate, too.
func (c *terminalCheck) withoutPytest(ctx context.Context, v verifiers.Verdict) (verifiers.Verdict, error) {
	if v.Status == verifiers.Passed || !suite.LacksPytest(v.Stdout, v.Stderr) {
		return v, nil
	}
	ran, err := c.withoutCandidate(ctx, nil)
	if errors.Is(err, runtime.ErrNotStarted) {
		return v, nil
	}
	if err == nil && (c.eval.Checker.Reward || !ran.exit.Success()) && suite.LacksPytest(ran.exit.Stdout, ran.exit.Stderr) {
		v.Status, v.Reason, v.Message = verifiers.Faulty, "pytest_missing", "the task's image has no pytest"
	}
	return v, err
}

// judge judges by the checker, with blind and unchanged tests. Only the reference itself has a reference.
func (c *terminalCheck) judge(ctx context.Context, dir string) (verifiers.Verdict, error) {
	s := suite.Suite{Engine: c.engine, Input: c.in, Command: c, Reference: c.in.Reference}
	all, err := c.hiddenTests(ctx, dir, &s)
	if err != nil {
		return verifiers.Verdict{}, err
	}
	digests, err := c.in.Task.Digests()
	if err != nil {
		return verifiers.Verdict{}, err
	}
	c.unchanged = slices.Concat(s.Files, s.Others)
	s.Key = fmt.Sprintf("%q %s", c.unchanged, digests.Evaluation)
	v, err := s.Judge(ctx)
	if err == nil && v.Reason == suite.CannotFail && c.eval.Checker.Reward { // a reward need not follow from how tests end
		s.Files, s.Certain = nil, false
		c.redirect(&s, all)
		c.unchanged = s.Others
		s.Key += " redirected"
		v, err = s.Judge(ctx)
	}
	if c.in.Left != nil {
		v = v.With("processes", "kept")
	}
	return v, err
}

// redirect makes the canary of a suite the files that leave their reward elsewhere.
func (c *terminalCheck) redirect(s *suite.Suite, all []contrast.File) {
	if s.Others = redirectable(all); len(s.Others) > 0 {
		s.Redirected, c.redirected = redirected(s.Others), true
	}
}

// Run implements suite.Command. The reference solution is the candidate.
func (c *terminalCheck) Run(ctx context.Context, on suite.Subject, files []contrast.File) (suite.Ended, error) {
	var ran execution
	var prevented bool
	var err error
	if on == suite.Unsolved {
		ran, err = c.withoutCandidate(ctx, files)
	} else {
		ran, prevented, err = c.beside(ctx, files)
	}
	exit := ran.exit
	switch {
	case prevented && on == suite.Candidate: // as one that passes anything
		exit, err = runtime.Exit{Reason: runtime.Exited}, nil
	case err != nil:
	case c.redirected && isRedirected(files):
		exit = ran.reward.forged(exit)
	case c.eval.Checker.Reward:
		exit = ran.reward.changed(exit)
	}
	return suite.Ended{Exit: c.summarized(exit), Answers: ran.answers}, err
}

// hiddenTests finds the hidden files of a suite, which are staged in dir or in the checker's own image: the tests in
// Python or, if there are none, all but a checker's script in another language. It returns all that can be changed.
func (c *terminalCheck) hiddenTests(ctx context.Context, dir string, s *suite.Suite) (all []contrast.File, err error) {
	_, at := c.tests()
	if c.testsInImage() {
		view, err := c.engine.View(ctx, c.in.Image)
		if err != nil {
			return nil, err
		}
		defer func() { _ = view.Close() }()
		dir, at = view.Root().Name(), workspace.InImage(view.Root(), paths.CheckerMount)
		if _, err := view.Root().Stat(at); err != nil {
			return nil, nil
		}
	}
	if at == "" {
		return nil, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	names, err := suite.Below(root, at)
	checker, command := c.eval.Checker, strings.Join(c.eval.Checker.Args(), " ")
	script := path.Join(at, path.Base(checker.Path))
	s.Files = suite.ReadTests(root, suite.TestsBelow(root, at))
	all = suite.ReadFiles(root, names)
	for _, f := range all {
		shell := path.Ext(f.Path) == ".sh"
		own := checker.Source == compiler.CheckerScript && f.Path == script || c.testsInImage() && shell && strings.Contains(command, "/"+f.Path)
		if own || shell {
			command += "\n" + f.Text
		}
		if len(s.Files) == 0 && (!own || suite.IsPython(f) && !checker.Reward) { // others may succeed, or leave a reward, before their end
			s.Others = append(s.Others, f)
		}
	}
	var programs []contrast.File
	for _, f := range slices.Concat(s.Files, s.Others) {
		asserts := path.Ext(f.Path) == ".py" && strings.Contains(f.Text, "assert")
		rewards := !asserts && checker.Reward && len(redirectable([]contrast.File{f})) > 0 // itself, before it would fail
		certain := suite.IsCode(f) && !rewards && strings.Contains(command, path.Base(f.Path))
		if s.Certain = s.Certain || certain; certain || suite.IsTest(f) {
			programs = append(programs, f)
		}
	}
	s.Selects = command
	if s.Certain && len(s.Files) == 0 { // broken data would end a program before it gets to the candidate
		s.Others = programs
	}
	if s.Certain = s.Certain || len(s.Files) > 0 && runsTests.MatchString(command); !s.Certain {
		s.Files = nil // the command runs no tests
	}
	if checker.Reward && !s.Certain {
		c.redirect(s, all)
	}
	return all, err
}

// runsTests matches commands that find tests by themselves.
var runsTests = regexp.MustCompile(`\b(py\.?test|unittest)\b`)
