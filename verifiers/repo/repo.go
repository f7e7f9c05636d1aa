// Package repo judges repo_patch: it applies a candidate's patch to the task's repository and runs the
// hidden tests, as a suite. [Family] is its door.
//
// What a patch may change, and what is left out of it, is in policy.go. All else is in this file: one
// sandbox prepares the repository with git, and each run of the tests starts from there.
package repo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/candidate/trustedgit"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/patch"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/verifiers/suite"
	"github.com/securebench/sbench/workspace"
	"github.com/securebench/sbench/workspace/foreign"
)

const patchesDest = "/opt/sbench/patches"

// Family returns the family repo_patch.
func Family() verifiers.Family {
	return verifiers.Family{
		Family: family.RepoPatch(), Verify: verifiers.By(family.RepoPatchOf, verifyPatch), Sandboxed: true,
		Reference: func(t *compiler.Task) candidate.Candidate {
			return candidate.Candidate{Patch: family.RepoPatchOf(t).GoldPatch.Reveal()}
		},
	}
}

// verifyPatch applies the candidate to a fresh copy of the repository, in a sandbox that runs none of its code.
// Each run of the tests starts from that state in a sandbox of its own.
func verifyPatch(ctx context.Context, e verifiers.Engine, in verifiers.Input, eval family.RepoPatchEval) (verifiers.Verdict, error) {
	if strings.TrimSpace(in.Candidate.Patch) == "" {
		return verifiers.Fail("empty_patch", "the candidate changed nothing"), nil
	}
	text, cleaned, err := in.Candidate.Patch, []string(nil), error(nil)
	if in.Candidate.Foreign {
		text, cleaned, err = patch.Clean(text)
	}
	var files []patch.File
	if err == nil {
		files, err = patch.Parse(text)
	}
	if err != nil {
		return verifiers.Fail("candidate_patch_invalid", "the candidate's patch cannot be read: "+err.Error()), nil
	}
	policy := newPathPolicy(eval, files)
	if err := policy.look(ctx, e, in, files); err != nil {
		return verifiers.Verdict{}, err
	}
	files, left, denied := policy.judge(files)
	if denied != nil {
		return *denied, nil
	}
	vol, err := in.Stage(ctx, e)
	if err != nil {
		return verifiers.Verdict{}, err
	}
	c := &repoCheck{engine: e, in: in, eval: eval, volume: vol.Path()}
	v, err := c.verify(ctx, files)
	if len(cleaned) > 0 && err == nil {
		v = v.With("patch_cleaned", cleaned)
	}
	if c.appliedBy != "" && err == nil {
		v = v.With("patch_applied_by", c.appliedBy)
	}
	if len(left) > 0 && err == nil {
		if v = v.With("left_out", left); v.Status == verifiers.Failed {
			v.Message += fmt.Sprintf(" (left out of the patch: %q)", left[:min(len(left), 5)])
		}
	}
	return v, errors.Join(err, vol.Close())
}

// Apply applies the candidate's patch to a fresh copy of the repository without sbench's tests, and runs none
// of its code. volume is an empty directory. After a pass, the caller closes the sandbox.
func Apply(ctx context.Context, e verifiers.Engine, in verifiers.Input, volume string) (runtime.Sandbox, verifiers.Verdict, error) {
	text, err := in.Candidate.Patch, error(nil)
	if in.Candidate.Foreign {
		text, _, err = patch.Clean(text)
	}
	var files []patch.File
	if err == nil && strings.TrimSpace(text) != "" {
		files, err = patch.Parse(text)
	}
	if err != nil {
		return nil, verifiers.Fail("candidate_patch_invalid", "the candidate's patch cannot be read: "+err.Error()), nil
	}
	c := &repoCheck{engine: e, in: in, eval: family.RepoPatchOf(in.Task), volume: volume}
	policy := pathPolicy{CandidatePolicy: c.eval.Policy}
	for _, f := range files {
		for _, name := range f.Paths() {
			reason := policy.denies(name)
			if f.Irregular() {
				reason = "a link that leads out of the repository, a submodule or a special file"
			}
			if reason != "" {
				return nil, verifiers.Fail("candidate_policy_denied", fmt.Sprintf("%q: %s", name, reason)), nil
			}
		}
	}
	return c.prepare(ctx, "candidate", files)
}

// repoCheck is one verification.
type repoCheck struct {
	engine verifiers.Engine
	in     verifiers.Input
	eval   family.RepoPatchEval
	volume string
	inputs []runtime.Mount // the task's files besides the repository
	// guessed says that the hidden tests are not those of test_patch, but files of the
	// repository that the command seems to run.
	guessed   bool
	appliedBy string // the command that applied a candidate's patch made elsewhere; "" if none has
	// branches have commits that the base commit lacks, perhaps a solution.
	branches []string
}

func (c *repoCheck) repo() string { return c.in.Task.Environment().Workdir }

func (c *repoCheck) verify(ctx context.Context, changes []patch.File) (verifiers.Verdict, error) {
	if err := c.stageInputs(ctx); err != nil {
		return verifiers.Verdict{}, fmt.Errorf("stage the task's files: %w", err)
	}
	prepared, v, err := c.prepare(ctx, "candidate", changes)
	if err != nil || v.Status != verifiers.Passed {
		return v, err
	}
	files, others, err := c.hiddenTests(prepared, changes)
	if err == nil {
		v, err = c.judge(ctx, prepared, files, others)
	}
	if err == nil && startsNothing(v) {
		v, err = c.withoutCandidate(ctx, v)
	}
	if err == nil && c.in.Reference && len(c.branches) > 0 {
		v = v.With("branches", c.branches[:min(len(c.branches), maxBranches)])
	}
	return v, errors.Join(err, prepared.Close(ctx))
}

// judge judges the prepared candidate by its tests, blind and unchanged.
func (c *repoCheck) judge(ctx context.Context, prepared runtime.Sandbox, files, others []contrast.File) (verifiers.Verdict, error) {
	gold, err := patch.Parse(c.eval.GoldPatch.Reveal())
	command := &testCommand{repoCheck: c, candidate: prepared, tests: slices.Concat(files, others), gold: gold}
	s := suite.Suite{
		Engine: c.engine, Input: c.in, Command: command, Key: c.evaluation(command.tests), Files: files, Others: others,
		Selects:   strings.Join(c.eval.Command.Args(), " "),
		Certain:   !c.guessed && (len(files) > 0 || slices.ContainsFunc(others, suite.IsTest)),
		Reference: err == nil, // otherwise there is none, or none that parses
	}
	if s.Seen, err = c.seen(ctx, files); err != nil {
		return verifiers.Verdict{}, err
	}
	v, err := s.Judge(ctx)
	if command.reference != nil {
		err = errors.Join(err, command.reference.Close(ctx))
	}
	return v, err
}

// testCommand is the tests' command as the command of a suite. All its runs have the same mounts, so that these do not
// tell a candidate whether the tests are unchanged or broken.
type testCommand struct {
	*repoCheck
	candidate runtime.Sandbox // prepared
	tests     []contrast.File // unchanged
	gold      []patch.File

	preparing sync.Mutex
	reference runtime.Sandbox // prepared; nil until a calibration needs it
}

// Unchanged implements suite.Command.
func (c *testCommand) Unchanged(ctx context.Context) (verifiers.Verdict, error) {
	ended, err := c.testWith(ctx, c.candidate, c.tests)
	return testVerdict(ended.Exit, err)
}

// Run implements suite.Command.
func (c *testCommand) Run(ctx context.Context, on suite.Subject, files []contrast.File) (suite.Ended, error) {
	switch on {
	case suite.Unsolved:
		sandbox, gone, err := c.prepare(ctx, "unsolved", nil)
		if err != nil || gone.Status != verifiers.Passed {
			return suite.Ended{}, err
		}
		ended, err := c.testWith(ctx, sandbox, files)
		return ended, errors.Join(err, sandbox.Close(ctx))
	case suite.Reference:
		if err := c.prepareReference(ctx); err != nil {
			return suite.Ended{}, err
		}
		return c.testWith(ctx, c.reference, files)
	}
	return c.testWith(ctx, c.candidate, files)
}

func (c *testCommand) prepareReference(ctx context.Context) error {
	c.preparing.Lock()
	defer c.preparing.Unlock()
	if c.reference != nil {
		return nil
	}
	sandbox, gone, err := c.prepare(ctx, "reference", c.gold)
	switch {
	case err != nil:
		return err
	case gone.Reason == "preparation_failed":
		return errors.New(gone.Message)
	case gone.Status != verifiers.Passed:
		return suite.ErrReference
	}
	c.reference = sandbox
	return nil
}

// evaluation returns everything that a calibration depends on, except the image.
func (c *repoCheck) evaluation(files []contrast.File) string {
	return fmt.Sprintf("%q %q", files, append([]string{c.eval.SetupPatch, c.eval.TestPatch, c.eval.GoldPatch.Reveal(), c.eval.BaseCommit, c.eval.Workdir}, c.eval.Command.Args()...))
}

// testWith runs the command with files mounted over the repository's, and a file for answers.
func (c *repoCheck) testWith(ctx context.Context, prepared runtime.Sandbox, files []contrast.File) (ended suite.Ended, err error) {
	dir, err := os.MkdirTemp(c.volume, "tests-")
	if err != nil {
		return ended, err
	}
	var mounts []runtime.Mount
	for i, f := range files {
		at := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(at, []byte(f.Text), 0o755); err != nil {
			return ended, err
		}
		mounts = append(mounts, runtime.Mount{Source: at, Dest: path.Join(c.repo(), f.Path)})
	}
	if err := suite.SameAge(dir); err != nil {
		return ended, err
	}
	answers, mount, err := suite.NewAnswersFile(dir)
	if err != nil {
		return ended, err
	}
	ended.Exit, err = c.test(ctx, "verifier", prepared, append(mounts, mount)...)
	ended.Answers = answers.Read()
	return ended, errors.Join(err, os.RemoveAll(dir)) // or there may be no room for the next run
}

// maxBranches bounds the branches that a record lists.
const maxBranches = 20

// maxSeen bounds what is read of a file of an image, in bytes.
const maxSeen = 16 << 20

// hiddenTests returns the files to change, to see whether the command notices, with their prepared texts. These are
// the first of the following that exist. None of them is changed by the candidate.
//
//	files   the Python test files that test_patch touches
//	others  everything that test_patch touches, if a program is among it
//	files   the Python test files that the command names
//	others  everything that test_patch touches
//	files   all Python test files below the tests' working directory
func (c *repoCheck) hiddenTests(prepared runtime.Sandbox, changes []patch.File) (files, others []contrast.File, err error) {
	dir, err := prepared.Path(c.repo())
	if err != nil {
		return nil, nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = root.Close() }()
	changed := func(name string) bool {
		return slices.ContainsFunc(changes, func(f patch.File) bool { return f.New == name })
	}
	both := c.changedByBoth(changes)
	touched := slices.DeleteFunc(c.touched(), func(name string) bool { return slices.Contains(both, name) })
	if files = suite.ReadTests(root, touched); len(files) > 0 {
		return files, nil, nil
	}
	others = suite.ReadFiles(root, touched)
	workdir := path.Join(".", strings.TrimPrefix(c.eval.Workdir, c.repo()))
	if !slices.ContainsFunc(others, suite.IsCode) {
		files = suite.ReadTests(root, slices.DeleteFunc(selected(root, workdir, c.eval.Command.Args()), changed))
	}
	switch {
	case len(files) > 0:
		return files, nil, nil
	case len(others) > 0:
		return nil, others, nil
	}
	c.guessed = true
	return suite.ReadTests(root, slices.DeleteFunc(suite.TestsBelow(root, workdir), changed)), nil, nil
}

// seen returns the texts that the image has of the files and of those that test_patch renames: agents can read them.
func (c *repoCheck) seen(ctx context.Context, files []contrast.File) (seen []string, err error) {
	view, err := c.engine.View(ctx, c.in.Image)
	if err != nil {
		return nil, err
	}
	names := c.touched()
	for _, f := range files {
		names = append(names, f.Path)
	}
	for _, name := range names {
		if text, err := foreign.Read(view.Root(), workspace.InImage(view.Root(), path.Join(c.repo(), name)), maxSeen); err == nil {
			seen = append(seen, string(text))
		}
	}
	return seen, view.Close()
}

// selected returns the files that a command names, and the Python test files in directories that it names.
func selected(root *os.Root, workdir string, args []string) []string {
	var names []string
	for _, word := range strings.FieldsFunc(strings.Join(args, " "), func(r rune) bool { return strings.ContainsRune(" \t\n\"';|&()=", r) }) {
		name, _, _ := strings.Cut(word, "::")
		name = path.Join(workdir, name)
		if name == workdir { // many words look like it
			continue
		}
		if info, err := root.Stat(name); err == nil && info.IsDir() {
			names = append(names, suite.TestsBelow(root, name)...)
		} else if err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// stageInputs writes the task's public files. It writes no evaluation inputs: one of them is the text of the
// tests' patch, which would show a candidate whether the tests are changed.
func (c *repoCheck) stageInputs(ctx context.Context) error {
	plan, err := workspace.PlanAgent(c.in.Task, c.in.Pack)
	if err != nil {
		return err
	}
	dir := filepath.Join(c.volume, "inputs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := plan.WriteDir(ctx, dir, c.in.WorkspaceBytes); err != nil {
		return err
	}
	view, err := c.engine.View(ctx, c.in.Image)
	if err != nil {
		return err
	}
	err = candidate.CheckOwner(view.Root(), c.repo(), cmp.Or(c.in.Task.Environment().User, c.in.Image.User))
	places, placesErr := workspace.Places(dir, view.Root(), c.repo())
	for _, p := range places {
		c.inputs = append(c.inputs, runtime.Mount{Source: filepath.Join(dir, p), Dest: path.Join(c.repo(), p)})
	}
	return errors.Join(err, placesErr, view.Close())
}

func (c *repoCheck) config(name string) runtime.Config {
	cfg := c.in.Sandbox(name)
	cfg.Limits.LayerBytes, cfg.WritableRoot, cfg.Workdir = c.in.WorkspaceBytes, true, c.in.Task.Environment().Workdir
	return cfg
}

// prepare brings a fresh repository to the state in which its tests run, with the changes of files. After
// Passed, the caller closes the sandbox; otherwise there is none.
func (c *repoCheck) prepare(ctx context.Context, name string, files []patch.File) (runtime.Sandbox, verifiers.Verdict, error) {
	foreign := c.in.Candidate.Foreign && name == "candidate"
	stage, err := os.MkdirTemp(c.volume, name+"-")
	if err == nil {
		err = c.stage(stage, files, foreign)
	}
	if err != nil {
		return nil, verifiers.Verdict{}, fmt.Errorf("stage the patches: %w", err)
	}
	cfg := c.config("prepare")
	cfg.Mounts = []runtime.Mount{
		{Source: filepath.Join(stage, "git"), Dest: trustedgit.Dest},
		{Source: filepath.Join(stage, "patches"), Dest: patchesDest},
		{Source: filepath.Join(stage, "scratch"), Dest: trustedgit.Scratch, Writable: true, Chown: true},
	}
	sandbox, err := c.engine.Create(ctx, cfg)
	if err != nil {
		return nil, verifiers.Verdict{}, err
	}
	var env []string
	if c.in.Task.Environment().SecureBench {
		env = []string{"SBENCH_IGNORED=yes"}
	}
	exit, err := sandbox.Exec(ctx, runtime.Process{
		Args: []string{"sh", trustedgit.Dest + "/prepare.sh", c.repo(), c.eval.BaseCommit},
		Dir:  "/", Wall: c.in.Timeout, OutputBytes: c.in.OutputBytes, Env: env,
	})
	if foreign {
		text, _ := os.ReadFile(filepath.Join(stage, "scratch", "applied-by"))
		c.appliedBy = strings.TrimSpace(string(text))
	}
	err = errors.Join(err, os.RemoveAll(stage)) // or there may be no room for the runs that follow
	v := verifiers.Pass()
	switch {
	case errors.Is(err, runtime.ErrNotStarted):
		v, err = verifiers.Fault("image_without_tools", "the image has no shell"), nil
	case err == nil && !exit.Success():
		v = prepareVerdict(exit)
	}
	if err != nil || v.Status != verifiers.Passed {
		return nil, v, errors.Join(err, sandbox.Close(ctx))
	}
	c.branches = strings.Fields(exit.Stdout.String())
	return sandbox, v, nil
}

// stage writes the patches, and the lists of paths that prepare.sh needs sorted by bytes.
func (c *repoCheck) stage(dir string, files []patch.File, foreign bool) error {
	patches := filepath.Join(dir, "patches")
	if err := errors.Join(os.MkdirAll(patches, 0o755), os.Mkdir(filepath.Join(dir, "scratch"), 0o755), trustedgit.Stage(filepath.Join(dir, "git"))); err != nil {
		return err
	}
	var kept strings.Builder
	for _, f := range files {
		kept.WriteString(f.Text)
		if !strings.HasSuffix(f.Text, "\n") {
			kept.WriteByte('\n')
		}
	}
	texts := map[string]string{
		"setup.patch": c.eval.SetupPatch, "candidate.patch": kept.String(), "test.patch": c.eval.TestPatch,
		"changed": zeroTerminated(pathsOf(files)), "restore": zeroTerminated(c.touched()), "both": zeroTerminated(c.changedByBoth(files)),
	}
	if foreign {
		texts["foreign"] = "yes"
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(patches, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// touched returns the paths that test_patch changes.
func (c *repoCheck) touched() []string {
	files, _ := patch.Parse(c.eval.TestPatch) // verifyPatch has parsed it before
	return pathsOf(files)
}

// changedByBoth returns the files of the product that both test_patch and changes change.
func (c *repoCheck) changedByBoth(changes []patch.File) []string {
	own := pathsOf(changes)
	return slices.DeleteFunc(c.touched(), func(name string) bool {
		return patch.TestFile(name) || patch.TestDirectory(name) != "" || !slices.Contains(own, name)
	})
}

func pathsOf(files []patch.File) []string {
	var all []string
	for _, f := range files {
		all = append(all, f.Paths()...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func zeroTerminated(paths []string) string {
	return strings.Join(append(slices.Clip(paths), ""), "\x00")
}

// prepareVerdicts has the verdicts on the exit codes of trustedgit's prepare.sh. If a step
// before the candidate's patch failed, the pack or the image is at fault.
var prepareVerdicts = map[int]verifiers.Verdict{
	10: verifiers.Fault("base_commit_mismatch", "the image's repository is not at the task's base_commit"),
	11: verifiers.Fault("pack_patch_fails", "setup_patch does not apply to the image's repository"),
	12: verifiers.Fail("candidate_patch_failed", "the candidate's patch does not apply"),
	13: verifiers.Fail("changed_paths_mismatch", "the candidate's patch changed other paths than it names"),
	14: verifiers.Fail("test_patch_failed", "the tests' patch does not apply after the candidate's"),
	15: verifiers.Fault("repository_missing", "the image has no git, or no repository at environment.workdir"),
	16: verifiers.Fault("pack_patch_fails", "test_patch does not apply to the repository without a candidate"),
}

// patchFailed matches how git apply reports a hunk that does not apply, with the file and line.
var patchFailed = regexp.MustCompile(`(?m)^error: patch failed: (.+):(\d+)$`)

func prepareVerdict(exit runtime.Exit) verifiers.Verdict {
	v, known := prepareVerdicts[exit.Code]
	if exit.Reason != runtime.Exited || !known {
		v = verifiers.Fail("preparation_failed", "the repository could not be brought to the state in which its tests run: git "+exit.String())
	}
	v.Stdout, v.Stderr = exit.Stdout, exit.Stderr
	if v.Reason == "base_commit_mismatch" {
		v.Message = fmt.Sprintf("the image's repository is at %.64s, not at the task's base_commit", strings.TrimSpace(exit.Stdout.String()))
	}
	if at := patchFailed.FindStringSubmatch(exit.Stderr.String()); at != nil && v.Reason == "candidate_patch_failed" {
		v.Message += fmt.Sprintf(" at line %s of %q", at[2], at[1])
	}
	return v
}

// test runs the command in a sandbox that starts from a prepared repository.
func (c *repoCheck) test(ctx context.Context, name string, prepared runtime.Sandbox, more ...runtime.Mount) (runtime.Exit, error) {
	cfg := c.config(name)
	cfg.Base, cfg.Mounts = prepared, append(slices.Clone(c.inputs), more...)
	args, command := service.HideCommand(c.eval.Command.Args())
	cfg.Env = append(cfg.Env, command...)
	return c.in.Run(ctx, c.engine, cfg, runtime.Process{Args: args, Dir: c.eval.Workdir, Wall: c.eval.Timeout})
}

// withoutCandidate repeats a command that seems to lack a program, with the gold patch or without any. If it
// fails in the same way, the pack is at fault.
func (c *repoCheck) withoutCandidate(ctx context.Context, v verifiers.Verdict) (verifiers.Verdict, error) {
	gold, _ := patch.Parse(c.eval.GoldPatch.Reveal()) // if there is none, no files
	prepared, without, err := c.prepare(ctx, "without", gold)
	if err != nil || without.Status != verifiers.Passed {
		return v, err
	}
	without, err = testVerdict(c.test(ctx, "without", prepared))
	if err == nil && startsNothing(without) {
		v.Status, v.Score, v.Reason, v.Message = verifiers.Faulty, 0, "tests_not_runnable", "the tests' command cannot run in the task's image with any candidate"
	}
	return v, errors.Join(err, prepared.Close(ctx))
}

// startsNothing reports whether a command failed as if a program were missing.
func startsNothing(v verifiers.Verdict) bool {
	code, _ := v.Metadata["exit_code"].(int)
	return v.Reason == "verifier_not_started" || v.Reason != "" && (code == 126 || code == 127 || suite.LacksPytest(v.Stdout, v.Stderr))
}

// testVerdict judges how the tests' command ended.
func testVerdict(exit runtime.Exit, err error) (verifiers.Verdict, error) {
	switch {
	case errors.Is(err, runtime.ErrDenied):
		return verifiers.Fail(verifiers.CommandDenied, "the tester file denies the tests' command"), nil
	case errors.Is(err, runtime.ErrNotStarted):
		return verifiers.Fail("verifier_not_started", "the tests could not be executed in the task's image and repository"), nil
	case err != nil:
		return verifiers.Verdict{}, err
	}
	v := verifiers.OfExit(exit)
	if v.Reason == "checker_failed" {
		v.Reason, v.Message = "tests_failed", "the tests' command "+exit.String()
	}
	return v, nil
}
