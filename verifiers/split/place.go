package split

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/securebench"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
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

// config returns what the drivers' sandboxes have in common. run-candidate runs programs as another user.
func (c *check) config(ctx context.Context) (runtime.Config, error) {
	env := c.in.Task.Environment()
	cfg := c.in.Sandbox(driverDir)
	cfg.Workdir, cfg.IsolateProcesses, cfg.Machine, cfg.Mounts = env.Workdir, true, env.Machine, c.mounts
	cfg.Limits.LayerBytes = c.in.WorkspaceBytes
	cfg.Capabilities = append([]string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL"}, env.Capabilities...)
	if c.in.Task.Verification() != nil {
		var err error
		cfg.WritableRoot, cfg.SealOutput = true, true
		cfg.ReadOnly, err = c.sealed(ctx, env.Workdir)
		return cfg, err
	}
	cfg.Env = append(cfg.Env, "PYTHONNOUSERSITE=1", "PYTHONDONTWRITEBYTECODE=1")
	own, err := service.MountCandidate()
	cfg.Mounts = append([]runtime.Mount{own}, c.mounts...)
	return cfg, err
}

// sealed returns what nothing may change in a sandbox of SecureBench 2.0: all that the image has beside the way to the
// workdir. What an adapter executes after the candidate is the image's.
func (c *check) sealed(ctx context.Context, workdir string) (all []string, err error) {
	view, err := c.engine.View(ctx, c.in.Image)
	if err != nil {
		return nil, err
	}
	at := "."
	for name := range strings.SplitSeq(strings.TrimPrefix(workdir, "/"), "/") {
		entries, _ := fs.ReadDir(view.Root().FS(), at) // the image may have no such directory
		for _, e := range entries {
			p := path.Join("/", at, e.Name())
			if e.Name() != name && e.Type()&fs.ModeSymlink == 0 && !slices.Contains([]string{"/dev", "/proc", "/run", "/sys", "/tmp"}, p) {
				all = append(all, p)
			}
		}
		at = path.Join(at, name)
	}
	return all, view.Close()
}

// candidate brings the candidate to its place. The error may be a denied.
func (c *check) candidate(ctx context.Context) (s subject, err error) {
	if s.config, err = c.config(ctx); err != nil {
		return s, err
	}
	kind := c.in.Task.Family().CandidateKind
	if v := c.in.Task.Verification(); v != nil {
		s.taken = &capture{entries: v.Candidate.Files, workdir: strings.TrimPrefix(s.config.Workdir, "/"), python: c.python}
		if kind == compiler.CandidatePatch {
			err = c.withGitPatch(ctx, &s, v.Candidate)
		} else {
			err = c.withBundle(ctx, &s)
		}
		if errors.As(err, &s.taken.failed) {
			err = nil
		}
		return s, err
	}
	switch kind {
	case compiler.CandidateCode:
		return s, c.withCode(&s.config, family.CodeCompletionOf(c.in.Task).Written(c.in.Candidate.Text))
	case compiler.CandidatePatch:
		return s, c.withPatch(ctx, &s.config, c.in.Candidate.Patch)
	}
	in, done, err := terminal.AsLeft(ctx, c.engine, c.in, true)
	if err != nil {
		return s, err
	}
	c.done = append(c.done, done)
	m, done, err := machine.Restore(ctx, c.engine, in, family.TerminalTaskOf(in.Task))
	if err != nil {
		return s, err
	}
	c.done = append(c.done, done)
	s.config.Image, s.config.ReadOnly = m.Image, m.Sealed
	withWorkspace(&s.config, in.Candidate.Workspace, !in.Candidate.HasOwners())
	return s, nil
}

// control returns the configuration of a driver's sandbox with what candidates begin with.
func (c *check) control(ctx context.Context) (runtime.Config, error) {
	cfg, err := c.config(ctx)
	if err != nil {
		return cfg, err
	}
	switch kind := c.in.Task.Family().CandidateKind; {
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
		withWorkspace(&cfg, dir, true)
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return cfg, err
	}
	plan, err := workspace.PlanAgent(c.in.Task, c.in.Pack)
	if err != nil {
		return cfg, err
	}
	return cfg, plan.WriteDir(ctx, at, c.in.WorkspaceBytes)
}

// withWorkspace mounts a copy of a workspace. own says that its top directory becomes the user's.
func withWorkspace(cfg *runtime.Config, dir string, own bool) {
	cfg.Mounts = append([]runtime.Mount{{Source: dir, Dest: cfg.Workdir, Copy: true, Chown: own}}, cfg.Mounts...)
}

// withCode puts code into its file in a workspace of its own.
func (c *check) withCode(cfg *runtime.Config, code string) error {
	dir, err := os.MkdirTemp(c.volume, "code-")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, c.in.Task.AgentView().CodeFile), []byte(code), 0o755))
	}
	withWorkspace(cfg, dir, true)
	return err
}

// withPatch applies the patch in a sandbox on which the drivers' are based. The error may be a denied.
func (c *check) withPatch(ctx context.Context, cfg *runtime.Config, patch string) error {
	in := c.in
	in.Candidate.Patch = patch
	base, v, err := repo.Apply(ctx, c.engine, in, filepath.Join(c.volume, candidateDir))
	switch {
	case err != nil:
		return err
	case v.Status != verifiers.Passed:
		return &denied{v}
	}
	c.done = append(c.done, func() error { return base.Close(ctx) })
	cfg.Base, cfg.WritableRoot = base, true
	return nil
}

// withGitPatch applies what a patch may change. The error may be a failure or a denied.
func (c *check) withGitPatch(ctx context.Context, s *subject, spec securebench.Candidate) error {
	s.taken.digest = digest([]byte(c.in.Candidate.Patch))
	kept, changed, err := spec.Kept(c.in.Candidate.Patch)
	if err != nil {
		return refuse("patch_refused", "%v", err)
	}
	err = c.withPatch(ctx, &s.config, kept)
	if early := (*denied)(nil); errors.As(err, &early) && early.Status == verifiers.Failed {
		return refuse("patch_refused", "%s", early.Message)
	}
	if err != nil {
		return err
	}
	dir, err := s.config.Base.Path(s.config.Workdir)
	if err != nil {
		return err
	}
	if s.taken.root, err = os.OpenRoot(dir); err != nil {
		return err
	}
	c.done = append(c.done, s.taken.root.Close)
	left := spec.MaxChangedBytes
	for _, name := range changed {
		if info, err := s.taken.root.Lstat(name); err == nil {
			left -= info.Size()
		}
	}
	if left < 0 {
		return refuse("patch_refused", "the changed files have more than %d bytes", spec.MaxChangedBytes)
	}
	return nil
}

// withBundle puts the entries of a bundle from the workspace over the image. The error may be a failure.
func (c *check) withBundle(ctx context.Context, s *subject) (err error) {
	in, done, err := terminal.AsLeft(ctx, c.engine, c.in, true)
	if err != nil {
		return err
	}
	c.done = append(c.done, done)
	view, err := c.engine.View(ctx, c.in.Image)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(view.Close(), err) }()
	from, err := os.OpenRoot(in.Candidate.Workspace)
	if err != nil {
		return err
	}
	c.done = append(c.done, from.Close)
	s.config.Image.UpperDir = filepath.Join(c.volume, candidateDir)
	over, err := os.OpenRoot(s.config.Image.UpperDir)
	if err != nil {
		return err
	}
	c.done = append(c.done, over.Close)
	if err := s.taken.take(from, over, view.Root()); err != nil {
		return err
	}
	if s.taken.root, err = over.OpenRoot(s.taken.workdir); err != nil {
		return err
	}
	c.done = append(c.done, s.taken.root.Close)
	report, err := workspace.DigestTree(ctx, s.taken.root, workspace.TreeOptions{})
	s.taken.digest = report.Digest
	return err
}
