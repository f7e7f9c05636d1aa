package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd"
)

type runCmd struct {
	Config            string   `required:"" placeholder:"FILE" help:"Tester file."`
	Limit             int      `placeholder:"N" help:"Run the first N tasks only."`
	Task              []string `placeholder:"GLOB" help:"Of the tasks that the tester file selects, run only those whose id matches one of these patterns."`
	Harness           string   `enum:",reference,empty" default:"" placeholder:"NAME" help:"Instead of the tester file's harness: reference, each task's own solution, or empty, nothing at all."`
	OutputDir         string   `placeholder:"DIR" help:"Folder for records and workspaces, instead of the tester file's."`
	EnvFile           string   `placeholder:"FILE" help:"File of NAME=value lines for harness.env. Default: .env, if it is there."`
	Progress          string   `enum:"auto,plain,json,none" default:"auto" help:"Progress on standard error: auto (a live view on a terminal, else plain), plain, json or none."`
	Quiet             bool     `help:"The same as --progress none."`
	ShowAgentOutput   bool     `help:"Show what an agent says and does as it does."`
	ShowCommandOutput bool     `help:"Show the commands that sbench runs in sandboxes, and how they end."`
	JSON              bool     `name:"json" help:"Print the summary, or the plan, as JSON."`

	Jobs     int    `placeholder:"N" help:"Attempts at a time. Default: the tester file's, else what the cores can serve. Fewer if memory, processes or disk would not do."`
	Resume   bool   `help:"Go on in an output folder: what is recorded with the same inputs is not run again."`
	Plan     bool   `help:"Print what would run, and why, and run nothing."`
	FailFast bool   `help:"Start nothing more after the first attempt that does not pass."`
	Retries  int    `default:"1" placeholder:"N" help:"Try what could not be measured up to N times more."`
	Sign     string `placeholder:"KEY" help:"Sign the end of the records with this ed25519 key (PKCS #8, PEM). With --resume, it must have signed what is there."`

	AcceptUnsigned bool `help:"With --resume, go on with records that nobody signed, or somebody else. The seal says so."`
}

// Run runs the benchmark and prints the summary line last.
func (cmd *runCmd) Run(ctx context.Context, a *app) error {
	tester, pack, env, err := cmd.load(a)
	if err != nil {
		return err
	}
	with, err := cmd.prepare(ctx, a, tester, env)
	if err != nil {
		return err
	}
	var summary run.Summary
	err = a.withClient(ctx, tester, func(c *containerd.Client) error {
		return withEngine(ctx, c, tester, pack, cmd.OutputDir, with, func(cfg run.Config) error {
			if cmd.Plan {
				return cmd.plan(ctx, a, cfg)
			}
			cfg.Stop = a.interrupts.graceful(a.stderr)
			summary, err = run.Run(ctx, cfg)
			return err
		})
	})
	return errors.Join(err, a.printSummary(summary, cmd.JSON))
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
	for name, n := range map[string]int{"--limit": cmd.Limit, "--jobs": cmd.Jobs, "--retries": cmd.Retries} {
		if n < 0 {
			return nil, nil, nil, fmt.Errorf("%w: %s %d is negative", errUsage, name, n)
		}
	}
	tester, pack, err := loadTester(a, cmd.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	if cmd.Harness != "" { // a stand-in needs no credentials
		return tester, pack, nil, nil
	}
	env, err := cmd.environment(tester)
	return tester, pack, env, err
}

// readTester reads a tester file and prints its warnings.
func readTester(a *app, config string) (*compiler.Tester, error) {
	tester, warnings, err := compiler.LoadTester(config)
	for _, w := range warnings {
		_, _ = fmt.Fprintln(a.stderr, "sbench:", w)
	}
	return tester, err
}

func loadTester(a *app, config string) (*compiler.Tester, *compiler.Pack, error) {
	tester, err := readTester(a, config)
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

// prepare makes the part of a configuration that needs no daemon, such as the harness and
// the signing key.
func (cmd *runCmd) prepare(ctx context.Context, a *app, tester *compiler.Tester, env map[string]string) (run.Config, error) {
	cfg := run.Config{
		StandIn: run.StandIn(cmd.Harness), Env: env, Limit: cmd.Limit, Jobs: cmp.Or(cmd.Jobs, tester.Run.Jobs), Attempts: tester.Run.Attempts,
		Retries: cmd.Retries, FailFast: cmd.FailFast, Resume: cmd.Resume, Progress: cmd.progress(a),
		Select: selector(cmd.Task, tester.Run.Tasks),
		Trust:  record.Trust{AcceptUnsigned: cmd.AcceptUnsigned},
	}
	var err error
	if cfg.Egress, err = egressFor(tester); err != nil {
		return cfg, err
	}
	if cmd.Harness == "" {
		if cfg.Producer, err = a.producerFor(ctx, tester, env); err != nil {
			return cfg, err
		}
	}
	if cmd.Sign != "" {
		if cfg.Sign, err = record.LoadKey(cmd.Sign); err != nil {
			return cfg, fmt.Errorf("%w: --sign: %w", errUsage, err)
		}
	}
	return cfg, nil
}

// plan prints what would run.
func (cmd *runCmd) plan(ctx context.Context, a *app, cfg run.Config) error {
	attempts, summary, err := run.Plan(ctx, cfg)
	a.endLive()
	if err != nil {
		return err
	}
	if cmd.JSON {
		return a.json(map[string]any{"attempts": append([]run.PlannedAttempt{}, attempts...), "recorded": summary.Resumed})
	}
	err = printTable(a, attempts, func(p run.PlannedAttempt) string { return fmt.Sprintf("%q attempt %d: %s", p.Task, p.Attempt, p.Why) })
	_, also := fmt.Fprintf(a.stdout, "%d attempts would run, %d are recorded\n", len(attempts), summary.Resumed)
	return errors.Join(err, also)
}

// withEngine completes cfg with what the daemon, the tester file and --output-dir decide,
// and passes it to f.
func withEngine(ctx context.Context, c *containerd.Client, tester *compiler.Tester, pack *compiler.Pack, output string, cfg run.Config, f func(run.Config) error) error {
	degraded, err := c.Degraded()
	if err != nil {
		return fmt.Errorf("%w: %w", run.ErrInfrastructure, err)
	}
	if cfg.Output, err = filepath.Abs(cmp.Or(output, tester.Run.OutputDir)); err != nil {
		return err
	}
	engine, err := c.NewRun(ctx)
	if err != nil {
		return err
	}
	cfg.Tester, cfg.Pack, cfg.Engine, cfg.Limits, cfg.Degraded = tester, pack, engine, limits(tester), degraded
	cfg.Images = &resolver{c: c, engine: engine, policy: containerd.PullPolicy(tester.Runtime.Pull), progress: cfg.Progress}
	cfg.Calibrations = filepath.Join(c.Root(), "calibrations")
	cfg.Version, cfg.Host = sbenchVersion(), hostFacts(c)
	return errors.Join(f(cfg), engine.Close(ctx))
}

// selector returns a function that reports whether an id matches at least one glob of
// each list. An empty list matches everything. If all lists are empty, the function is
// nil.
func selector(lists ...[]string) func(string) bool {
	lists = slices.DeleteFunc(lists, func(globs []string) bool { return len(globs) == 0 })
	if len(lists) == 0 {
		return nil
	}
	return func(id string) bool {
		for _, globs := range lists {
			if !slices.ContainsFunc(globs, func(g string) bool { return compiler.MatchTask(g, id) }) {
				return false
			}
		}
		return true
	}
}

func limits(t *compiler.Tester) runtime.Limits {
	l := t.Runtime.Limits
	return runtime.Limits{Memory: l.Memory, CPUs: l.CPUs, Pids: l.Pids}.Over(runtime.DefaultLimits())
}

// resolver finds images as the tester file's pull policy says. On the first image it also
// tries a sandbox, so that whatever keeps all sandboxes of a run from working is a single
// error, before any task starts.
type resolver struct {
	c        *containerd.Client
	engine   *containerd.Run
	policy   containerd.PullPolicy
	progress func(run.Event) // nil for none
	lived    bool            // a sandbox has worked
}

func (r *resolver) Resolve(ctx context.Context, ref string) (runtime.Image, error) {
	img, err := r.find(ctx, ref)
	if err != nil || r.lived {
		return img, err
	}
	if err := r.engine.Live(ctx, img); err != nil {
		return img, fmt.Errorf("%w: no sandbox lives on the image %s here: %w", runtime.ErrUnavailable, img.Ref, err)
	}
	r.lived = true
	return img, nil
}

func (r *resolver) find(ctx context.Context, ref string) (runtime.Image, error) {
	if r.policy != containerd.PullAlways {
		img, err := r.c.Image(ctx, ref, containerd.PullNever)
		if err == nil || r.policy == containerd.PullNever || containerd.Local(ref) || !errors.Is(err, runtime.ErrNotFound) {
			return img, err
		}
	}
	tell := func(detail string) {
		if r.progress != nil {
			r.progress(run.Event{Time: time.Now(), Kind: run.ImagePull, Detail: ref + detail})
		}
	}
	tell("")
	img, err := r.c.Image(ctx, ref, r.policy)
	if err == nil {
		tell(": done")
	}
	return img, err
}

func (cmd *runCmd) progress(a *app) func(run.Event) {
	var also []run.Kind
	if cmd.ShowAgentOutput {
		also = append(also, run.AgentOutput)
	}
	if cmd.ShowCommandOutput {
		also = append(also, run.SandboxCommand, run.SandboxResult)
	}
	return progress(a, cmd.Progress, cmd.Quiet, also...)
}

// progress returns the function that shows events on standard error, since standard
// output is for results alone; nil shows none. Errors of writing are ignored: they must
// not stop a run. Output of agents and commands in sandboxes are shown only if also has
// their kind, but always as JSON.
func progress(a *app, format string, quiet bool, also ...run.Kind) func(run.Event) {
	wanted := func(k run.Kind) bool {
		return slices.Contains(also, k) || k != run.AgentOutput && k != run.SandboxCommand && k != run.SandboxResult
	}
	switch {
	case quiet, format == "none":
		return nil
	case format == "json":
		enc := json.NewEncoder(a.stderr)
		return func(e run.Event) { _ = enc.Encode(e) }
	case format == "auto":
		if l, ok := a.live(); ok {
			return func(e run.Event) { l.add(e, wanted(e.Kind)) }
		}
	}
	var table run.Table
	return func(e run.Event) {
		table.Add(e)
		if !wanted(e.Kind) {
			return
		}
		_ = run.WriteEvent(a.stderr, e)
		if e.Kind == run.RunDone {
			_ = table.Write(a.stderr)
		}
	}
}
