package terminal

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/verifiers/suite"
	"github.com/securebench/sbench/workspace"
)

// env returns the checker's environment. It keeps a Python checker from using the user's
// site directory, configured plug-ins and the workspace's modules.
func (c *checker) env(dir string) []string {
	own := environment.Environ(c.eval.Checker.Env)
	if !c.separate {
		own = append(environment.Environ(c.in.Task.Environment().Env), own...)
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
		env = append(env, "SECUREBENCH_WORKSPACE="+c.workdir(), "SECUREBENCH_EVALUATOR="+paths.EvaluatorMount)
	}
	return env
}

// mounts returns what the checker sees of the candidate, and what the agent could not change.
func (c *checker) mounts(dir, logs string) ([]runtime.Mount, error) {
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
	if c.eval.Checker.RunCandidate {
		own, err := service.MountCandidate()
		return append(mounts, own), err
	}
	return mounts, nil
}

// candidateMounts mounts the workspace, and over it the files that the agent could not change.
func (c *checker) candidateMounts(dir string) ([]runtime.Mount, error) {
	mounts := []runtime.Mount{{Source: c.in.Candidate.Workspace, Dest: c.workdir(), Copy: true, Chown: !c.in.Candidate.HasOwners()}}
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
func (c *checker) testMounts(source string) ([]runtime.Mount, error) {
	checker := c.eval.Checker
	own := runtime.Mount{Source: source, Dest: checker.Mount, Chown: checker.RunCandidate}
	if !checker.Reward || checker.RunCandidate {
		mounts := []runtime.Mount{own}
		if other := checker.Evaluator(); other != own.Dest && !checker.Reward {
			own.Dest = other
			mounts = append(mounts, own)
		}
		return mounts, nil
	}
	own.Copy, own.Chown = true, true
	entries, err := os.ReadDir(source)
	mounts := []runtime.Mount{own}
	for _, e := range entries {
		mounts = append(mounts, runtime.Mount{Source: filepath.Join(source, e.Name()), Dest: path.Join(paths.CheckerMount, e.Name())})
	}
	return mounts, err
}

func trustedEntry(e workspace.Entry) bool { return strings.HasPrefix(e.Dest, trustedDir+"/") }

//go:embed python/sitecustomize.py
var sitecustomize string

//go:embed python/run-pytest.py
var runPytest string

// stage writes what the checker may see, from the pack and never the workspace, to a new volume, which the caller
// closes; files replace the hidden ones at the same paths. The candidate may change other assets.
func (c *checker) stage(ctx context.Context, files []contrast.File) (runtime.Volume, error) {
	vol, err := c.in.Stage(ctx, c.engine)
	if err != nil {
		return nil, err
	}
	if err := c.fill(ctx, vol.Path(), files); err != nil {
		return nil, errors.Join(err, vol.Close())
	}
	return vol, nil
}

func (c *checker) fill(ctx context.Context, dir string, files []contrast.File) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	inputs, err := workspace.PlanTestSandbox(c.in.Task, c.in.Pack)
	if err != nil {
		return err
	}
	checker, err := workspace.PlanChecker(c.in.Task, c.in.Pack)
	if err != nil {
		return err
	}
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
		if err := p.Write(ctx, root, c.in.WorkspaceBytes); err != nil {
			return err
		}
	}
	for _, name := range []string{trustedDir, checkerDir, pythonDir, paths.EvaluationInputsRoot} { // mounts need them, empty or not
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
	}
	if c.testsInImage() {
		err = c.placeInImage(ctx, root, files)
	} else {
		for _, f := range files {
			err = cmp.Or(err, overwrite(root, f))
		}
	}
	if err != nil {
		return err
	}
	tests, stagedTests := c.tests()
	text := strings.NewReplacer("@WORKSPACE@", c.workdir(), "@TESTS@", tests, "@TRUSTED@", strings.Join(c.sealed, ":")).Replace(sitecustomize)
	err = errors.Join(root.WriteFile(path.Join(pythonDir, path.Base(compiler.RunPytest)), []byte(runPytest), 0o644), root.WriteFile(path.Join(pythonDir, "sitecustomize.py"), []byte(text), 0o644), root.WriteFile(path.Join(pythonDir, "pytest.ini"), []byte("[pytest]\n"), 0o644))
	if script := path.Join(checkerDir, path.Base(c.eval.Checker.Path)); c.eval.Checker.Source == compiler.CheckerScript {
		info, statErr := root.Lstat(script)
		if err = errors.Join(err, statErr); err == nil {
			err = root.Chmod(script, info.Mode().Perm()|0o111)
		}
	}
	if c.eval.Checker.RunCandidate && stagedTests != "" {
		err = errors.Join(err, root.Chmod(stagedTests, 0o700))
	}
	return errors.Join(err, suite.SameAge(dir))
}

// overwrite replaces the text of a staged file and keeps its mode.
func overwrite(root *os.Root, f contrast.File) error {
	info, err := root.Lstat(f.Path)
	if err != nil {
		return err
	}
	return errors.Join(root.Remove(f.Path), root.WriteFile(f.Path, []byte(f.Text), info.Mode().Perm()))
}

// overImage is the directory of a stage with what is put over the checker's own image.
const overImage = "over"

// placeInImage writes files that replace the ones of the checker's own image at the same paths, with their owners and modes.
func (c *checker) placeInImage(ctx context.Context, stage *os.Root, files []contrast.File) error {
	view, err := c.engine.View(ctx, c.in.Image)
	if err != nil {
		return err
	}
	defer func() { _ = view.Close() }()
	if err := stage.Mkdir(overImage, 0o755); err != nil {
		return err
	}
	over, err := stage.OpenRoot(overImage)
	if err != nil {
		return err
	}
	defer func() { _ = over.Close() }()
	for _, f := range files {
		info, err := view.Root().Lstat(f.Path)
		if err == nil {
			err = cmp.Or(layer.MakeParents(over, view.Root(), f.Path), over.WriteFile(f.Path, []byte(f.Text), 0o600))
		}
		if err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t)
		if err := errors.Join(over.Lchown(f.Path, int(owner.Uid), int(owner.Gid)), over.Chmod(f.Path, info.Mode().Perm())); err != nil {
			return err
		}
	}
	return nil
}
