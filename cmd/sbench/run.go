package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/compiler/validate"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/setup"
	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/proxy/domain"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/progress"
	"github.com/securebench/sbench/report/text"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/standin"
)

type runCmd struct {
	testerArgs `set:"file=Tester file, or a directory of tasks of Harbor or Terminal-Bench (docs/datasets.md)."`
	Attempts   *int `placeholder:"N" help:"Attempts of each task. The same as --set run.attempts=N."`

	Limit     *int            `short:"n" placeholder:"N" help:"Run only the first N tasks."`
	Exclude   []string        `placeholder:"GLOB" help:"Do not run the tasks whose id matches one of these patterns."`
	Harness   string          `placeholder:"NAME" help:"What to run instead of the tester file's harness: reference (each task's own solution) or empty (no solution). With a directory: also command, or the type of an agent, such as codex."`
	Allow     []domain.Domain `placeholder:"DOMAIN" help:"With a directory: domain that builds of its images may reach, with its subdomains; can be repeated. Default: none."`
	OutputDir string          `short:"o" placeholder:"DIR" help:"Directory for records and workspaces, instead of the tester file's."`
	EnvFile   string          `placeholder:"FILE" help:"File of NAME=value lines for harness.env. Default: .env, if it is there."`

	ShowAgentOutput   bool `help:"Show what an agent says and does while it runs."`
	ShowCommandOutput bool `help:"Show the commands that sbench runs in sandboxes, and how they end."`

	Plan     bool `help:"Print what would run, and why, and run nothing."`
	FailFast bool `help:"Stop starting attempts after the first one that fails or cannot be measured."`
	Retries  int  `default:"1" placeholder:"N" help:"Retry an attempt that could not be measured up to N times. Default: 1."`
	requireFlag
	attemptFlags

	graded  *gradeCmd     // has the source of the candidates; nil if the run makes them
	leftOut []run.LeftOut // tasks of a directory that cannot run; nil for a tester file, where every task has to
}

// Run runs the benchmark and prints the summary line last; with a matrix, each variant.
func (cmd *runCmd) Run(ctx context.Context, a *app) error {
	if name := cmp.Or(cmd.File, cmd.Config); isDirectory(name) {
		return cmd.runDirectory(ctx, a, name)
	}
	if !slices.Contains([]string{"", string(standin.Reference), string(standin.Empty)}, cmd.Harness) || len(cmd.Allow) > 0 {
		return fmt.Errorf("%w: --harness %s and --allow are for a directory of tasks; a tester file names its agent", errUsage, cmd.Harness)
	}
	source, err := cmd.source()
	if err != nil {
		return err
	}
	base, _, err := testerfile.Load(source.path, harness.AgentTypes(), source.settings...)
	if err == nil && len(base.Variants()) > 0 && cmd.runsHarness() {
		return cmd.matrix(ctx, a, source, base.Variants())
	}
	return cmd.runOne(ctx, a, source) // which says what is wrong with the file
}

// matrix runs the variants one after the other. If a variant cannot run, the next ones run all the same.
func (cmd *runCmd) matrix(ctx context.Context, a *app, source testerSource, variants []testerfile.Variant) error {
	var errs []error
	for _, v := range variants {
		a.say(slog.LevelInfo, "variant "+v.Name)
		sub := *cmd
		source.variant = &v
		if cmd.OutputDir != "" {
			sub.OutputDir = filepath.Join(cmd.OutputDir, v.Name)
		}
		if err := sub.runOne(ctx, a, source); err != nil {
			errs = append(errs, fmt.Errorf("variant %s: %w", v.Name, err))
		}
		if ctx.Err() != nil || errors.Is(errors.Join(errs...), run.ErrStopped) {
			break
		}
	}
	return errors.Join(errs...)
}

func (cmd *runCmd) runOne(ctx context.Context, a *app, source testerSource) error {
	var also []run.Kind
	if cmd.ShowAgentOutput {
		also = append(also, run.AgentOutput)
	}
	if cmd.ShowCommandOutput {
		also = append(also, run.SandboxCommand, run.SandboxResult)
	}
	show := a.progress(cmd.Progress, also...)
	in, env, err := cmd.load(ctx, a, source)
	if err != nil {
		return err
	}
	options, base, err := cmd.options(ctx, a, in, env)
	if err != nil {
		return err
	}
	options.Progress = show
	plan, err := run.NewPlan(ctx, in, options)
	if err != nil {
		return err
	}
	at, end, err := a.openSite(ctx, plan, base)
	if err != nil {
		return err
	}
	if cmd.Plan {
		return errors.Join(cmd.todo(ctx, a, plan, at), end())
	}
	plan.Stop = a.interrupts.Graceful()
	summary, err := run.Run(ctx, plan, at)
	err = errors.Join(err, end())
	a.endProgress()
	return errors.Join(err, cmd.outcome(ctx, a, summary, filepath.Dir(in.Pack.ManifestPath)))
}

// load reads the tester file, the manifest, and the env file, which it also returns.
func (cmd *runCmd) load(ctx context.Context, a *app, source testerSource) (in run.Inputs, env map[string]string, err error) {
	if cmd.AcceptUnsigned && !cmd.Resume && cmd.graded == nil {
		err = fmt.Errorf("%w: --accept-unsigned is for --resume", errUsage)
	}
	if cmd.EnvFile != "" && !cmd.runsHarness() {
		err = errors.Join(err, fmt.Errorf("%w: --env-file has no effect where the tester file's harness does not run", errUsage))
	}
	if err = errors.Join(err, notNegative("--limit", *cmp.Or(cmd.Limit, new(int))), notNegative("--jobs", cmd.Jobs), notNegative("--retries", cmd.Retries)); err != nil {
		return in, nil, err
	}
	if in, err = loadTester(a, source); err == nil {
		_, env, err = envFile(cmd.EnvFile)
	}
	if err == nil && cmd.runsHarness() { // nothing else needs credentials
		in.Env, err = setup.Env(ctx, in.Tester, env, a.stderr)
	}
	return in, env, err
}

// runsHarness reports whether the tester file's harness makes the candidates.
func (cmd *runCmd) runsHarness() bool {
	return cmd.Harness == "" && cmd.graded == nil
}

// source returns the tester file, with the flags that override its keys.
func (cmd *runCmd) source() (testerSource, error) {
	s, err := cmd.testerArgs.source()
	if cmd.Attempts != nil {
		s.settings = append(s.settings, testerfile.Setting{Key: "run.attempts", Value: strconv.Itoa(*cmd.Attempts)})
	}
	replaced := map[string]bool{"run.jobs": cmd.Jobs > 0, "run.output_dir": cmd.OutputDir != "", "harness.config.model": !cmd.runsHarness()}
	return s, errors.Join(err, s.unlessReplaced(replaced))
}

func readTester(a *app, s testerSource) (*testerfile.File, error) {
	tester, warnings, err := s.load()
	for _, w := range warnings {
		a.say(slog.LevelWarn, w.String())
	}
	return tester, err
}

func loadTester(a *app, s testerSource) (run.Inputs, error) {
	tester, err := readTester(a, s)
	var problems compiler.Problems
	if errors.As(err, &problems) {
		err = append(problems, validate.PackProblems(s.path)...)
	}
	if err != nil {
		return run.Inputs{}, err
	}
	pack, err := validate.OpenPack(tester)
	return run.Inputs{Tester: tester, Pack: pack}, err
}

// envFile reads the env file, and returns its name: by default .env, if there is one, else "".
func envFile(name string) (string, map[string]string, error) {
	if name == "" && exists(".env") {
		name = ".env"
	}
	if name == "" {
		return "", nil, nil
	}
	file, err := testerfile.LoadEnv(name)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: --env-file: %w", errUsage, err)
	}
	return name, file, err
}

// options returns the options of a run, and the fields of its site that need no daemon.
func (cmd *runCmd) options(ctx context.Context, a *app, in run.Inputs, env map[string]string) (o run.Options, base run.Site, err error) {
	o = run.Options{
		StandIn: standin.Kind(cmd.Harness), Output: cmd.OutputDir, Limit: cmd.Limit, Select: compiler.Selector(cmd.Exclude, cmd.Task, in.Tester.Run.Tasks),
		LeaveOut: cmd.leftOut != nil, LeftOut: cmd.leftOut,
		Jobs: cmp.Or(cmd.Jobs, in.Tester.Run.Jobs), Attempts: in.Tester.Run.Attempts, Retries: cmd.Retries, FailFast: cmd.FailFast, Require: cmd.Require,
		Resume: cmd.Resume, Sign: cmd.Sign, Trust: record.Trust{AcceptUnsigned: cmd.AcceptUnsigned},
	}
	if err = cmd.deal(in.Tester, &o); err != nil {
		return o, base, err
	}
	if base.Egress, err = setup.Egress(in.Tester); err != nil {
		return o, base, err
	}
	switch {
	case cmd.graded != nil:
		base.Egress.Domains = nil // no harness runs
		base.Producer, err = cmd.graded.read(ctx, a, in.Pack, &o)
	case cmd.runsHarness():
		base.Producer, err = cmd.producer(ctx, a, in)
	}
	if err != nil {
		return o, base, err
	}
	base.Judge, err = run.JudgeFor(in.Tester, env)
	return o, base, err
}

// producer returns the tester file's harness. If the harness will run, its provider must accept the key.
func (cmd *runCmd) producer(ctx context.Context, a *app, in run.Inputs) (harness.Producer, error) {
	h, problems := setup.Of(in.Tester)
	if problems != nil {
		return nil, problems
	}
	p, err := h.Producer(ctx, in.Env, a.tools)
	if err == nil && !cmd.Plan {
		err = h.CheckProvider(ctx, p)
	}
	return p, err
}

// todo prints the attempts that the run would make.
func (cmd *runCmd) todo(ctx context.Context, a *app, plan run.Plan, site run.Site) error {
	attempts, summary, err := run.Todo(ctx, plan, site)
	a.endProgress()
	if err != nil {
		return err
	}
	if cmd.JSON {
		return a.json(map[string]any{"attempts": append([]run.PlannedAttempt{}, attempts...), "recorded": summary.Resumed})
	}
	return errors.Join(
		printTable(a, attempts, func(p run.PlannedAttempt) string { return fmt.Sprintf("%q attempt %d: %s", p.Task, p.Attempt, p.Why) }),
		a.printf("%d attempts would run, %d are recorded\n", len(attempts), summary.Resumed),
	)
}

// measured is a summary as JSON, with what a report says about the records.
type measured struct {
	run.Summary
	Accuracy report.Accuracy  `json:"accuracy"`
	Outcomes []report.Outcome `json:"outcomes"`
}

// outcome prints what was recorded, unless nothing started: for people on standard error, then the summary on
// standard output. dir is the pack's directory.
func (cmd *runCmd) outcome(ctx context.Context, a *app, s run.Summary, dir string) error {
	if s.RunID == "" {
		return nil
	}
	var r report.Run
	source, err := report.Open(context.WithoutCancel(ctx), filepath.Dir(s.Output))
	if err == nil {
		defer func() { _ = source.Close() }() // only read from
		source.Require(cmd.Require)
		r = report.Summarize([]*report.Source{source}).Runs[0]
	}
	if err == nil && cmd.Progress != progress.JSON && cmd.Progress != progress.None { // the last JSON event has the summary
		err = errors.Join(text.WriteOutcome(a.stderr, r, source), text.WriteNext(a.stderr, s, r, os.Args[1:], dir, pack.StandIn(dir)))
	}
	if cmd.JSON {
		return errors.Join(err, a.json(measured{s, r.Accuracy, r.Outcomes}))
	}
	return errors.Join(err, a.printf("%s\n", s))
}
