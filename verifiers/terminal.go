package verifiers

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/workspace"
)

const (
	// trustedDir is the directory of a workspace for what sbench materializes. The
	// verifier's sandbox gets a fresh one, whatever the candidate did to it.
	trustedDir = "securebench"
	checkerDir = "checker" // beside it, for compiler.CheckerMount
	assetsDir  = "assets"  // beside it, for read-only assets
	pythonDir  = "python"  // beside it, modules for every Python that a checker starts
	// sbenchDir holds sbench's own files in a sandbox.
	sbenchDir   = "/opt/sbench"
	stageInodes = 65536
	// deniedReason is the reason if the tester file forbids a command.
	deniedReason = "verifier_dangerous_command_denied"
)

func terminalTask() Family {
	return Family{
		Family: compiler.TerminalTask(), Verify: by(compiler.TerminalTaskOf, verifyTerminal), Sandboxed: true,
		Solution: terminalSolution,
	}
}

// The files of a solution that a script makes.
const (
	SolutionDir    = "solution" // the directory that a plan puts them in
	SolutionScript = "solve.sh" // in it: the script
)

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
		e.Dest = SolutionDir
		script := path.Join(e.Source.Path, SolutionScript)
		if !e.Source.Dir {
			e.Dest, script = path.Join(e.Dest, SolutionScript), e.Source.Path
		}
		if info, err := os.Lstat(filepath.Join(e.Source.Root, script)); err == nil && info.Mode().IsRegular() && path.Ext(script) == ".sh" {
			plan.Entries = append(plan.Entries, e)
		}
	}
	return plan, nil
}

// verifyTerminal runs the task's checker on a throw-away copy of the workspace. Exit code 0
// passes.
func verifyTerminal(ctx context.Context, e Engine, in Input, eval compiler.TerminalEval) (Verdict, error) {
	capabilities, denied := needed(eval.NeededCommands, in.Permissions)
	if denied != nil {
		return *denied, nil
	}
	if eval.Checker.RunCandidate {
		capabilities = append(capabilities, "CAP_SETUID", "CAP_SETGID")
	}
	capabilities = append(capabilities, in.Task.Environment().Capabilities...)
	in, done, err := asLeft(ctx, e, in)
	if err != nil {
		return Verdict{}, fmt.Errorf("restore the workspace: %w", err)
	}
	if eval.Checker.Image != "" {
		v, err := separately(ctx, e, in, eval, capabilities)
		return v, errors.Join(err, done())
	}
	m, removeMachine, err := machine(ctx, e, in, eval)
	if err != nil {
		return Verdict{}, errors.Join(fmt.Errorf("restore the machine: %w", err), done())
	}
	verdict, err := staged(ctx, e, terminalCheck{engine: e, in: in, image: m.image, sealed: m.sealed, eval: eval, capabilities: capabilities})
	if len(m.restored) > 0 && err == nil {
		verdict = verdict.with("restored", m.restored)
	}
	return verdict, errors.Join(err, removeMachine(), done())
}

// needed returns the capabilities that commands need or, if the operator forbids a command,
// the verdict.
func needed(commands []string, p Permissions) ([]string, *Verdict) {
	var capabilities []string
	for _, c := range commands {
		if !p.AllowDangerous || slices.Contains(p.Deny, c) {
			return nil, new(failed(deniedReason, fmt.Sprintf("the task needs the command %q, which the tester file does not allow", c)))
		}
		if c == "chroot" { // the only one that the schema allows
			capabilities = append(capabilities, "CAP_SYS_CHROOT")
		}
	}
	return capabilities, nil
}

// staged runs the check with a volume for files that the candidate must not change.
func staged(ctx context.Context, e Engine, c terminalCheck) (Verdict, error) {
	stage, err := e.NewVolume(ctx, runtime.VolumeConfig{Bytes: c.in.WorkspaceBytes, Inodes: stageInodes})
	if err != nil {
		return Verdict{}, err
	}
	c.volume = stage.Path()
	verdict, err := c.verify(ctx)
	return verdict, errors.Join(err, stage.Close())
}

// terminalCheck is one verification.
type terminalCheck struct {
	engine       Engine
	in           Input
	image        runtime.Image // of in, with the changes of the candidate if it is a machine
	sealed       []string      // paths that nothing may change
	eval         compiler.TerminalEval
	capabilities []string
	volume       string
	separate     bool       // the image is the checker's own; of the candidate there are only
	artifacts    []artifact // these
}

func (c *terminalCheck) workdir() string { return c.in.Task.Environment().Workdir }

// tests returns where the hidden files are: in the sandbox, and relative to a directory made
// by stage. Both are "" if the task has none.
func (c *terminalCheck) tests() (inside, stagedTests string) {
	switch {
	case c.eval.Checker.Path != "":
		return c.eval.Checker.Mount(), checkerDir
	case len(c.eval.Files) > 0:
		return path.Join(c.workdir(), compiler.EvaluationInputsRoot), compiler.EvaluationInputsRoot
	}
	return "", ""
}

func (c *terminalCheck) verify(ctx context.Context) (Verdict, error) {
	dir, err := c.stage(ctx, nil)
	if err != nil {
		return Verdict{}, fmt.Errorf("stage the evaluation inputs: %w", err)
	}
	if v, err := c.scriptFault(ctx, dir); err != nil || v.Status != Passed {
		return v, err
	}
	if c.separate {
		return c.suite(ctx, dir)
	}
	trusted := []string{path.Join(c.workdir(), trustedDir), compiler.CheckerMount, compiler.EvaluatorMount, sbenchDir}
	left, denied, err := forgingLinks(ctx, c.engine, c.image, c.in.Candidate.Workspace, c.workdir(), trusted)
	if err != nil {
		return Verdict{}, err
	}
	if len(denied) > 0 {
		return failed("candidate_link_denied", fmt.Sprintf("%d symbolic links of the candidate lead to the checker's files, to devices, to /proc or to where a checker writes", len(denied))), nil
	}
	if len(left) == 0 {
		return c.suite(ctx, dir)
	}
	in, done, err := withoutLinks(ctx, c.engine, c.in, left)
	if err != nil {
		return Verdict{}, fmt.Errorf("leave out links: %w", err)
	}
	c.in = in
	v, err := c.suite(ctx, dir)
	if err = errors.Join(err, done()); err == nil {
		v = v.with("left_out", left[:min(len(left), maxLeftOut)])
	}
	return v, err
}

// unchanged judges the candidate by the checker as staged in dir.
func (c *terminalCheck) unchanged(ctx context.Context, dir string) (Verdict, error) {
	exit, logs, err := c.execute(ctx, dir)
	switch {
	case errors.Is(err, runtime.ErrDenied):
		return failed(deniedReason, "the tester file denies the checker's command"), nil
	case errors.Is(err, runtime.ErrNotStarted):
		return c.notStarted(), nil
	case err != nil:
		return Verdict{}, err
	}
	v := verdictOf(exit)
	if c.eval.Checker.Reward {
		v = readReward(logs).verdict(exit, c.in.Reference)
	}
	v.Logs = checkerLogs(logs)
	return c.withoutPytest(ctx, dir, v)
}

// scriptFault returns a Faulty verdict if the image lacks the interpreter of the checker's script, and
// a pass otherwise.
func (c *terminalCheck) scriptFault(ctx context.Context, dir string) (v Verdict, err error) {
	if c.eval.Checker.Source != compiler.CheckerScript {
		return passed(), nil
	}
	name := filepath.Join(dir, checkerDir, path.Base(c.eval.Checker.Path))
	text, err := os.ReadFile(name)
	interpreters := []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"}
	switch {
	case err != nil:
		return v, err
	case bytes.HasPrefix(text, []byte("#!")):
		line, _, _ := strings.Cut(string(text[2:]), "\n")
		interpreters = append(strings.Fields(line), "")[:1]
	case !c.eval.Checker.Shell():
		return passed(), nil
	}
	view, err := c.engine.View(ctx, c.in.Image)
	if err != nil {
		return Verdict{}, err
	}
	v = faulty("checker_not_runnable", "the image lacks the interpreter of the checker's script")
	for _, name := range interpreters {
		if _, err := view.Root().Lstat(inImage(view.Root(), name)); err == nil {
			v = passed()
		}
	}
	return v, view.Close()
}

// notStarted returns the verdict if the checker could not be executed. The candidate is at
// fault only if the program is in the workspace, or if something else there has taken the
// place of the checker's working directory.
func (c *terminalCheck) notStarted() Verdict {
	dir := within(c.workdir(), c.eval.Checker.Workdir)
	rel, inside := strings.CutPrefix(dir+"/", c.workdir()+"/")
	blocked, at := false, c.in.Candidate.Workspace
	for part := range strings.SplitSeq(strings.Trim(rel, "/"), "/") {
		at = filepath.Join(at, part)
		info, err := os.Lstat(at)
		blocked = blocked || err == nil && !info.IsDir()
	}
	args := checkerArgs(c.eval.Checker)
	own := !c.separate && strings.Contains(args[0], "/") && (!path.IsAbs(args[0]) || strings.HasPrefix(args[0], c.workdir()+"/"))
	if own || !c.separate && inside && blocked || c.image.UpperDir != "" { // what a machine lacks may have been the task
		return failed("verifier_not_started", "the checker could not be executed in the candidate's workspace")
	}
	return faulty("checker_not_runnable", "the checker cannot be executed in the task's image")
}

// withoutPytest returns v, or a Faulty verdict if v looks as if pytest were missing and the
// checker says so without a candidate, too.
func (c *terminalCheck) withoutPytest(ctx context.Context, dir string, v Verdict) (Verdict, error) {
	if v.Status == Passed || !lacksPytest(v.Stdout, v.Stderr) {
		return v, nil
	}
	exit, _, err := c.withoutCandidate(ctx, dir)
	if errors.Is(err, runtime.ErrNotStarted) {
		return v, nil
	}
	if err == nil && (c.eval.Checker.Reward || !exit.Success()) && lacksPytest(exit.Stdout, exit.Stderr) {
		v.Status, v.Reason, v.Message = Faulty, "pytest_missing", "the task's image has no pytest"
	}
	return v, err
}

// withoutCandidate runs the checker on a workspace with nothing but the task's own files.
func (c *terminalCheck) withoutCandidate(ctx context.Context, dir string) (runtime.Exit, string, error) {
	without := *c
	without.image, without.artifacts = c.in.Image, nil
	plan, err := workspace.PlanAgent(c.in.Task, c.in.Pack)
	if err == nil {
		without.in.Candidate.Workspace, err = os.MkdirTemp(c.volume, "empty-")
	}
	if err == nil {
		err = os.Chmod(without.in.Candidate.Workspace, 0o777)
	}
	if err == nil {
		err = plan.WriteDir(ctx, without.in.Candidate.Workspace, workspace.WriteOptions{MaxBytes: c.in.WorkspaceBytes})
	}
	if err != nil {
		return runtime.Exit{}, "", err
	}
	return without.execute(ctx, dir)
}

// lacksPytest reports whether the output says that there is no pytest.
func lacksPytest(outputs ...runtime.Output) bool {
	return slices.ContainsFunc(outputs, func(o runtime.Output) bool { return pytestMissing.MatchString(o.String()) })
}

var pytestMissing = regexp.MustCompile(`(?m)No module named ('pytest'|pytest)\s*$|pytest: (command )?not found`)

// execute runs the checker on a copy of the workspace, with the files staged in dir, and returns the
// host directory that it saw as /logs.
func (c *terminalCheck) execute(ctx context.Context, dir string) (exit runtime.Exit, logs string, err error) {
	if logs, err = c.makeLogs(dir); err != nil {
		return exit, "", err
	}
	mounts, err := c.mounts(dir, logs)
	if err != nil {
		return exit, "", err
	}
	args := checkerArgs(c.eval.Checker)
	services := c.services()
	if len(services) > 0 {
		if err := (runtime.CommandPolicy{Allow: []string{"*"}, Deny: c.in.Permissions.Deny}).Decide(args).Check(); err != nil {
			return exit, "", err // the engine sees only with-services
		}
	}
	args, own, err := service.Beside(services, args)
	if err != nil {
		return exit, "", err
	}
	mounts = append(mounts, own...)
	env, limits := c.in.Task.Environment(), c.in.Limits
	limits.LayerBytes = c.in.WorkspaceBytes
	cfg := runtime.Config{
		Name: "verifier", Image: c.image, Mounts: mounts, Limits: limits, Capabilities: c.capabilities,
		Workdir: c.workdir(), User: cmp.Or(c.eval.Checker.User, env.User), IsolateProcesses: true,
		Machine: env.Machine, WritableRoot: c.eval.Checker.Relocated(), ReadOnly: c.sealed, Env: c.env(dir),
	}
	if c.separate {
		cfg.Workdir, cfg.User, cfg.Machine = "", c.eval.Checker.User, true
	}
	done := func() error { return nil }
	if c.eval.Checker.Network && c.in.Network != nil {
		var add func(*runtime.Config)
		if add, done, err = c.in.Network(); err != nil {
			return exit, "", err
		}
		add(&cfg)
	}
	exit, err = c.in.run(ctx, c.engine, cfg, runtime.Process{Args: args, Dir: c.eval.Checker.Workdir, Wall: c.eval.Checker.Timeout})
	return exit, logs, errors.Join(err, done())
}

// services returns what runs beside the checker: the entry point of the image, if the task wants it,
// and the task's services.
func (c *terminalCheck) services() (all []service.Service) {
	e := c.in.Task.Environment().Entrypoint
	if args := e.Args(c.image.Entrypoint); args != nil && !c.separate {
		all = append(all, service.Service{Args: args, Ready: e.Ready.Args(), Wait: cmp.Or(e.Timeout, service.DefaultWait)})
	}
	for _, s := range c.eval.Services {
		all = append(all, service.Service{Args: s.Command.Args(), Ready: s.Ready.Args(), Wait: cmp.Or(s.Timeout, service.DefaultWait)})
	}
	return all
}

// env returns the checker's environment. It keeps a Python checker from using the user's
// site directory, configured plug-ins and the workspace's modules.
func (c *terminalCheck) env(dir string) []string {
	own := compiler.Environ(c.eval.Checker.Env)
	if !c.separate {
		own = append(compiler.Environ(c.in.Task.Environment().Env), own...)
	}
	given := func(name, separator string) string { // the value from the task or else its image
		for _, e := range slices.Concat(own, c.in.Image.Env) {
			if value, ok := strings.CutPrefix(e, name+"="); ok && value != "" {
				return separator + value
			}
		}
		return ""
	}
	env := append(own, "PYTHONNOUSERSITE=1", "PYTHONPATH="+path.Join(sbenchDir, pythonDir)+given("PYTHONPATH", ":"))
	tests, stagedTests := c.tests()
	if tests != "" {
		config := path.Join(sbenchDir, pythonDir, "pytest.ini")
		for _, name := range []string{"pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"} {
			if _, err := os.Lstat(filepath.Join(dir, stagedTests, name)); err == nil {
				config = path.Join(tests, name)
				break
			}
		}
		env = append(env, fmt.Sprintf("PYTEST_ADDOPTS=--rootdir=%s --confcutdir=%s -c %s%s", tests, tests, config, given("PYTEST_ADDOPTS", " ")))
	}
	switch c.eval.Checker.Source {
	case compiler.CheckerPytest:
		env = append(env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", "PYTEST_PLUGINS=")
	case compiler.CheckerScript:
		env = append(env, "TEST_DIR="+c.eval.Checker.TestDir())
	}
	if c.eval.Checker.Path != "" {
		env = append(env, "SECUREBENCH_WORKSPACE="+c.workdir(), "SECUREBENCH_EVALUATOR="+compiler.EvaluatorMount)
	}
	return env
}

// within makes a checker's working directory absolute; "" stays "", the sandbox's.
func within(workdir, dir string) string {
	switch {
	case dir == "":
		return ""
	case path.IsAbs(dir):
		return path.Clean(dir)
	}
	return path.Join(workdir, dir)
}

// mounts returns the mounts: what the checker sees of the candidate, and what the agent could not
// change.
func (c *terminalCheck) mounts(dir, logs string) ([]runtime.Mount, error) {
	mounts := []runtime.Mount{{Source: filepath.Join(dir, pythonDir), Dest: path.Join(sbenchDir, pythonDir)}}
	own, err := c.candidateMounts(dir)
	if c.separate {
		own, err = c.artifactMounts(dir)
	}
	if err != nil {
		return nil, err
	}
	mounts = append(mounts, own...)
	if c.eval.Checker.Path != "" {
		own, err := c.testMounts(filepath.Join(dir, checkerDir))
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, own...)
	}
	if logs != "" {
		mounts = append(mounts, runtime.Mount{Source: logs, Dest: logsMount, Writable: true, Chown: true})
	}
	program, err := os.Executable()
	if c.eval.Checker.RunCandidate && err == nil {
		mounts = append(mounts, runtime.Mount{Source: program, Dest: "/usr/local/bin/" + runCandidate})
	}
	return mounts, err
}

// candidateMounts mounts the workspace, and over it the files that the agent could not change.
func (c *terminalCheck) candidateMounts(dir string) ([]runtime.Mount, error) {
	mounts := []runtime.Mount{{Source: c.in.Candidate.Workspace, Dest: c.workdir(), Copy: true}}
	if !c.in.Task.Environment().Machine || len(c.eval.Files) > 0 {
		mounts = append(mounts, runtime.Mount{Source: filepath.Join(dir, trustedDir), Dest: path.Join(c.workdir(), trustedDir), Chown: c.eval.Checker.RunCandidate})
	}
	plan, err := workspace.PlanAgent(c.in.Task, c.in.Pack)
	if err != nil {
		return nil, err
	}
	for _, e := range plan.Entries {
		if e.ReadOnly && !trustedEntry(e) {
			mounts = append(mounts, runtime.Mount{Source: filepath.Join(dir, assetsDir, e.Dest), Dest: path.Join(c.workdir(), e.Dest)})
		}
	}
	return mounts, nil
}

// testMounts mounts the hidden files of a checker, also where SecureBench has them. A checker that
// leaves a reward may add files beside them, as in Harbor, but not change what is there.
func (c *terminalCheck) testMounts(source string) ([]runtime.Mount, error) {
	checker := c.eval.Checker
	own := runtime.Mount{Source: source, Dest: checker.Mount(), Chown: checker.RunCandidate}
	if !checker.Reward || checker.RunCandidate {
		mounts := []runtime.Mount{own}
		if other := checker.Evaluator(); other != own.Dest && !checker.Reward {
			own.Dest = other
			mounts = append(mounts, own)
		}
		return mounts, nil
	}
	own.Copy = true
	entries, err := os.ReadDir(source)
	mounts := []runtime.Mount{own}
	for _, e := range entries {
		mounts = append(mounts, runtime.Mount{Source: filepath.Join(source, e.Name()), Dest: path.Join(compiler.CheckerMount, e.Name())})
	}
	return mounts, err
}

func trustedEntry(e workspace.Entry) bool { return strings.HasPrefix(e.Dest, trustedDir+"/") }

//go:embed python/sitecustomize.py
var sitecustomize string

// runPytest runs tests with the image's pytest or, if it has none, itself.
const runPytest = "run-pytest.py"

//go:embed python/run-pytest.py
var runPytestProgram string

// stage writes what the checker may see to a new directory, from the pack and never the
// workspace: the trusted directory, the read-only assets, and the checker, with files
// replacing the hidden ones at the same paths. The candidate may change other assets.
func (c *terminalCheck) stage(ctx context.Context, files []contrast.File) (string, error) {
	dir, err := os.MkdirTemp(c.volume, "stage-")
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	inputs, err := workspace.PlanTestSandbox(c.in.Task, c.in.Pack)
	if err != nil {
		return "", err
	}
	checker, err := workspace.PlanChecker(c.in.Task, c.in.Pack)
	if err != nil {
		return "", err
	}
	options := workspace.WriteOptions{MaxBytes: c.in.WorkspaceBytes}
	for _, part := range []struct {
		plan      workspace.Plan
		directory string // below which the entries are written
		wanted    func(workspace.Entry) bool
	}{
		{inputs, "", trustedEntry},
		{inputs, assetsDir, func(e workspace.Entry) bool { return e.ReadOnly && !trustedEntry(e) }},
		{checker, checkerDir, func(workspace.Entry) bool { return true }},
	} {
		var p workspace.Plan
		for _, e := range part.plan.Entries {
			if part.wanted(e) {
				e.Dest = path.Join(part.directory, e.Dest)
				p.Entries = append(p.Entries, e)
			}
		}
		if err := p.Write(ctx, root, options); err != nil {
			return "", err
		}
	}
	for _, name := range []string{trustedDir, checkerDir, pythonDir, compiler.EvaluationInputsRoot} { // mounts need them, empty or not
		if err := root.MkdirAll(name, 0o755); err != nil {
			return "", err
		}
	}
	for _, f := range files {
		if err := overwrite(root, f); err != nil {
			return "", err
		}
	}
	tests, stagedTests := c.tests()
	text := strings.NewReplacer("@WORKSPACE@", c.workdir(), "@TESTS@", tests, "@TRUSTED@", strings.Join(c.sealed, ":")).Replace(sitecustomize)
	err = errors.Join(root.WriteFile(path.Join(pythonDir, runPytest), []byte(runPytestProgram), 0o644), root.WriteFile(path.Join(pythonDir, "sitecustomize.py"), []byte(text), 0o644), root.WriteFile(path.Join(pythonDir, "pytest.ini"), []byte("[pytest]\n"), 0o644))
	if script := path.Join(checkerDir, path.Base(c.eval.Checker.Path)); c.eval.Checker.Source == compiler.CheckerScript {
		info, statErr := root.Lstat(script)
		if err = errors.Join(err, statErr); err == nil {
			err = root.Chmod(script, info.Mode().Perm()|0o111)
		}
	}
	if c.eval.Checker.RunCandidate && stagedTests != "" {
		err = errors.Join(err, root.Chmod(stagedTests, 0o700))
	}
	return dir, errors.Join(err, sameAge(dir))
}

// overwrite replaces the text of a staged file and keeps its mode.
func overwrite(root *os.Root, f contrast.File) error {
	info, err := root.Lstat(f.Path)
	if err != nil {
		return err
	}
	return errors.Join(root.Remove(f.Path), root.WriteFile(f.Path, []byte(f.Text), info.Mode().Perm()))
}

// suite judges the candidate by the checker, unchanged and changed. There is a reference solution
// only if the candidate is it.
func (c *terminalCheck) suite(ctx context.Context, dir string) (Verdict, error) {
	s := suite{in: c.in, listing: contrast.InSandbox(c.engine, c.in.sandbox("listing"))}
	if err := errors.Join(c.hiddenTests(dir, &s), os.RemoveAll(dir)); err != nil {
		return Verdict{}, err
	}
	digests, err := c.in.Task.Digests()
	if err != nil {
		return Verdict{}, err
	}
	s.key = fmt.Sprintf("%q %s", slices.Concat(s.files, s.others), digests.Evaluation)
	s.unchanged = func(ctx context.Context) (Verdict, error) { // staged as the others are, so that no run can be told from them
		dir, err := c.stage(ctx, nil)
		if err != nil {
			return Verdict{}, err
		}
		return c.unchanged(ctx, dir)
	}
	with := func(run func(context.Context, string) (runtime.Exit, string, error)) suiteRun {
		return func(ctx context.Context, files []contrast.File) (runtime.Exit, error) {
			changed, err := c.stage(ctx, files)
			if err != nil {
				return runtime.Exit{}, err
			}
			exit, logs, err := run(ctx, changed)
			switch {
			case err == nil && s.redirected && isRedirected(files):
				exit = forgedExit(exit, logs)
			case err == nil && c.eval.Checker.Reward:
				exit = readReward(logs).exit(exit)
			}
			return exit, err
		}
	}
	s.candidate, s.unsolved = with(c.execute), with(c.withoutCandidate)
	if c.in.Reference {
		s.reference = s.candidate
	}
	return s.judge(ctx)
}

// hiddenTests finds the hidden files of a suite among those staged in dir: the tests in Python or,
// if there are none, all but the checker's script.
func (c *terminalCheck) hiddenTests(dir string, s *suite) error {
	_, stagedTests := c.tests()
	if stagedTests == "" {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	var names []string
	err = fs.WalkDir(root.FS(), stagedTests, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			names = append(names, name)
		}
		return err
	})
	checker, command := c.eval.Checker, strings.Join(checkerArgs(c.eval.Checker), " ")
	script := path.Join(stagedTests, path.Base(checker.Path))
	s.files = readTests(root, testsBelow(root, stagedTests))
	for _, f := range readFiles(root, names) {
		shell := path.Ext(f.Path) == ".sh"
		own := checker.Source == compiler.CheckerScript && f.Path == script
		if own || shell {
			command += "\n" + f.Text
		}
		if len(s.files) == 0 && !own {
			s.others = append(s.others, f)
		}
	}
	for _, f := range slices.Concat(s.files, s.others) {
		s.certain = s.certain || isCode(f) && strings.Contains(command, path.Base(f.Path))
	}
	if s.certain = s.certain || len(s.files) > 0 && runsTests.MatchString(command); !s.certain {
		s.files = nil // the command runs no tests
	}
	if checker.Reward && !s.certain {
		s.others = redirectable(readFiles(root, names))
		s.redirected = len(s.others) > 0
	}
	return err
}

// runsTests matches commands that find tests by themselves.
var runsTests = regexp.MustCompile(`\b(py\.?test|unittest)\b`)

// checkerArgs returns the command of a checker.
func checkerArgs(c compiler.Checker) []string {
	switch c.Source {
	case compiler.CheckerPytest:
		// -I: nothing in the workspace configures the interpreter. For pytest see env.
		return []string{"python3", "-I", path.Join(sbenchDir, pythonDir, runPytest), c.Mounted()}
	case compiler.CheckerScript:
		args := []string{c.Mounted()}
		if c.Shell() {
			args = []string{"bash", c.Mounted()}
		}
		if c.Relocated() { // a script may expect its tests there, or put its own link there
			args = append([]string{"sh", "-c", `ln -s "$TEST_DIR" ` + compiler.CheckerMount + ` 2>&-; exec "$@"`, "sh"}, args...)
		}
		return args
	}
	return c.Command.Args()
}

func verdictOf(exit runtime.Exit) Verdict {
	v := passed()
	switch {
	case exit.Success():
	case exit.Reason == runtime.WallTime:
		v = failed("verifier_timeout", "the checker was "+exit.String())
	case exit.Reason == runtime.OutOfMemory:
		v = failed("verifier_out_of_memory", "the checker "+exit.String())
	case exit.Reason == runtime.PidsLimit:
		v = failed("verifier_pids_limit", "the checker "+exit.String())
	default:
		v = failed("checker_failed", "the checker "+exit.String())
	}
	v.Stdout, v.Stderr = exit.Stdout, exit.Stderr
	v.Metadata = exit.Metadata()
	return v
}
