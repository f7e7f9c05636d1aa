package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
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
	// ArtifactPath holds the candidate, relative to the workspace; empty means
	// the kind's default. See candidate.Source.
	ArtifactPath string
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
	exit, err := c.exec(ctx, e, r, dir)
	if errors.Is(err, runtime.ErrNotStarted) {
		return Result{Failure: &candidate.Failure{Reason: "producer_not_started", Phase: phaseProducer, Message: "the harness command could not be executed in the task's image"}}, nil
	}
	if err != nil {
		return Result{}, err
	}
	return c.finish(ctx, r, dir, exit)
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

// exec runs the command. Read-only assets are mounted over themselves, so that
// their owner cannot change them either.
func (c Command) exec(ctx context.Context, e Engine, r Request, dir string) (runtime.Exit, error) {
	mounts := []runtime.Mount{{Source: dir, Dest: r.Task.Environment().Workdir, Writable: true, Give: true}}
	for _, entry := range r.Plan.Entries {
		if entry.ReadOnly {
			mounts = append(mounts, runtime.Mount{Source: filepath.Join(dir, entry.Dest), Dest: path.Join(r.Task.Environment().Workdir, entry.Dest)})
		}
	}
	box, err := e.Create(ctx, runtime.Config{
		Name: "harness", Image: r.Image, Mounts: mounts, Limits: r.Limits,
		WritableRoot: r.Kind == compiler.CandidatePatch, // the repository lives in the image
		Workdir:      r.Task.Environment().Workdir, User: r.Task.Environment().User,
		Env: append(environment(r.Task.Environment().Env), r.Env...),
	})
	if err != nil {
		return runtime.Exit{}, err
	}
	exit, err := box.Exec(ctx, runtime.Process{Args: c.Args, Wall: r.Timeout, OutputBytes: r.OutputBytes})
	return exit, errors.Join(err, box.Close(ctx))
}

func environment(vars map[string]string) []string {
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	return env
}

// finish takes the candidate from a workspace that nothing writes any more.
func (c Command) finish(ctx context.Context, r Request, dir string, exit runtime.Exit) (Result, error) {
	result := Result{Exit: exit, Failure: failure(r, exit)}
	taken, failed, err := candidate.Extract(ctx, candidate.Source{
		Kind: r.Kind, Stdout: exit.Stdout, File: c.ArtifactPath, Workspace: dir, Keep: r.Dest, MaxBytes: r.WorkspaceBytes,
	})
	if result.Failure == nil {
		result.Failure = failed
	}
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
