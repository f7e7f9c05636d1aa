package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/workspace"
)

const (
	codeFile      = "candidate.py"
	maxCodeBytes  = 4 << 20
	workspaceDir  = "workspace" // within the volume
	inodeBytes    = 8 << 10     // of a workspace volume, for one inode
	phaseProducer = "producer"
	phaseExtract  = "extraction"
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
	exit, err := c.exec(ctx, e, r, dir)
	if errors.Is(err, runtime.ErrNotStarted) {
		return Result{Failure: &Failure{"producer_not_started", phaseProducer, "the harness command could not be executed in the task's image"}}, nil
	}
	if err != nil {
		return Result{}, err
	}
	return extract(ctx, r, dir, exit)
}

// fill puts everything the agent may see into the workspace.
func (c Command) fill(ctx context.Context, e Engine, r Request, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if r.Environment.MaterializeWorkdirFromImage {
		if err := copyWorkdir(ctx, e, r, root); err != nil {
			return fmt.Errorf("copy %s out of image %s: %w", r.Workdir(), r.Image.Ref, err)
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
	from, err := view.Root().OpenRoot(strings.TrimPrefix(r.Workdir(), "/"))
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
	mounts := []runtime.Mount{{Source: dir, Dest: r.Workdir(), Writable: true, Give: true}}
	for _, entry := range r.Plan.Entries {
		if entry.ReadOnly {
			mounts = append(mounts, runtime.Mount{Source: filepath.Join(dir, entry.Dest), Dest: path.Join(r.Workdir(), entry.Dest)})
		}
	}
	box, err := e.Create(ctx, runtime.Config{
		Name: "harness", Image: r.Image, Mounts: mounts, Limits: r.Limits,
		WritableRoot: r.Kind == compiler.PatchCandidate, // the repository lives in the image
		Workdir:      r.Workdir(), User: r.Environment.User,
		Env: append(environment(r.Environment.Env), r.Env...),
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

// extract takes the candidate from a workspace that nothing writes any more.
func extract(ctx context.Context, r Request, dir string, exit runtime.Exit) (Result, error) {
	result := Result{Exit: exit, Failure: failure(r, exit)}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return result, err
	}
	defer func() { _ = root.Close() }()
	if result.Failure == nil {
		result.Failure = takeText(r, root, exit, &result.Candidate)
	}
	failed, err := keep(ctx, r, root, &result.Candidate)
	if result.Failure == nil {
		result.Failure = failed
	}
	return result, err
}

// failure says why the way a command ended leaves no candidate. A text or code
// candidate may come from a command that fails afterwards; a workspace may not.
func failure(r Request, exit runtime.Exit) *Failure {
	switch {
	case exit.Reason == runtime.WallTime:
		return &Failure{"producer_timeout", phaseProducer, fmt.Sprintf("the harness did not end within %s", r.Timeout)}
	case exit.Reason == runtime.OutOfMemory:
		return &Failure{"producer_out_of_memory", phaseProducer, exit.String()}
	case exit.Reason == runtime.PidsLimit:
		return &Failure{"producer_pids_limit", phaseProducer, exit.String()}
	case !exit.Success() && r.Kind == compiler.WorkspaceCandidate:
		return &Failure{"producer_failed", phaseProducer, "the harness " + exit.String()}
	}
	return nil
}

// takeText fills in a text or code candidate.
func takeText(r Request, root *os.Root, exit runtime.Exit, c *Candidate) *Failure {
	switch r.Kind {
	case compiler.TextCandidate:
		if exit.Stdout.Cut() > 0 {
			return &Failure{"candidate_too_big", phaseExtract, fmt.Sprintf("the answer on standard output is longer than %d bytes", r.OutputBytes)}
		}
		return setText(c, exit.Stdout.Bytes(), "standard output")
	case compiler.CodeCandidate:
		code, err := readBounded(root, codeFile)
		if err != nil {
			return &Failure{"candidate_missing", phaseExtract, fmt.Sprintf("%s is no readable regular file of at most %d bytes", codeFile, maxCodeBytes)}
		}
		return setText(c, code, codeFile)
	}
	return nil
}

func setText(c *Candidate, text []byte, where string) *Failure {
	if !utf8.Valid(text) {
		return &Failure{"candidate_not_utf8", phaseExtract, where + " is not valid UTF-8"}
	}
	c.Text = string(text)
	return nil
}

var errNotRegular = errors.New("not a regular file of acceptable size")

// readBounded follows no link and opens no fifo for waiting.
func readBounded(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxCodeBytes {
		return nil, errNotRegular
	}
	return io.ReadAll(io.LimitReader(f, maxCodeBytes))
}

// keep copies the workspace to where it stays.
func keep(ctx context.Context, r Request, from *os.Root, c *Candidate) (*Failure, error) {
	to, err := os.OpenRoot(r.Dest)
	if err != nil {
		return nil, err
	}
	defer func() { _ = to.Close() }()
	report, err := workspace.CopyTree(ctx, from, to, workspace.TreeOptions{MaxBytes: r.WorkspaceBytes, Preserve: os.Geteuid() == 0})
	if errors.Is(err, workspace.ErrTooBig) {
		return &Failure{"candidate_too_big", phaseExtract, err.Error()}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("keep the workspace: %w", err)
	}
	c.Workspace, c.Digest, c.Dropped = r.Dest, report.Digest, report.Dropped
	return nil, nil
}
