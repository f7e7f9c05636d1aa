package verifiers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/workspace"
)

const (
	// trustedDir is the folder of a workspace that holds what sbench
	// materializes. The verifier's sandbox gets it anew, whatever the candidate
	// made of it.
	trustedDir  = "securebench"
	checkerDir  = "checker" // beside it, for compiler.CheckerMount
	assetsDir   = "assets"  // beside it, for read-only assets
	stageInodes = 65536
	// deniedReason is a record's word for a command that the tester does not allow.
	deniedReason = "verifier_dangerous_command_denied"
)

// terminalTask runs the task's checker on a throw-away copy of the workspace.
// Exit code 0 passes.
func terminalTask(ctx context.Context, e Engine, in Input) (Verdict, error) {
	eval, ok := in.Task.TerminalTask()
	if !ok {
		return Verdict{}, fmt.Errorf("task %q is no terminal_task", in.Task.ID())
	}
	capabilities, denied := needed(eval.NeededCommands, in.Policy)
	if denied != nil {
		return *denied, nil
	}
	in, done, err := asLeft(ctx, e, in)
	if err != nil {
		return Verdict{}, fmt.Errorf("restore the workspace: %w", err)
	}
	verdict, err := staged(ctx, e, in, eval, capabilities)
	return verdict, errors.Join(err, done())
}

// needed maps commands to capabilities, if the operator allows them.
func needed(commands []string, p Policy) ([]string, *Verdict) {
	var capabilities []string
	for _, c := range commands {
		if !p.AllowDangerous || slices.Contains(p.Deny, c) {
			v := failed(deniedReason, fmt.Sprintf("the task needs the command %q, which the tester file does not allow", c))
			return nil, &v
		}
		if c == "chroot" { // the only one the row's schema admits
			capabilities = append(capabilities, "CAP_SYS_CHROOT")
		}
	}
	return capabilities, nil
}

// staged gives the check a volume for what the candidate must not change.
func staged(ctx context.Context, e Engine, in Input, eval compiler.TerminalEval, capabilities []string) (Verdict, error) {
	stage, err := e.NewVolume(ctx, runtime.VolumeConfig{Bytes: in.WorkspaceBytes, Inodes: stageInodes})
	if err != nil {
		return Verdict{}, err
	}
	verdict, err := check(ctx, e, in, eval, capabilities, stage)
	return verdict, errors.Join(err, stage.Close())
}

func check(ctx context.Context, e Engine, in Input, eval compiler.TerminalEval, capabilities []string, stage runtime.Volume) (Verdict, error) {
	if err := stageTrusted(ctx, in, stage.Path()); err != nil {
		return Verdict{}, fmt.Errorf("stage the evaluation inputs: %w", err)
	}
	env := in.Task.Environment()
	workdir := env.Workdir
	forging, err := forgingLinks(ctx, e, in.Image, in.Candidate.Workspace, workdir, []string{path.Join(workdir, trustedDir), compiler.CheckerMount})
	if err != nil {
		return Verdict{}, err
	}
	if forging > 0 {
		return failed("candidate_link_denied", fmt.Sprintf("%d symbolic links of the workspace lead to files of the checker, or through /proc", forging)), nil
	}
	mounts, err := trustedMounts(in, workdir, stage.Path())
	if err != nil {
		return Verdict{}, err
	}
	if eval.Checker.Path != "" {
		mounts = append(mounts, runtime.Mount{Source: filepath.Join(stage.Path(), checkerDir), Dest: compiler.CheckerMount})
	}
	limits := in.Limits
	limits.LayerBytes = in.WorkspaceBytes
	box, err := e.Create(ctx, runtime.Config{
		Name: "verifier", Image: in.Image, Mounts: mounts, Limits: limits, Capabilities: capabilities,
		Workdir: workdir, User: env.User, Sealed: true,
		// No plugin or user folder steers a checker in Python.
		Env: append([]string{"PYTHONNOUSERSITE=1"}, append(environ(env.Env), checkerEnv(eval.Checker)...)...),
	})
	if err != nil {
		return Verdict{}, err
	}
	exit, err := box.Exec(ctx, runtime.Process{Args: checkerArgs(eval.Checker), Dir: within(workdir, eval.Checker.Workdir), Wall: timeout(eval.Checker.Timeout, env.Timeout, in.Timeout), OutputBytes: in.OutputBytes})
	if errors.Is(err, runtime.ErrDenied) {
		return failed(deniedReason, "the tester file denies the checker's command"), box.Close(ctx)
	}
	if errors.Is(err, runtime.ErrNotStarted) {
		return failed("verifier_not_started", "the checker could not be executed in the task's image and workspace"), box.Close(ctx)
	}
	if err := errors.Join(err, box.Close(ctx)); err != nil {
		return Verdict{}, err
	}
	return judge(exit), nil
}

// within makes a checker's working directory absolute; "" stays the sandbox's.
func within(workdir, dir string) string {
	if dir == "" || path.IsAbs(dir) {
		return cleaned(dir)
	}
	return path.Join(workdir, dir)
}

func cleaned(dir string) string {
	if dir == "" {
		return ""
	}
	return path.Clean(dir)
}

// trustedMounts lays what the agent could not change over the copy of what it
// left.
func trustedMounts(in Input, workdir, stage string) ([]runtime.Mount, error) {
	mounts := []runtime.Mount{
		{Source: in.Candidate.Workspace, Dest: workdir, Copy: true},
		{Source: filepath.Join(stage, trustedDir), Dest: path.Join(workdir, trustedDir)},
	}
	plan, err := workspace.PlanAgent(in.Task, in.Pack)
	if err != nil {
		return nil, err
	}
	for _, e := range plan.Entries {
		if e.ReadOnly && !trustedEntry(e) {
			mounts = append(mounts, runtime.Mount{Source: filepath.Join(stage, assetsDir, e.Dest), Dest: path.Join(workdir, e.Dest)})
		}
	}
	return mounts, nil
}

func trustedEntry(e workspace.Entry) bool { return strings.HasPrefix(e.Dest, trustedDir+"/") }

// stageTrusted materializes what the checker may see, from the pack and not
// from the workspace: the trusted folder, the read-only assets, and the checker.
// Other assets are the candidate's to change.
func stageTrusted(ctx context.Context, in Input, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	inputs, err := workspace.PlanTestSandbox(in.Task, in.Pack)
	if err != nil {
		return err
	}
	checker, err := workspace.PlanChecker(in.Task, in.Pack)
	if err != nil {
		return err
	}
	options := workspace.WriteOptions{MaxBytes: in.WorkspaceBytes}
	for _, part := range []struct {
		plan   workspace.Plan
		folder string // below which the entries are written
		wanted func(workspace.Entry) bool
	}{
		{inputs, "", trustedEntry},
		{inputs, assetsDir, func(e workspace.Entry) bool { return e.ReadOnly && !trustedEntry(e) }},
		{checker, checkerDir, func(workspace.Entry) bool { return true }},
	} {
		p := workspace.Plan{Component: part.plan.Component}
		for _, e := range part.plan.Entries {
			if part.wanted(e) {
				e.Dest = path.Join(part.folder, e.Dest)
				p.Entries = append(p.Entries, e)
			}
		}
		if err := p.Write(ctx, root, options); err != nil {
			return err
		}
	}
	for _, name := range []string{trustedDir, checkerDir} { // a mount needs them, empty or not
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// checkerEnv keeps installed and configured plugins out of a pytest checker.
func checkerEnv(c compiler.Checker) []string {
	if c.Source == compiler.CheckerPytest {
		return []string{"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", "PYTEST_ADDOPTS=", "PYTEST_PLUGINS="}
	}
	return nil
}

// checkerArgs is the command of each form of checker.
func checkerArgs(c compiler.Checker) []string {
	file, folder := path.Join(compiler.CheckerMount, c.Path), path.Join(compiler.CheckerMount, c.Folder())
	switch c.Source {
	case compiler.CheckerPytest:
		// Nothing in the workspace configures the interpreter or pytest.
		return []string{"python3", "-I", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", folder, "--confcutdir", folder, file}
	case compiler.CheckerScript:
		return []string{file}
	}
	return c.Command.Args()
}

func judge(exit runtime.Exit) Verdict {
	v := passed()
	switch {
	case exit.Success():
	case exit.Reason == runtime.WallTime:
		v = failed("verifier_timeout", "the checker was "+exit.String())
	case exit.Reason == runtime.OutOfMemory:
		v = failed("verifier_out_of_memory", "the checker "+exit.String())
	case exit.Reason == runtime.PidsLimit:
		v = failed("verifier_pids_limit", "the checker "+exit.String())
	default:
		v = failed("checker_failed", "the checker "+exit.String())
	}
	v.Stdout, v.Stderr = exit.Stdout, exit.Stderr
	v.Metadata = map[string]any{
		"exit_reason": exit.Reason.String(), "exit_code": exit.Code, "wall_seconds": exit.Wall.Seconds(), "usage": exit.Usage,
	}
	if len(exit.Reached) > 0 {
		v.Metadata["limits_reached"] = exit.Reached
	}
	return v
}
