package verifiers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/securebench/sbench/candidate/trustedgit"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/patch"
	"github.com/securebench/sbench/runtime"
)

const patchesDest = "/opt/sbench/patches"

// Exit codes of prepare.sh.
const (
	exitBaseMismatch = 10 + iota
	exitSetupPatch
	exitCandidatePatch
	exitChangedPaths
	exitTestPatch
)

// repoPatch applies the candidate to a fresh copy of the repository and runs the
// task's tests. One sandbox prepares, without running any code of the
// candidate's; the tests run in others that start from what it left, so that
// no run sees what another did.
func repoPatch(ctx context.Context, e Engine, in Input) (Verdict, error) {
	eval, ok := in.Task.RepoPatch()
	if !ok {
		return Verdict{}, fmt.Errorf("task %q is no repo_patch", in.Task.ID())
	}
	files, denied := judgePatch(in.Candidate.Patch, eval.Policy)
	if denied != nil {
		return *denied, nil
	}
	vol, err := e.NewVolume(ctx, runtime.VolumeConfig{Bytes: in.WorkspaceBytes, Inodes: stageInodes})
	if err != nil {
		return Verdict{}, err
	}
	v, err := (&repoCheck{in: in, eval: eval, files: files, volume: vol.Path()}).verify(ctx, e)
	return v, errors.Join(err, vol.Close())
}

// repoCheck is one verification.
type repoCheck struct {
	in     Input
	eval   compiler.RepoPatchEval
	files  []patch.File
	volume string
}

func (c *repoCheck) repo() string { return c.in.Task.Environment().Workdir }

func (c *repoCheck) verify(ctx context.Context, e Engine) (Verdict, error) {
	if err := c.stage(); err != nil {
		return Verdict{}, fmt.Errorf("stage the patches: %w", err)
	}
	env := c.in.Task.Environment()
	limits := c.in.Limits
	limits.LayerBytes = c.in.WorkspaceBytes
	cfg := runtime.Config{
		Name: "prepare", Image: c.in.Image, Limits: limits, WritableRoot: true, User: env.User, Workdir: env.Workdir, Env: environ(env.Env),
		Mounts: []runtime.Mount{
			{Source: filepath.Join(c.volume, "git"), Dest: trustedgit.Dest},
			{Source: filepath.Join(c.volume, "patches"), Dest: patchesDest},
			{Source: filepath.Join(c.volume, "scratch"), Dest: trustedgit.Scratch, Writable: true, Give: true},
		},
	}
	prepared, err := e.Create(ctx, cfg)
	if err != nil {
		return Verdict{}, err
	}
	v, err := c.prepare(ctx, prepared)
	if err == nil && v.Status == Passed {
		cfg.Name, cfg.Mounts, cfg.From = "verifier", nil, prepared
		v, err = c.test(ctx, e, cfg, prepared)
	}
	return v, errors.Join(err, prepared.Close(ctx))
}

// stage writes the patches and the lists of paths, sorted by bytes.
func (c *repoCheck) stage() error {
	patches := filepath.Join(c.volume, "patches")
	if err := errors.Join(os.Mkdir(patches, 0o755), os.Mkdir(filepath.Join(c.volume, "scratch"), 0o755), trustedgit.Stage(filepath.Join(c.volume, "git"))); err != nil {
		return err
	}
	var restore []string
	if c.eval.TestPatch != "" {
		touched, err := patch.Parse(c.eval.TestPatch)
		if err != nil {
			return fmt.Errorf("test_patch: %w", err)
		}
		restore = slices.DeleteFunc(pathsOf(touched), func(p string) bool { return matchAny(c.eval.Policy.PatchPreservedPaths, p) })
	}
	for name, text := range map[string]string{
		"setup.patch": c.eval.SetupPatch, "candidate.patch": c.in.Candidate.Patch, "test.patch": c.eval.TestPatch,
		"changed": zeroTerminated(pathsOf(c.files)), "restore": zeroTerminated(restore),
	} {
		if err := os.WriteFile(filepath.Join(patches, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
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
	var b bytes.Buffer
	for _, p := range paths {
		b.WriteString(p)
		b.WriteByte(0)
	}
	return b.String()
}

// prepare returns a passed verdict if the tests may run.
func (c *repoCheck) prepare(ctx context.Context, box runtime.Sandbox) (Verdict, error) {
	exit, err := box.Exec(ctx, runtime.Process{
		Args: []string{"sh", trustedgit.Dest + "/prepare.sh", c.repo(), c.eval.BaseCommit},
		Dir:  "/", Wall: c.in.Timeout, OutputBytes: c.in.OutputBytes,
	})
	if errors.Is(err, runtime.ErrNotStarted) {
		return Verdict{}, fmt.Errorf("the image has no shell: %w", err)
	}
	if err != nil || exit.Success() {
		return passed(), err
	}
	reasons := map[int]Verdict{
		exitBaseMismatch:   failed("base_commit_mismatch", "the image's repository is not at the task's base_commit"),
		exitCandidatePatch: failed("candidate_patch_failed", "the candidate's patch does not apply"),
		exitChangedPaths:   failed("changed_paths_mismatch", "the candidate's patch changed other paths than it names"),
		exitTestPatch:      failed("test_patch_failed", "the tests' patch does not apply after the candidate's"),
	}
	v, known := reasons[exit.Code]
	switch {
	case exit.Reason == runtime.Exited && exit.Code == exitSetupPatch:
		// Before anything of the candidate's: the pack's fault, or the image's.
		return Verdict{}, errors.New("setup_patch does not apply to the image's repository")
	case exit.Reason != runtime.Exited || !known:
		v = failed("preparation_failed", "the repository could not be brought to the state in which its tests run: git "+exit.String())
	}
	v.Stdout, v.Stderr = exit.Stdout, exit.Stderr
	return v, nil
}

// test runs the command, and if it passes once more with a test that must fail.
func (c *repoCheck) test(ctx context.Context, e Engine, cfg runtime.Config, prepared runtime.Sandbox) (Verdict, error) {
	env := c.in.Task.Environment()
	process := runtime.Process{
		Args: c.eval.Command.Args(), Dir: within(env.Workdir, c.eval.Workdir),
		Wall: timeout(c.eval.Timeout, env.Timeout, c.in.Timeout), OutputBytes: c.in.OutputBytes,
	}
	run := func(name string, canary *canary) (runtime.Exit, error) {
		cfg, p := cfg, process
		cfg.Name = name
		if canary != nil {
			if canary.named {
				p.Env = append(slices.Clone(p.Env), "PYTEST_ADDOPTS="+canary.inside)
			}
			cfg.Mounts = []runtime.Mount{{Source: canary.host, Dest: canary.inside}}
		}
		return once(ctx, e, cfg, p)
	}
	if !runsPytest(c.eval.Command) {
		return testVerdict(run("verifier", nil))
	}
	silent, err := c.newCanary(prepared, false)
	if err != nil {
		return Verdict{}, err
	}
	v, err := testVerdict(run("verifier", silent))
	if err != nil || v.Status != Passed {
		return v, err
	}
	singing, err := c.newCanary(prepared, true)
	if err != nil {
		return Verdict{}, err
	}
	exit, err := run("canary", singing)
	if err != nil {
		return Verdict{}, err
	}
	if exit.Success() {
		tampered := failed("test_report_tampered", "a test that must fail did not fail")
		tampered.Stdout, tampered.Stderr, tampered.Metadata = exit.Stdout, exit.Stderr, v.Metadata
		return tampered, nil
	}
	v.Metadata["canary"] = exit.String()
	return v, nil
}

// testVerdict judges how the tests' command ended.
func testVerdict(exit runtime.Exit, err error) (Verdict, error) {
	switch {
	case errors.Is(err, runtime.ErrDenied):
		return failed(deniedReason, "the tester file denies the tests' command"), nil
	case errors.Is(err, runtime.ErrNotStarted):
		return failed("verifier_not_started", "the tests could not be executed in the task's image and repository"), nil
	case err != nil:
		return Verdict{}, err
	}
	v := judge(exit)
	if v.Reason == "checker_failed" {
		v.Reason, v.Message = "tests_failed", "the tests' command "+exit.String()
	}
	return v, nil
}

// once runs a process in a sandbox of its own.
func once(ctx context.Context, e Engine, cfg runtime.Config, p runtime.Process) (runtime.Exit, error) {
	box, err := e.Create(ctx, cfg)
	if err != nil {
		return runtime.Exit{}, err
	}
	exit, err := box.Exec(ctx, p)
	return exit, errors.Join(err, box.Close(ctx))
}
