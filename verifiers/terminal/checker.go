package terminal

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"

	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/verifiers/suite"
	"github.com/securebench/sbench/workspace"
)

// A checker runs the task's checker on the candidate or without one, each time in a new sandbox.
type checker struct {
	engine       verifiers.Engine
	in           verifiers.Input
	eval         family.TerminalEval
	image        runtime.Image // of in, with the changes of the candidate if it is a machine
	capabilities []string
	sealed       []string // paths that nothing may change
	separate     bool     // the image is the checker's own, and it sees only the candidate's artifacts
	artifacts    []artifact
}

func (c *checker) workdir() string { return c.in.Task.Environment().Workdir }

// tests returns where the hidden files are, in the sandbox and in a stage; "" if the task has none.
func (c *checker) tests() (inside, stagedTests string) {
	switch {
	case c.eval.Checker.Path != "":
		return c.eval.Checker.Mount, checkerDir
	case len(c.eval.Files) > 0:
		return path.Join(c.workdir(), paths.EvaluationInputsRoot), paths.EvaluationInputsRoot
	}
	return "", ""
}

// testsInImage reports whether the tests are in the checker's own image, where Harbor has them: at paths.CheckerMount.
func (c *checker) testsInImage() bool { return c.separate && c.eval.Checker.Path == "" }

// withoutCandidate runs the checker as execute does, on a workspace with nothing but the task's own files.
func (c *checker) withoutCandidate(ctx context.Context, files []contrast.File) (ran execution, err error) {
	without := *c
	without.image, without.artifacts, without.in.Left = c.in.Image, nil, nil
	plan, err := workspace.PlanAgent(c.in.Task, c.in.Pack)
	if err != nil {
		return ran, err
	}
	empty, err := c.in.Stage(ctx, c.engine)
	if err != nil {
		return ran, err
	}
	defer func() { err = errors.Join(err, empty.Close()) }()
	without.in.Candidate.Workspace = filepath.Join(empty.Path(), restoredDir)
	err = os.Mkdir(without.in.Candidate.Workspace, 0o777)
	if err == nil {
		err = os.Chmod(without.in.Candidate.Workspace, 0o777)
	}
	if err == nil {
		err = plan.WriteDir(ctx, without.in.Candidate.Workspace, c.in.WorkspaceBytes)
	}
	if err != nil {
		return ran, err
	}
	return without.execute(ctx, files)
}

// beside runs the checker on the candidate, beside the processes that the harness left.
func (c *checker) beside(ctx context.Context, files []contrast.File) (ran execution, prevented bool, err error) {
	return beside(ctx, c.in.Left, func() (execution, error) { return c.execute(ctx, files) }, func() (execution, error) { return c.withoutCandidate(ctx, nil) })
}

// An execution is a run of the checker.
type execution struct {
	exit     runtime.Exit
	reward   reward
	logs     []verifiers.Log // beside the reward
	unserved int64           // requests that the proxy refused, or that failed
	answers  contrast.Answers
}

// execute runs the checker on a copy of the workspace, with files staged anew, so that their age does not tell whether
// they are unchanged or broken.
// The given files replace the hidden ones at the same paths. The volume of the files is this run's: programs of the
// candidate can fill what the checker may write to.
func (c *checker) execute(ctx context.Context, files []contrast.File) (ran execution, err error) {
	stage, err := c.stage(ctx, files)
	if err != nil {
		return ran, err
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	dir := stage.Path()
	logs, err := c.makeLogs(dir)
	if err != nil {
		return ran, err
	}
	mounts, err := c.mounts(dir, logs)
	if err != nil {
		return ran, err
	}
	args, command := service.HideCommand(c.eval.Checker.Args())
	env, limits, image := c.in.Task.Environment(), c.in.Limits, c.image
	if c.testsInImage() {
		image.UpperDir = filepath.Join(dir, overImage)
	}
	limits.LayerBytes = c.in.WorkspaceBytes
	cfg := runtime.Config{
		Name: "verifier", Image: image, Mounts: mounts, Limits: limits, Capabilities: c.capabilities,
		Workdir: env.Dir(), User: cmp.Or(c.eval.Checker.User, env.User), IsolateProcesses: true,
		AllFiles: true, Machine: env.Machine, WritableRoot: c.eval.Checker.Relocated(), ReadOnly: c.sealed, Env: append(c.env(dir), command...),
		NetworkOf: c.in.Left,
	}
	if c.separate {
		cfg.Workdir, cfg.User, cfg.Machine = "", c.eval.Checker.User, true
	}
	if args, err = c.in.Beside(c.services(), args, &cfg); err != nil {
		return ran, err
	}
	answers, mount, err := suite.NewAnswersFile(dir)
	if err != nil {
		return ran, err
	}
	access := runtime.Access{Close: func() (int64, error) { return 0, nil }}
	if c.eval.Checker.Network && c.in.Network != nil {
		if access, err = c.in.Network(); err != nil {
			return ran, err
		}
	}
	cfg.Network, cfg.Env, cfg.Mounts = access.Network, append(cfg.Env, access.Env...), append(append(cfg.Mounts, access.Mounts...), mount)
	ran.exit, err = c.in.Run(ctx, c.engine, cfg, runtime.Process{Args: args, Dir: c.eval.Checker.Workdir, Wall: c.eval.Checker.Timeout})
	if logs != "" {
		ran.reward, ran.logs = readReward(logs), checkerLogs(logs)
	}
	ran.answers = answers.Read()
	unserved, closeErr := access.Close()
	ran.unserved = unserved
	return ran, errors.Join(err, closeErr)
}

// services returns what runs beside the checker: the entry point of the image, if the task wants it and it is not
// among the kept processes, and the task's services.
func (c *checker) services() (all []service.Service) {
	if c.in.Left == nil {
		all = c.in.Entrypoint(c.image, c.separate)
	}
	for _, s := range c.eval.Services {
		all = append(all, service.Service{Args: s.Command.Args(), Ready: s.Ready.Args(), Wait: s.Timeout})
	}
	return all
}
