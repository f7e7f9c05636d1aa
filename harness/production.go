package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/workspace"
	"github.com/securebench/sbench/workspace/foreign"
)

// taskFileVariable is the variable with the path of the task file.
const taskFileVariable = "SBENCH_TASK_FILE"

// SandboxName is the name of the sandbox in which a harness works.
const SandboxName = "harness"

const (
	workspaceDir  = "workspace" // within the volume
	stateDir      = "state"     // within the volume
	taskDir       = "task"      // within the volume, for paths.TaskMount
	outsideDir    = "outside"   // within the volume, for public files outside the workspace
	excludeFile   = "exclude"   // within the volume, for gitExclude
	gitExclude    = ".git/info/exclude"
	maxExclude    = 1 << 20 // bytes of that file in the image
	inodeBytes    = 8 << 10 // of a workspace volume, per inode
	phaseProducer = "producer"
	// PrepareFailed is the reason if environment.prepare failed.
	PrepareFailed = "prepare_failed"
)

// production is one run of a harness, the path that all producers share. It fills a fresh workspace,
// runs one process in a sandbox, and extracts the candidate once every process is dead. The sandbox
// writes to a volume, never to the directory that receives the result.
type production struct {
	engine  Engine
	request Request

	taskFile   string // relative to the workspace or, for a machine, to paths.TaskMount
	textFile   string // receives a text candidate, relative to the workspace; "" is standard output
	process    runtime.Process
	writable   bool              // the process may change the image's files; for a repository it always may
	stateAt    string            // where a fresh, writable directory is mounted for the process's state; "" for none
	stateFiles map[string]string // contents by path below stateAt
	env        []string          // NAME=value, over the task's
	mounts     []runtime.Mount
	session    *egressSession // the network access; the caller closes it
	given      bool           // all files of the workspace have owners, from the image or the step before
}

// run produces the candidate, however the process ends. It extracts a patch and a machine's layer
// before it closes the stopped sandbox.
func (p production) run(ctx context.Context) (result Result, err error) {
	r := p.request
	vol, err := p.engine.NewVolume(ctx, runtime.VolumeConfig{Bytes: r.WorkspaceBytes, Inodes: r.WorkspaceBytes / inodeBytes})
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, vol.Close()) }()
	if err := p.mountOutside(ctx, vol); err != nil {
		return Result{}, err
	}
	r = p.request
	dir := filepath.Join(vol.Path(), workspaceDir)
	err = errors.Join(p.makeState(vol), p.fill(ctx, dir))
	switch {
	case r.Before != nil && inTheWay(err):
		return Result{Failure: &candidate.Failure{Reason: "step_blocked", Phase: phaseProducer, Message: "what the step before left has no room, or no place, for the files of this step"}}, nil
	case err != nil:
		return Result{}, fmt.Errorf("prepare the workspace: %w", err)
	}
	if r.Before != nil {
		machine, done, restoreErr := r.Before.Machine(ctx, p.engine, r.Image, r.WorkspaceBytes, nil)
		if restoreErr != nil {
			return Result{}, fmt.Errorf("restore the machine: %w", restoreErr)
		}
		defer func() { err = errors.Join(err, done()) }()
		r.Image, p.request.Image = machine, machine
	}
	places, err := repositoryPlaces(ctx, p.engine, r, dir)
	if err != nil {
		return Result{}, err
	}
	cfg := p.config(dir, places)
	if p.process.Args, err = service.Beside(r.services(), p.process.Args, &cfg); err != nil {
		return Result{}, err
	}
	sandbox, err := service.Create(ctx, p.engine, cfg, r.Sidecars)
	if err != nil {
		return Result{}, err
	}
	result, err = p.exec(ctx, sandbox, dir, places)
	switch err = errors.Join(err, sandbox.Close(ctx)); {
	case errors.Is(err, runtime.ErrNotStarted):
		return Result{Failure: &candidate.Failure{Reason: "producer_not_started", Phase: phaseProducer, Message: "the harness command could not be executed in the task's image"}}, nil
	case err != nil:
		return Result{}, err
	case r.Task.Environment.KeepProcesses:
		return result, nil
	}
	return p.finish(ctx, dir, result)
}

// exec runs the process, and takes a patch and a machine's layer from the stopped sandbox. If processes are kept, it
// also extracts the workspace and has the candidate judged, while the processes are suspended.
func (p production) exec(ctx context.Context, sandbox runtime.Sandbox, dir string, places []string) (result Result, err error) {
	r, keeps := p.request, p.request.Task.Environment.KeepProcesses
	p.process.Wall, p.process.Waited, p.process.OutputBytes = r.Timeout, p.session.waited(), r.OutputBytes
	result.Exit, err = sandbox.Exec(ctx, p.process)
	result.Ended = ended(r, result.Exit)
	if !keeps {
		err = errors.Join(err, service.End(ctx, sandbox))
	}
	if err == nil && r.Kind == compiler.CandidatePatch {
		result.Candidate.Patch, result.Candidate.Dropped, result.Failure, err = takePatch(ctx, p.engine, r, sandbox, places)
	}
	if err == nil && r.Task.Environment.Machine {
		result.Failure, err = result.Candidate.WriteLayer(ctx, sandbox, r.Dest, r.WorkspaceBytes)
	}
	if err != nil || !keeps {
		return result, err
	}
	if result, err = p.finish(ctx, dir, result); err != nil {
		return result, err
	}
	if err := p.session.cut(); err != nil {
		return result, err
	}
	return result, r.Judge(result, sandbox)
}

// mountOutside mounts the public files whose places are not in the workspace, read-only.
func (p *production) mountOutside(ctx context.Context, vol runtime.Volume) error {
	inside, outside := p.request.Plan.Outside()
	p.request.Plan = inside
	if len(outside.Entries) == 0 {
		return nil
	}
	at := filepath.Join(vol.Path(), outsideDir)
	for _, e := range outside.Entries {
		p.mounts = append(p.mounts, runtime.Mount{Source: filepath.Join(at, e.Dest), Dest: "/" + e.Dest})
	}
	return errors.Join(os.Mkdir(at, 0o755), outside.WriteDir(ctx, at, p.request.WorkspaceBytes))
}

// makeState makes the directory for the process's state, if it gets one.
func (p production) makeState(vol runtime.Volume) error {
	if p.stateAt == "" {
		return nil
	}
	dir := filepath.Join(vol.Path(), stateDir)
	err := os.Mkdir(dir, 0o755)
	for name, text := range p.stateFiles {
		to := filepath.Join(dir, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(text), 0o644))
	}
	return err
}

// fill makes the workspace and puts everything into it that the agent may see.
func (p *production) fill(ctx context.Context, dir string) error {
	r := p.request
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if env := r.Task.Environment; r.Before != nil {
		if err := restoreWorkspace(ctx, r, root); err != nil {
			return err
		}
		p.given = true
	} else if env.MaterializeWorkdirFromImage || env.Machine {
		err := copyWorkdir(ctx, p.engine, r, root)
		if err != nil && (!env.Machine && !env.SecureBench || !errors.Is(err, fs.ErrNotExist)) { // a machine's image may have no such directory
			return fmt.Errorf("copy %s out of image %s: %w", r.Task.Environment.Workdir, r.Image.Ref, err)
		}
		p.given = env.Machine && err == nil
	}
	own, assets := root, r.Plan
	if r.Task.Environment.Machine {
		at := filepath.Join(filepath.Dir(dir), taskDir)
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		if own, err = os.OpenRoot(at); err != nil {
			return err
		}
		defer func() { _ = own.Close() }()
		var public workspace.Plan
		public, assets = r.Plan.Split()
		if err := public.Write(ctx, own, r.WorkspaceBytes); err != nil {
			return err
		}
	}
	p.given = p.given && len(assets.Entries) == 0
	if err := assets.Write(ctx, root, r.WorkspaceBytes); err != nil {
		return err
	}
	if err := own.MkdirAll(path.Dir(p.taskFile), 0o755); err != nil {
		return err
	}
	return own.WriteFile(p.taskFile, r.Task.Payload(), 0o644)
}

func restoreWorkspace(ctx context.Context, r Request, to *os.Root) error {
	tree, err := r.Before.StoredTree()
	if err != nil {
		return err
	}
	defer func() { _ = tree.Root.Close() }()
	_, err = tree.Restore(ctx, to, workspace.TreeOptions{MaxBytes: r.WorkspaceBytes})
	return err
}

// inTheWay reports whether a workspace could not be filled because of what is there already.
func inTheWay(err error) bool {
	return errors.Is(err, workspace.ErrTooBig) ||
		slices.ContainsFunc([]error{unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.EEXIST, unix.ENOTEMPTY, unix.ENOSPC, unix.EDQUOT}, func(no error) bool { return errors.Is(err, no) })
}

// services returns what runs beside the process, or before it: the entry point of the image, if the task
// wants it, and what prepares the task.
func (r Request) services() (all []service.Service) {
	env := r.Task.Environment
	if args, ready := env.Entrypoint.Of(r.Image.Entrypoint, r.Image.Health); args != nil {
		all = append(all, service.Service{Args: args, Ready: ready, Wait: cmp.Or(env.Entrypoint.Timeout, r.Image.HealthWait), User: r.entrypointUser()})
	}
	if !env.Prepare.IsZero() {
		all = append(all, service.Service{Args: env.Prepare.Args(), Once: true})
	}
	return all
}

// entrypointUser returns the user of the image's entry point if the harness has another one and the task has the
// capabilities to change users; "" otherwise.
func (r Request) entrypointUser() string {
	env := r.Task.Environment
	for _, needed := range []string{"CAP_CHOWN", "CAP_SETGID", "CAP_SETUID"} {
		if env.HarnessUser == "" || !slices.Contains(env.Capabilities, needed) {
			return ""
		}
	}
	return cmp.Or(env.User, r.Image.User, "0")
}

func (r Request) taskPath(taskFile string) string {
	env := r.Task.Environment
	if env.Machine {
		return path.Join(paths.TaskMount, taskFile)
	}
	return path.Join(env.Workdir, taskFile)
}

// copyWorkdir copies the image's working directory, without a container.
func copyWorkdir(ctx context.Context, e Engine, r Request, to *os.Root) error {
	view, err := e.View(ctx, r.Image)
	if err != nil {
		return err
	}
	defer func() { _ = view.Close() }()
	from, err := view.Root().OpenRoot(workspace.InImage(view.Root(), r.Task.Environment.Workdir))
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	_, err = workspace.CopyTree(ctx, from, to, workspace.TreeOptions{MaxBytes: r.WorkspaceBytes})
	return err
}

// config returns the configuration of the sandbox, which mounts the workspace dir.
func (p production) config(dir string, places []string) runtime.Config {
	r, env := p.request, p.request.Task.Environment
	mounts := slices.Concat(workspaceMounts(r, dir, places, !p.given), p.session.mounts(), p.mounts)
	if env.Machine {
		mounts = append(mounts, runtime.Mount{Source: filepath.Join(filepath.Dir(dir), taskDir), Dest: paths.TaskMount})
	}
	if p.stateAt != "" {
		mounts = append(mounts, runtime.Mount{Source: filepath.Join(filepath.Dir(dir), stateDir), Dest: p.stateAt, Writable: true, Chown: true})
	}
	cfg := runtime.Config{
		Name: SandboxName, Image: r.Image, Mounts: mounts, Limits: r.Limits, Workdir: env.Dir(), User: env.Harness(),
		Env: slices.Concat(environment.Environ(env.Env), []string{taskFileVariable + "=" + r.taskPath(p.taskFile)}, p.session.env(), p.env), Network: p.session.network(), Machine: env.Machine, Capabilities: env.Capabilities,
		KeepProcesses: env.KeepProcesses,
	}
	if p.writable || r.Kind == compiler.CandidatePatch || env.Machine { // a repository is in the image
		cfg.WritableRoot, cfg.Limits.LayerBytes = true, r.WorkspaceBytes
	}
	return cfg
}

// workspaceMounts mounts the workspace at the working directory. If the candidate is a patch, the
// working directory is a repository: then each place of the workspace has a mount of its own, and
// hides no directory of the repository. own says that the workspace becomes the user's.
func workspaceMounts(r Request, dir string, places []string, own bool) []runtime.Mount {
	workdir := r.Task.Environment.Workdir
	mounts := []runtime.Mount{{Source: dir, Dest: workdir, Writable: true, Chown: own}}
	if r.Kind == compiler.CandidatePatch {
		mounts = nil
		for _, name := range places {
			sealed := slices.ContainsFunc(r.Plan.Entries, func(e workspace.Entry) bool { return e.ReadOnly && paths.IsBelow(name, e.Dest) })
			mounts = append(mounts, runtime.Mount{Source: filepath.Join(dir, name), Dest: path.Join(workdir, name), Writable: !sealed, Chown: true})
		}
		exclude := filepath.Join(filepath.Dir(dir), excludeFile)
		if _, err := os.Lstat(exclude); err == nil {
			mounts = append(mounts, runtime.Mount{Source: exclude, Dest: path.Join(workdir, gitExclude), Writable: true, Chown: true})
		}
	}
	// Read-only assets are mounted over themselves, so that even their owner cannot change them.
	for _, e := range r.Plan.Entries {
		if e.ReadOnly && !slices.ContainsFunc(places, func(name string) bool { return paths.IsBelow(name, e.Dest) }) {
			mounts = append(mounts, runtime.Mount{Source: filepath.Join(dir, e.Dest), Dest: path.Join(workdir, e.Dest)})
		}
	}
	return mounts
}

// repositoryPlaces returns the paths, relative to the repository, at which to mount the entries of
// dir; none unless the candidate is a patch. It returns an error if the sandbox's user cannot write
// to the repository.
func repositoryPlaces(ctx context.Context, e Engine, r Request, dir string) ([]string, error) {
	if r.Kind != compiler.CandidatePatch {
		return nil, nil
	}
	view, err := e.View(ctx, r.Image)
	if err != nil {
		return nil, err
	}
	env := r.Task.Environment
	err = candidate.CheckOwner(view.Root(), env.Workdir, cmp.Or(env.User, r.Image.User))
	places, placesErr := workspace.Places(dir, view.Root(), env.Workdir)
	excludeErr := writeExclude(view.Root(), env.Workdir, places, filepath.Join(filepath.Dir(dir), excludeFile))
	return places, errors.Join(err, placesErr, excludeErr, view.Close())
}

// writeExclude writes the repository's own file of excluded paths with the places, so that git does not stash,
// commit and remove the task's files with the agent's work. It writes none if the image has no such directory.
func writeExclude(root *os.Root, workdir string, places []string, to string) error {
	at := workspace.InImage(root, path.Join(workdir, gitExclude))
	if info, err := root.Lstat(path.Dir(at)); err != nil || !info.IsDir() {
		return nil
	}
	text, err := foreign.Read(root, at, maxExclude)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.WriteFile(to, append(text, "\n/"+strings.Join(places, "\n/")+"\n"...), 0o644)
}

// takePatch compares the repository in the stopped sandbox with the image's.
func takePatch(ctx context.Context, e Engine, r Request, sandbox runtime.Sandbox, places []string) (string, []string, *candidate.Failure, error) {
	env := r.Task.Environment
	_, err := sandbox.Path(env.Workdir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, &candidate.Failure{Reason: "candidate_missing", Phase: "extraction", Message: env.Workdir + " is no directory any more"}, nil
	}
	if err != nil {
		return "", nil, nil, err
	}
	return candidate.ExtractPatch(ctx, e, candidate.PatchSource{
		Image: r.Image, Repo: env.Workdir, Left: sandbox, Exclude: places, Ignored: env.SecureBench, User: env.User, Limits: r.Limits, MaxBytes: r.WorkspaceBytes,
	})
}

// finish extracts the candidate from a workspace that nothing writes to any more.
func (p production) finish(ctx context.Context, dir string, result Result) (Result, error) {
	r, file := p.request, p.request.Task.CodeFile
	if r.Kind == compiler.CandidateText {
		file = p.textFile
	}
	taken, failed, err := candidate.Extract(ctx, candidate.Source{
		Kind: r.Kind, Stdout: result.Exit.Stdout, File: file, Workspace: dir, Dest: r.Dest, MaxBytes: r.WorkspaceBytes,
	})
	result.Failure = cmp.Or(failed, result.Failure)
	taken.Patch, taken.Layer, taken.Dropped = result.Candidate.Patch, result.Candidate.Layer, append(taken.Dropped, result.Candidate.Dropped...)
	result.Candidate = taken
	return result, err
}

// ended returns how a process ended badly, or nil. A command that fails and leaves a text, code or
// patch has ended well.
func ended(r Request, exit runtime.Exit) *candidate.Failure {
	switch {
	case exit.Reason == runtime.WallTime:
		return &candidate.Failure{Reason: "producer_timeout", Phase: phaseProducer, Message: fmt.Sprintf("the harness did not end within %s", r.Timeout)}
	case exit.Reason == runtime.OutOfMemory:
		return &candidate.Failure{Reason: "producer_out_of_memory", Phase: phaseProducer, Message: exit.String()}
	case exit.Reason == runtime.PidsLimit:
		return &candidate.Failure{Reason: "producer_pids_limit", Phase: phaseProducer, Message: exit.String()}
	case exit.Reason == runtime.Exited && exit.Code == service.Failed && !r.Task.Environment.Prepare.IsZero():
		return &candidate.Failure{Reason: PrepareFailed, Phase: phaseProducer, Message: "environment.prepare failed, and so the harness did not start"}
	case !exit.Success() && r.Kind == compiler.CandidateWorkspace:
		return &candidate.Failure{Reason: "producer_failed", Phase: phaseProducer, Message: "the harness " + exit.String()}
	}
	return nil
}
