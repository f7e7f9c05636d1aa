package split

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/patch"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/machine"
	"github.com/securebench/sbench/verifiers/repo"
	"github.com/securebench/sbench/verifiers/terminal"
	"github.com/securebench/sbench/workspace"
)

// place makes the sandboxes of a driver, for one kind of candidates.
type place struct {
	engine verifiers.Engine
	in     verifiers.Input
	volume string
	denied *verifiers.Verdict // if the candidate comes into no sandbox
	taken  *capture           // of a candidate for a task of SecureBench 2.0
	done   []func() error     // called afterwards, the last first
}

// Verify has an oracle judge the candidate by what a driver saw it do.
func Verify(ctx context.Context, e verifiers.Engine, in verifiers.Input) (v verifiers.Verdict, err error) {
	vol, err := in.Stage(ctx, e)
	if err != nil {
		return v, err
	}
	p := &place{engine: e, in: in, volume: vol.Path(), done: []func() error{vol.Close}}
	defer func() {
		for _, done := range slices.Backward(p.done) {
			err = errors.Join(err, done())
		}
	}()
	cfg, err := p.candidate(ctx)
	if err != nil {
		return v, fmt.Errorf("prepare the candidate: %w", err)
	}
	if p.denied != nil {
		return *p.denied, nil
	}
	oracle := in.CheckerImage
	if oracle.Ref == "" {
		oracle = in.Image
	}
	var services []service.Service
	if entrypoint := in.Task.Environment().Entrypoint; entrypoint.Args(in.Image.Entrypoint) != nil {
		services = []service.Service{{Args: entrypoint.Args(in.Image.Entrypoint), Ready: entrypoint.Ready.Args(), Wait: cmp.Or(entrypoint.Timeout, service.DefaultWait)}}
	}
	r, err := judge(ctx, e, input{
		Task: in.Task, Pack: in.Pack, Candidate: cfg, Taken: p.taken, Sidecars: in.Sidecars, Services: services, Oracle: oracle, Bytes: in.WorkspaceBytes,
	}, p.control)
	switch {
	case errors.Is(err, runtime.ErrDenied):
		return verifiers.Fail(verifiers.CommandDenied, "the tester file denies a command of the driver or the oracle"), nil
	case err != nil:
		return v, err
	}
	return asVerdict(r), nil
}

func asVerdict(r result) verifiers.Verdict {
	if b := r.Broken; b != nil {
		reason := map[string]string{"driver": "driver_broken", "oracle": "oracle_broken"}[b.Part]
		v := verifiers.Fault(reason, fmt.Sprintf("the %s breaks without the candidate, too: %s", b.Part, b.How))
		if b.ByCandidate {
			v = verifiers.Fail(reason, fmt.Sprintf("the candidate broke the %s, which works without it: %s", b.Part, b.How))
		}
		v.Stdout, v.Stderr = b.Exit.Stdout, b.Exit.Stderr
		return v
	}
	v := verifiers.Verdict{Status: verifiers.Passed, Score: r.Score, Assurance: verifiers.Sealed}
	if !r.Passed {
		v = verifiers.Fail("oracle_rejected", fmt.Sprintf("the oracle does not accept the candidate's answers (score %.3g)", r.Score))
		v.Score = r.Score
	}
	for key, value := range r.Checks {
		v = v.With(key, value)
	}
	if r.Diagnostics != nil {
		v = v.With("diagnostics", r.Diagnostics)
	}
	return v
}

// config returns what the drivers' sandboxes have in common. The driver can run programs as another user, with
// run-candidate, and kill them.
func (p *place) config() (runtime.Config, error) {
	env := p.in.Task.Environment()
	cfg := p.in.Sandbox("driver")
	cfg.Workdir, cfg.IsolateProcesses, cfg.Machine = env.Workdir, true, env.Machine
	cfg.Limits.LayerBytes = p.in.WorkspaceBytes
	cfg.Capabilities = append([]string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL"}, env.Capabilities...)
	if p.in.Task.Verification() != nil {
		cfg.WritableRoot = true
		return cfg, nil
	}
	cfg.Env = append(cfg.Env, "PYTHONNOUSERSITE=1", "PYTHONDONTWRITEBYTECODE=1")
	program, err := os.Executable()
	cfg.Mounts = []runtime.Mount{{Source: program, Dest: "/usr/local/bin/" + machine.RunCandidate}}
	return cfg, err
}

// candidate returns the configuration of a driver's sandbox with the candidate.
func (p *place) candidate(ctx context.Context) (runtime.Config, error) {
	cfg, err := p.config()
	if err != nil {
		return cfg, err
	}
	v := p.in.Task.Verification()
	switch kind := p.in.Task.CandidateKind(); {
	case kind == compiler.CandidateCode:
		return p.withCode(cfg, p.in.Candidate.Text)
	case kind == compiler.CandidatePatch && v == nil:
		return p.withPatch(ctx, cfg)
	case kind == compiler.CandidatePatch:
		return p.withGitPatch(ctx, cfg, v.Candidate)
	case v != nil:
		return p.withBundle(ctx, cfg, v.Candidate)
	}
	in, done, err := terminal.AsLeft(ctx, p.engine, p.in)
	if err != nil {
		return cfg, err
	}
	p.done = append(p.done, done)
	m, done, err := machine.Restore(ctx, p.engine, in, compiler.TerminalTaskOf(in.Task))
	if err != nil {
		return cfg, err
	}
	p.done = append(p.done, done)
	cfg.Image, cfg.ReadOnly = m.Image, m.Sealed
	return p.withWorkspace(cfg, in.Candidate.Workspace), nil
}

// control returns the configuration of a driver's sandbox with what candidates begin with.
func (p *place) control(ctx context.Context) (runtime.Config, error) {
	cfg, err := p.config()
	if err != nil {
		return cfg, err
	}
	switch kind := p.in.Task.CandidateKind(); {
	case kind == compiler.CandidateCode:
		return p.withCode(cfg, compiler.CodeCompletionOf(p.in.Task).StarterCode)
	case kind == compiler.CandidatePatch, p.in.Task.Verification() != nil: // the image has it
		cfg.WritableRoot = true
		return cfg, nil
	}
	dir := filepath.Join(p.volume, "control")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return cfg, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return cfg, err
	}
	defer func() { _ = root.Close() }()
	if env := p.in.Task.Environment(); env.MaterializeWorkdirFromImage || env.Machine {
		if err := p.copyWorkdir(ctx, root); err != nil {
			return cfg, err
		}
	}
	plan, err := workspace.PlanAgent(p.in.Task, p.in.Pack)
	if err == nil {
		err = plan.Write(ctx, root, workspace.WriteOptions{MaxBytes: p.in.WorkspaceBytes})
	}
	return p.withWorkspace(cfg, dir), err
}

// copyWorkdir copies the working directory of the task's image, if it has one.
func (p *place) copyWorkdir(ctx context.Context, to *os.Root) (err error) {
	view, err := p.engine.View(ctx, p.in.Image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	from, err := view.Root().OpenRoot(strings.TrimPrefix(p.in.Task.Environment().Workdir, "/"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	_, err = workspace.CopyTree(ctx, from, to, workspace.TreeOptions{MaxBytes: p.in.WorkspaceBytes, Preserve: os.Geteuid() == 0})
	return err
}

func (p *place) withWorkspace(cfg runtime.Config, dir string) runtime.Config {
	cfg.Mounts = append([]runtime.Mount{{Source: dir, Dest: cfg.Workdir, Copy: true}}, cfg.Mounts...)
	return cfg
}

// withCode puts code into its file in a workspace of its own.
func (p *place) withCode(cfg runtime.Config, code string) (runtime.Config, error) {
	dir, err := os.MkdirTemp(p.volume, "code-")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, p.in.Task.CodeFile()), []byte(code), 0o755))
	}
	return p.withWorkspace(cfg, dir), err
}

// withPatch applies the patch to the image's repository, in a sandbox on which the drivers' are based.
func (p *place) withPatch(ctx context.Context, cfg runtime.Config) (runtime.Config, error) {
	base, v, err := repo.Apply(ctx, p.engine, p.in, p.volume)
	if err != nil {
		return cfg, err
	}
	if v.Status != verifiers.Passed {
		p.denied = &v
		return cfg, nil
	}
	p.done = append(p.done, func() error { return base.Close(ctx) })
	cfg.Base, cfg.WritableRoot = base, true
	return cfg, nil
}

// withBundle puts the entries of a bundle over the image.
func (p *place) withBundle(ctx context.Context, cfg runtime.Config, spec compiler.BundleOrPatch) (_ runtime.Config, err error) {
	in, done, err := terminal.AsLeft(ctx, p.engine, p.in)
	if err != nil {
		return cfg, err
	}
	p.done = append(p.done, done)
	p.taken = &capture{entries: spec.Files, workdir: strings.TrimPrefix(cfg.Workdir, "/")}
	over := filepath.Join(p.volume, "over")
	if err := os.MkdirAll(over, 0o755); err != nil {
		return cfg, err
	}
	view, err := p.engine.View(ctx, in.Image)
	if err != nil {
		return cfg, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	from, err := os.OpenRoot(in.Candidate.Workspace)
	if err != nil {
		return cfg, err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenRoot(over)
	if err != nil {
		return cfg, err
	}
	defer func() { _ = to.Close() }()
	var wrong *errTaken
	err = p.taken.take(from, to, view.Root())
	if errors.As(err, &wrong) {
		p.taken.failed = &wrong.failure
		return cfg, nil
	}
	if err != nil {
		return cfg, err
	}
	cfg.Image.UpperDir = over
	return cfg, p.open(filepath.Join(over, p.taken.workdir))
}

// open opens the files that were taken, and takes their digest.
func (p *place) open(dir string) (err error) {
	if p.taken.root, err = os.OpenRoot(dir); err != nil {
		return err
	}
	p.done = append(p.done, p.taken.root.Close)
	var all []node
	for _, e := range p.taken.entries {
		a := artifact{root: p.taken.root, name: p.taken.relative(e.Path)}
		if err := visit(a.root, a.name, e.Kind, compiler.ArtifactLimits{MaxBytes: math.MaxInt64, MaxFiles: math.MaxInt64, MaxTotalBytes: math.MaxInt64}, true, a.add); err != nil {
			return err
		}
		if all = append(all, a.nodes...); e.Kind == compiler.RegularFile {
			all = append(all, node{Path: e.Path, Kind: e.Kind, Size: &a.size, Blob: digest(a.content)})
		}
	}
	text, err := canonical(all)
	p.taken.digest = digest(text)
	return err
}

// withGitPatch applies what a patch may change.
func (p *place) withGitPatch(ctx context.Context, cfg runtime.Config, spec compiler.BundleOrPatch) (runtime.Config, error) {
	p.taken = &capture{digest: digest([]byte(p.in.Candidate.Patch))}
	kept, err := spec.Kept(p.in.Candidate.Patch)
	if err != nil {
		p.taken.failed = &failure{Code: "patch_refused", Message: err.Error()}
		return cfg, nil
	}
	p.in.Candidate.Patch = kept
	if cfg, err = p.withPatch(ctx, cfg); err != nil || p.denied != nil && p.denied.Status == verifiers.Faulty {
		return cfg, err
	}
	if p.denied != nil {
		p.taken.failed, p.denied = &failure{Code: "patch_refused", Message: p.denied.Message}, nil
		return cfg, nil
	}
	dir, err := cfg.Base.Path(cfg.Workdir)
	if err == nil {
		err = p.open(dir)
	}
	if err != nil {
		return cfg, err
	}
	files, _ := patch.Parse(kept) // Kept has parsed it
	left := spec.MaxChangedBytes
	for _, f := range files {
		if info, err := p.taken.root.Lstat(f.New); f.New != "" && err == nil {
			left -= info.Size()
		}
	}
	if left < 0 {
		p.taken.failed = &failure{Code: "patch_refused", Message: fmt.Sprintf("the changed files have more than %d bytes", spec.MaxChangedBytes)}
	}
	return cfg, nil
}
