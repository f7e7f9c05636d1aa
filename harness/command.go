package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/workspace"
)

const (
	workspaceDir  = "workspace" // within the volume
	inodeBytes    = 8 << 10     // of a workspace volume, for one inode
	phaseProducer = "producer"
)

// Command is the harness that runs one command of the tester's in the task's
// image.
type Command struct {
	Args     []string
	TaskFile string // relative to the workspace
}

// Produce runs the command on a fresh workspace and takes the candidate when
// every process is dead. The sandbox writes to a volume of its own and never to
// the folder that keeps the result.
func (c Command) Produce(ctx context.Context, e Engine, r Request) (Result, error) {
	vol, err := e.NewVolume(ctx, runtime.VolumeConfig{Bytes: r.WorkspaceBytes, Inodes: r.WorkspaceBytes / inodeBytes})
	if err != nil {
		return Result{}, err
	}
	result, err := c.produce(ctx, e, r, vol)
	return result, errors.Join(err, vol.Close())
}

func (c Command) produce(ctx context.Context, e Engine, r Request, vol runtime.Volume) (Result, error) {
	dir := filepath.Join(vol.Path(), workspaceDir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return Result{}, err
	}
	if err := c.fill(ctx, e, r, dir); err != nil {
		return Result{}, fmt.Errorf("prepare the workspace: %w", err)
	}
	exit, patch, err := c.exec(ctx, e, r, dir)
	if errors.Is(err, runtime.ErrNotStarted) {
		return Result{Failure: &candidate.Failure{Reason: "producer_not_started", Phase: phaseProducer, Message: "the harness command could not be executed in the task's image"}}, nil
	}
	if err != nil {
		return Result{}, err
	}
	return c.finish(ctx, r, dir, exit, patch)
}

// fill puts everything the agent may see into the workspace.
func (c Command) fill(ctx context.Context, e Engine, r Request, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if r.Task.Environment().MaterializeWorkdirFromImage {
		if err := copyWorkdir(ctx, e, r, root); err != nil {
			return fmt.Errorf("copy %s out of image %s: %w", r.Task.Environment().Workdir, r.Image.Ref, err)
		}
	}
	if err := r.Plan.Write(ctx, root, workspace.WriteOptions{MaxBytes: r.WorkspaceBytes}); err != nil {
		return err
	}
	payload, err := r.Task.Payload()
	if err != nil {
		return err
	}
	if err := root.MkdirAll(path.Dir(c.TaskFile), 0o755); err != nil {
		return err
	}
	return root.WriteFile(c.TaskFile, payload, 0o644)
}

// copyWorkdir starts no container: it reads the image's own file system.
func copyWorkdir(ctx context.Context, e Engine, r Request, to *os.Root) error {
	view, err := e.View(ctx, r.Image)
	if err != nil {
		return err
	}
	defer func() { _ = view.Close() }()
	from, err := view.Root().OpenRoot(strings.TrimPrefix(r.Task.Environment().Workdir, "/"))
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	_, err = workspace.CopyTree(ctx, from, to, workspace.TreeOptions{MaxBytes: r.WorkspaceBytes, Preserve: os.Geteuid() == 0})
	return err
}

// patch is what was taken of a repository.
type patch struct {
	text    string
	failure *candidate.Failure
}

// exec runs the command and, of a repository, takes the patch while the stopped
// sandbox is still there.
func (c Command) exec(ctx context.Context, e Engine, r Request, dir string) (runtime.Exit, patch, error) {
	mounts, err := c.mounts(r, dir)
	if err != nil {
		return runtime.Exit{}, patch{}, err
	}
	env := r.Task.Environment()
	cfg := runtime.Config{
		Name: "harness", Image: r.Image, Mounts: mounts, Limits: r.Limits, Workdir: env.Workdir, User: env.User,
		Env: append(environment(env.Env), r.Env...),
	}
	if r.Kind == compiler.CandidatePatch { // the repository lives in the image
		cfg.WritableRoot, cfg.Limits.LayerBytes = true, r.WorkspaceBytes
	}
	box, err := e.Create(ctx, cfg)
	if err != nil {
		return runtime.Exit{}, patch{}, err
	}
	exit, err := box.Exec(ctx, runtime.Process{Args: c.Args, Wall: r.Timeout, OutputBytes: r.OutputBytes})
	var p patch
	if err == nil && r.Kind == compiler.CandidatePatch && failure(r, exit) == nil {
		p.text, p.failure, err = takePatch(ctx, e, r, box, dir)
	}
	return exit, p, errors.Join(err, box.Close(ctx))
}

// mounts shows the workspace, or, in a repository, what lies in it.
func (c Command) mounts(r Request, dir string) ([]runtime.Mount, error) {
	workdir := r.Task.Environment().Workdir
	if r.Kind != compiler.CandidatePatch {
		return append([]runtime.Mount{{Source: dir, Dest: workdir, Writable: true, Give: true}}, readOnlyAssets(r, dir)...), nil
	}
	names, err := topLevel(dir)
	if err != nil {
		return nil, err
	}
	var mounts []runtime.Mount
	for _, name := range names {
		sealed := slices.ContainsFunc(r.Plan.Entries, func(e workspace.Entry) bool { return e.Dest == name && e.ReadOnly })
		mounts = append(mounts, runtime.Mount{Source: filepath.Join(dir, name), Dest: path.Join(workdir, name), Writable: !sealed, Give: true})
	}
	return append(mounts, readOnlyAssets(r, dir)...), nil
}

func topLevel(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// readOnlyAssets are mounted over themselves, so that their owner cannot change
// them either. Those that lie at a mount of their own already are left out.
func readOnlyAssets(r Request, dir string) []runtime.Mount {
	var mounts []runtime.Mount
	for _, entry := range r.Plan.Entries {
		if entry.ReadOnly && (r.Kind != compiler.CandidatePatch || strings.Contains(entry.Dest, "/")) {
			mounts = append(mounts, runtime.Mount{Source: filepath.Join(dir, entry.Dest), Dest: path.Join(r.Task.Environment().Workdir, entry.Dest)})
		}
	}
	return mounts
}

// takePatch compares the repository that the stopped sandbox left with the
// image's.
func takePatch(ctx context.Context, e Engine, r Request, box runtime.Sandbox, dir string) (string, *candidate.Failure, error) {
	env := r.Task.Environment()
	tree, err := box.Path(env.Workdir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &candidate.Failure{Reason: "candidate_missing", Phase: "extraction", Message: env.Workdir + " is no directory any more"}, nil
	}
	if err != nil {
		return "", nil, err
	}
	ours, err := topLevel(dir)
	if err != nil {
		return "", nil, err
	}
	return candidate.ExtractPatch(ctx, e, candidate.PatchSource{
		Image: r.Image, Repo: env.Workdir, Tree: tree, Exclude: ours, User: env.User, Limits: r.Limits, MaxBytes: r.WorkspaceBytes,
	})
}

func environment(vars map[string]string) []string {
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	return env
}

// finish takes the candidate from a workspace that nothing writes any more.
func (c Command) finish(ctx context.Context, r Request, dir string, exit runtime.Exit, p patch) (Result, error) {
	result := Result{Exit: exit, Failure: failure(r, exit)}
	taken, failed, err := candidate.Extract(ctx, candidate.Source{
		Kind: r.Kind, Stdout: exit.Stdout, Workspace: dir, Keep: r.Dest, MaxBytes: r.WorkspaceBytes,
	})
	if result.Failure == nil {
		result.Failure = failed
	}
	if result.Failure == nil {
		result.Failure = p.failure
	}
	taken.Patch = p.text
	result.Candidate = taken
	return result, err
}

// failure says why the way a command ended leaves no candidate. A text or code
// candidate may come from a command that fails afterwards; a workspace may not.
func failure(r Request, exit runtime.Exit) *candidate.Failure {
	switch {
	case exit.Reason == runtime.WallTime:
		return &candidate.Failure{Reason: "producer_timeout", Phase: phaseProducer, Message: fmt.Sprintf("the harness did not end within %s", r.Timeout)}
	case exit.Reason == runtime.OutOfMemory:
		return &candidate.Failure{Reason: "producer_out_of_memory", Phase: phaseProducer, Message: exit.String()}
	case exit.Reason == runtime.PidsLimit:
		return &candidate.Failure{Reason: "producer_pids_limit", Phase: phaseProducer, Message: exit.String()}
	case !exit.Success() && r.Kind == compiler.CandidateWorkspace:
		return &candidate.Failure{Reason: "producer_failed", Phase: phaseProducer, Message: "the harness " + exit.String()}
	}
	return nil
}
