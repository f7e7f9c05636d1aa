package split

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/securebench"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/machine"
	"github.com/securebench/sbench/verifiers/repo"
	"github.com/securebench/sbench/verifiers/terminal"
	"github.com/securebench/sbench/workspace"
)

// A subject is what is judged: a candidate, or what candidates begin with.
type subject struct {
	config runtime.Config // of the drivers' sandboxes, with the subject at its place
	taken  *capture       // for a task of SecureBench 2.0
}

// config returns what the drivers' sandboxes have in common. The driver can run programs as another user, with
// run-candidate, and kill them.
func (c *check) config() (runtime.Config, error) {
	env := c.in.Task.Environment()
	cfg := c.in.Sandbox(driverDir)
	cfg.Workdir, cfg.IsolateProcesses, cfg.Machine = env.Workdir, true, env.Machine
	cfg.Limits.LayerBytes = c.in.WorkspaceBytes
	cfg.Capabilities = append([]string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL"}, env.Capabilities...)
	if c.in.Task.Verification() != nil {
		cfg.WritableRoot = true
		return cfg, nil
	}
	cfg.Env = append(cfg.Env, "PYTHONNOUSERSITE=1", "PYTHONDONTWRITEBYTECODE=1")
	program, err := os.Executable()
	cfg.Mounts = []runtime.Mount{{Source: program, Dest: "/usr/local/bin/" + machine.RunCandidate}}
	return cfg, err
}

// candidate brings the candidate to its place. A candidate that comes into no sandbox is denied.
func (c *check) candidate(ctx context.Context) (s subject, denied *verifiers.Verdict, err error) {
	if s.config, err = c.config(); err != nil {
		return s, nil, err
	}
	v := c.in.Task.Verification()
	if v != nil {
		s.taken = &capture{entries: v.Candidate.Files, workdir: strings.TrimPrefix(s.config.Workdir, "/")}
	}
	switch kind := c.in.Task.CandidateKind(); {
	case kind == compiler.CandidateCode:
		return s, nil, c.withCode(&s.config, c.in.Candidate.Text)
	case kind == compiler.CandidatePatch && v == nil:
		denied, err = c.withPatch(ctx, &s.config, c.in.Candidate.Patch)
		return s, denied, err
	case kind == compiler.CandidatePatch:
		denied, err = c.withGitPatch(ctx, &s, v.Candidate)
		return s, denied, err
	}
	in, done, err := terminal.AsLeft(ctx, c.engine, c.in)
	if err != nil {
		return s, nil, err
	}
	c.done = append(c.done, done)
	if v != nil {
		return s, nil, c.withBundle(ctx, &s, in.Candidate.Workspace)
	}
	m, done, err := machine.Restore(ctx, c.engine, in, family.TerminalTaskOf(in.Task))
	if err != nil {
		return s, nil, err
	}
	c.done = append(c.done, done)
	s.config.Image, s.config.ReadOnly = m.Image, m.Sealed
	withWorkspace(&s.config, in.Candidate.Workspace)
	return s, nil, nil
}

// control returns the configuration of a driver's sandbox with what candidates begin with.
func (c *check) control(ctx context.Context) (runtime.Config, error) {
	cfg, err := c.config()
	if err != nil {
		return cfg, err
	}
	switch kind := c.in.Task.CandidateKind(); {
	case kind == compiler.CandidateCode:
		return cfg, c.withCode(&cfg, family.CodeCompletionOf(c.in.Task).StarterCode)
	case kind == compiler.CandidatePatch, c.in.Task.Verification() != nil: // the image has it
		cfg.WritableRoot = true
		return cfg, nil
	}
	dir := filepath.Join(c.volume, "control")
	at := dir
	if env := c.in.Task.Environment(); env.MaterializeWorkdirFromImage || env.Machine { // it is the image's, with the task's files over it
		at = filepath.Join(dir, env.Workdir)
		cfg.Image.UpperDir, cfg.WritableRoot = dir, true
	} else {
		withWorkspace(&cfg, dir)
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return cfg, err
	}
	plan, err := workspace.PlanAgent(c.in.Task, c.in.Pack)
	if err != nil {
		return cfg, err
	}
	return cfg, plan.WriteDir(ctx, at, workspace.WriteOptions{MaxBytes: c.in.WorkspaceBytes})
}

func withWorkspace(cfg *runtime.Config, dir string) {
	cfg.Mounts = append([]runtime.Mount{{Source: dir, Dest: cfg.Workdir, Copy: true}}, cfg.Mounts...)
}

// withCode puts code into its file in a workspace of its own.
func (c *check) withCode(cfg *runtime.Config, code string) error {
	dir, err := os.MkdirTemp(c.volume, "code-")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, c.in.Task.CodeFile()), []byte(code), 0o755))
	}
	withWorkspace(cfg, dir)
	return err
}

// withPatch applies the patch to the image's repository, in a sandbox on which the drivers' are based.
func (c *check) withPatch(ctx context.Context, cfg *runtime.Config, patch string) (denied *verifiers.Verdict, err error) {
	in := c.in
	in.Candidate.Patch = patch
	base, v, err := repo.Apply(ctx, c.engine, in, filepath.Join(c.volume, candidateDir))
	if err != nil || v.Status != verifiers.Passed {
		return &v, err
	}
	c.done = append(c.done, func() error { return base.Close(ctx) })
	cfg.Base, cfg.WritableRoot = base, true
	return nil, nil
}

// withGitPatch applies what a patch may change.
func (c *check) withGitPatch(ctx context.Context, s *subject, spec securebench.Candidate) (denied *verifiers.Verdict, err error) {
	refused := func(why string) (*verifiers.Verdict, error) {
		s.taken.failed = &failure{Code: "patch_refused", Message: why}
		return nil, nil
	}
	s.taken.digest = digest([]byte(c.in.Candidate.Patch))
	kept, changed, err := spec.Kept(c.in.Candidate.Patch)
	if err != nil {
		return refused(err.Error())
	}
	denied, err = c.withPatch(ctx, &s.config, kept)
	if err != nil || denied != nil && denied.Status == verifiers.Faulty {
		return denied, err
	}
	if denied != nil {
		return refused(denied.Message)
	}
	dir, err := s.config.Base.Path(s.config.Workdir)
	if err == nil {
		err = c.open(s.taken, dir)
	}
	if err != nil {
		return nil, err
	}
	left := spec.MaxChangedBytes
	for _, name := range changed {
		if info, err := s.taken.root.Lstat(name); err == nil {
			left -= info.Size()
		}
	}
	if left < 0 {
		return refused(fmt.Sprintf("the changed files have more than %d bytes", spec.MaxChangedBytes))
	}
	return nil, nil
}

// withBundle puts the entries of a bundle from a workspace over the image.
func (c *check) withBundle(ctx context.Context, s *subject, from string) (err error) {
	view, err := c.engine.View(ctx, c.in.Image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	over := filepath.Join(c.volume, candidateDir)
	err = s.taken.take(from, over, view.Root())
	if refused := (*failure)(nil); errors.As(err, &refused) {
		s.taken.failed = refused
		return nil
	}
	if err != nil {
		return err
	}
	s.config.Image.UpperDir = over
	if err := c.open(s.taken, filepath.Join(over, s.taken.workdir)); err != nil {
		return err
	}
	report, err := workspace.DigestTree(ctx, s.taken.root, workspace.TreeOptions{})
	s.taken.digest = report.Digest
	return err
}

// open opens the files that were taken.
func (c *check) open(taken *capture, dir string) (err error) {
	if taken.root, err = os.OpenRoot(dir); err == nil {
		c.done = append(c.done, taken.root.Close)
	}
	return err
}
