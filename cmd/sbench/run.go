package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd"
)

type runCmd struct {
	Config    string   `required:"" placeholder:"FILE" help:"Tester file."`
	Limit     int      `placeholder:"N" help:"Run the first N tasks only."`
	Task      []string `placeholder:"GLOB" help:"Run the tasks whose id matches one of these patterns only."`
	Harness   string   `enum:",reference,empty" default:"" placeholder:"NAME" help:"Instead of the tester file's harness: reference, each task's own solution, or empty, nothing at all."`
	OutputDir string   `placeholder:"DIR" help:"Folder for records and workspaces, instead of the tester file's."`
	EnvFile   string   `placeholder:"FILE" help:"File of NAME=value lines for harness.env. Default: .env, if it is there."`
	Progress  string   `enum:"plain,json,none" default:"plain" help:"Progress on standard error: plain, json or none."`
	Quiet     bool     `help:"The same as --progress none."`
	JSON      bool     `name:"json" help:"Print the summary as JSON."`
}

// Run measures and prints the summary line last.
func (cmd *runCmd) Run(ctx context.Context, a *app) error {
	tester, pack, env, err := cmd.load(a)
	if err != nil {
		return err
	}
	c, err := a.client(ctx, tester)
	if err != nil {
		return err
	}
	summary, err := cmd.measure(ctx, a, c, tester, pack, env)
	return errors.Join(err, c.Close(ctx), a.printSummary(summary, cmd.JSON))
}

// printSummary prints nothing if nothing started.
func (a *app) printSummary(s run.Summary, asJSON bool) error {
	switch {
	case s.RunID == "":
		return nil
	case asJSON:
		return a.json(s)
	}
	_, err := fmt.Fprintln(a.stdout, s)
	return err
}

// load reads the tester file and the manifest, and reports the problems of both
// together.
func (cmd *runCmd) load(a *app) (*compiler.Tester, *compiler.Pack, map[string]string, error) {
	if cmd.Limit < 0 {
		return nil, nil, nil, fmt.Errorf("%w: --limit %d is negative", errUsage, cmd.Limit)
	}
	tester, pack, err := loadTester(a, cmd.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	if cmd.Harness != "" { // it needs no credentials
		return tester, pack, nil, nil
	}
	env, err := cmd.environment(tester)
	return tester, pack, env, err
}

func loadTester(a *app, config string) (*compiler.Tester, *compiler.Pack, error) {
	tester, warnings, err := compiler.LoadTester(config)
	for _, w := range warnings {
		_, _ = fmt.Fprintln(a.stderr, "sbench:", w)
	}
	if err != nil {
		return nil, nil, err
	}
	pack, err := compiler.OpenPack(tester.Benchmark.Manifest, tester.Benchmark.Tasks)
	return tester, pack, err
}

func (cmd *runCmd) environment(tester *compiler.Tester) (map[string]string, error) {
	name, file := cmd.EnvFile, map[string]string{}
	if name == "" {
		if _, err := os.Stat(".env"); err == nil {
			name = ".env"
		}
	}
	if name != "" {
		var err error
		if file, err = compiler.LoadEnvFile(name); err != nil {
			return nil, err
		}
	}
	return tester.ResolveEnv(os.Environ(), file)
}

func (cmd *runCmd) measure(ctx context.Context, a *app, c *containerd.Client, tester *compiler.Tester, pack *compiler.Pack, env map[string]string) (run.Summary, error) {
	var producer harness.Producer
	if cmd.Harness == "" {
		var err error
		if producer, err = producerFor(tester); err != nil {
			return run.Summary{}, err
		}
	}
	var summary run.Summary
	err := withEngine(ctx, c, tester, pack, cmd.OutputDir, func(cfg run.Config) error {
		cfg.StandIn, cfg.Producer, cfg.Env, cfg.Limit, cfg.Progress = run.StandIn(cmd.Harness), producer, env, cmd.Limit, progress(a, cmd.Progress, cmd.Quiet)
		cfg.Select = selector(append(append([]string{}, cmd.Task...), tester.Run.Tasks...))
		var err error
		summary, err = run.Run(ctx, cfg)
		return err
	})
	return summary, err
}

// withEngine hands f a configuration with what the daemon, the tester file and
// --output-dir decide.
func withEngine(ctx context.Context, c *containerd.Client, tester *compiler.Tester, pack *compiler.Pack, output string, f func(run.Config) error) error {
	degraded, err := c.Degraded()
	if err != nil {
		return fmt.Errorf("%w: %w", run.ErrInfrastructure, err)
	}
	if output == "" {
		output = tester.Run.OutputDir
	}
	if output, err = filepath.Abs(output); err != nil {
		return err
	}
	engine, err := c.NewRun(ctx)
	if err != nil {
		return err
	}
	err = f(run.Config{
		Tester: tester, Pack: pack, Engine: engine, Images: resolver{c, containerd.PullPolicy(tester.Runtime.Pull)},
		Limits: limits(tester), Degraded: degraded, Output: output,
	})
	return errors.Join(err, engine.Close(ctx))
}

// selector matches ids against globs; with none, everything is selected.
func selector(globs []string) func(string) bool {
	if len(globs) == 0 {
		return nil
	}
	return func(id string) bool {
		for _, g := range globs {
			if compiler.MatchTask(g, id) {
				return true
			}
		}
		return false
	}
}

func limits(t *compiler.Tester) runtime.Limits {
	l := t.Runtime.Limits
	return runtime.Limits{Memory: l.Memory, CPUs: l.CPUs, Pids: l.Pids}.Over(runtime.DefaultLimits())
}

// producerFor refuses what this version cannot do before anything starts.
func producerFor(t *compiler.Tester) (harness.Producer, error) {
	refuse := func(path, message string) (harness.Producer, error) {
		return nil, compiler.Problems{{File: t.Path, Path: path, Message: message}}
	}
	switch c := t.Harness.Config; {
	case t.Harness.Type != compiler.HarnessCommand:
		return refuse("$.harness.type", fmt.Sprintf("the harness %q is not available in this version; command is", t.Harness.Type))
	case len(c.AllowedDomains) > 0:
		return refuse("$.harness.config.allowed_domains", "egress is not available in this version: every sandbox is without network")
	case t.Runtime.Network.Transparent:
		return refuse("$.runtime.network.transparent", "egress is not available in this version: every sandbox is without network")
	case t.Run.Jobs > 1:
		return refuse("$.run.jobs", "this version runs one task after the other")
	case t.Run.Attempts > 1:
		return refuse("$.run.attempts", "this version makes one attempt for each task")
	default:
		return harness.Command{Args: c.Command.Args(), TaskFile: c.TaskFile}, nil
	}
}

// resolver finds images as the tester file's pull policy says.
type resolver struct {
	c      *containerd.Client
	policy containerd.PullPolicy
}

func (r resolver) Resolve(ctx context.Context, ref string) (runtime.Image, error) {
	return r.c.Image(ctx, ref, r.policy)
}

// progress goes to standard error: results alone are on standard output.
// Progress that cannot be shown stops no run.
func progress(a *app, format string, quiet bool) func(run.Event) {
	switch {
	case quiet, format == "none":
		return nil
	case format == "json":
		enc := json.NewEncoder(a.stderr)
		return func(e run.Event) { _ = enc.Encode(e) }
	}
	var table run.Table
	return func(e run.Event) {
		table.Add(e)
		if e.Kind == run.SandboxCommand || e.Kind == run.SandboxResult {
			return // the audit trail is for machines, in json
		}
		_ = run.WriteEvent(a.stderr, e)
		if e.Kind == run.RunDone {
			_ = table.Write(a.stderr)
		}
	}
}
