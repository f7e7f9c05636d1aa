package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/runtime"
)

type submitCmd struct {
	Slurm      submitSlurmCmd      `cmd:"" help:"Run the shards as an array job of Slurm."`
	Kubernetes submitKubernetesCmd `cmd:"" help:"Run the shards as an Indexed Job of Kubernetes."`
	Status     submitStatusCmd     `cmd:"" help:"Show the progress of the shards."`
	Wait       submitWaitCmd       `cmd:"" help:"Wait for the shards to end, and merge them."`
	Cancel     submitCancelCmd     `cmd:"" help:"End the shards cleanly. retry continues them."`
	Retry      submitRetryCmd      `cmd:"" help:"Submit again the shards that ended before all of their attempts were made."`
}

// submitFlags are the flags of all engines.
type submitFlags struct {
	testerArgs
	Flags   []string `arg:"" optional:"" name:"flags" help:"After --, further flags of run, such as -- --limit 10."`
	Shards  int      `required:"" placeholder:"N" help:"Number of shards. Each is a task of the job."`
	EnvFile string   `placeholder:"FILE" help:"File of NAME=value lines for harness.env."`
	Jobs    int      `short:"j" default:"1" placeholder:"N" help:"How many attempts of a shard run at a time. Default: 1."`
	Import  []string `placeholder:"ARCHIVE" help:"Archive of images to import first. Can be repeated."`
	Print   bool     `help:"Print what would be submitted, and submit nothing."`
}

// A submissionPlan is what is submitted, and from where.
type submissionPlan struct {
	source testerSource
	tester *testerfile.File
	dir    string // of the shards, absolute
}

// load reads the tester file. output is the directory of the shards; "" for the tester file's.
func (f *submitFlags) load(a *app, output string) (p submissionPlan, err error) {
	if f.Shards < 1 || f.Jobs < 1 {
		return p, fmt.Errorf("%w: --shards and --jobs are at least 1", errUsage)
	}
	if p.source, err = f.source(); err != nil {
		return p, err
	}
	in, err := loadTester(a, p.source)
	if err != nil {
		return p, err
	}
	p.tester = in.Tester
	p.dir, err = filepath.Abs(cmp.Or(output, in.Tester.Run.OutputDir))
	return p, err
}

// command returns the command line of a shard, without --shard.
func (f *submitFlags) command(program, config, output string, p submissionPlan, more ...string) []string {
	args := []string{program, "run", "--config", config, "--output-dir", output, "--jobs", strconv.Itoa(f.Jobs), "--progress", "plain"}
	for _, s := range p.source.settings {
		args = append(args, "--set", s.Key+"="+s.Value)
	}
	return append(append(args, more...), f.Flags...)
}

// ownMemory is the memory, in bytes, that a shard needs besides the memory of its sandboxes.
const ownMemory = 1 << 30

func (f *submitFlags) resources(t *testerfile.File) (cpus float64, memory int64) {
	l := t.Runtime.Limits
	each := runtime.Limits{Memory: l.Memory, CPUs: l.CPUs}.Over(runtime.DefaultLimits())
	return each.CPUs * float64(f.Jobs), each.Memory*int64(f.Jobs) + ownMemory
}

var otherCharacters = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// submission is the content of job.json: the jobs that were submitted. One of Jobs and Kubernetes is set.
type submission struct {
	Jobs       []string       `json:"jobs,omitempty"` // ids of Slurm's, the latest last
	Kubernetes *kubernetesJob `json:"kubernetes,omitempty"`
	Shards     int            `json:"shards"`
}

// submitDir is the directory of a submission, below the directory of the shards.
const submitDir = "submit"

// begin makes the directory of a submission. It is an error if it was submitted before.
func (p submissionPlan) begin() (within string, err error) {
	within = filepath.Join(p.dir, submitDir)
	if _, err := os.Stat(filepath.Join(within, "job.json")); !errors.Is(err, fs.ErrNotExist) {
		return "", errors.Join(err, fmt.Errorf("%w: %s was submitted before: sbench submit retry continues it", errUsage, p.dir))
	}
	return within, os.MkdirAll(within, 0o755)
}

func (s submission) write(dir string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, submitDir, "job.json"), append(text, '\n'), 0o644)
}

// An engine makes the shards of a submission.
type engine interface {
	// states returns how far all shards are.
	states(ctx context.Context) ([]shardState, error)
	// busy reports whether a shard waits or runs.
	busy(ctx context.Context) (bool, error)
	// merge puts the shards together.
	merge(ctx context.Context, a *app, cmd *submitWaitCmd) error
	// cancel ends the running shards cleanly, and lets no other shard begin.
	cancel(ctx context.Context) error
	// retry submits shards again.
	retry(ctx context.Context, a *app, shards []int) error
}

// submitArg names a submission.
type submitArg struct {
	Dir string `arg:"" help:"Directory of the shards."`
}

func (s submitArg) read() (engine, error) {
	var is submission
	text, err := os.ReadFile(filepath.Join(s.Dir, submitDir, "job.json"))
	if err == nil {
		err = json.Unmarshal(text, &is)
	}
	switch {
	case err != nil || is.Kubernetes == nil && len(is.Jobs) == 0:
		return nil, fmt.Errorf("%w: %s: nothing was submitted: %w", errUsage, s.Dir, cmp.Or(err, fs.ErrInvalid))
	case is.Kubernetes != nil:
		return is.Kubernetes.connect(s.Dir)
	}
	return slurmEngine{s.Dir, is}, nil
}

// shardState is how far a shard is.
type shardState struct {
	Shard   int    `json:"shard"`
	State   string `json:"state"`   // a state of the engine, or complete, ended or damaged
	Done    int    `json:"done"`    // attempts that were measured
	Planned int    `json:"planned"` // 0: unknown
}

type submitStatusCmd struct {
	submitArg
	jsonFlag
}

func (cmd *submitStatusCmd) Run(ctx context.Context, a *app) error {
	with, err := cmd.read()
	if err != nil {
		return err
	}
	all, err := with.states(ctx)
	if err != nil {
		return err
	}
	return printList(a, cmd.JSON, all, func(s shardState) string {
		line := fmt.Sprintf("shard %d of %d: %s", s.Shard, len(all), strings.ToLower(s.State))
		if s.Planned > 0 {
			line += fmt.Sprintf(", %d of %d attempts", s.Done, s.Planned)
		}
		return line
	})
}

type submitWaitCmd struct {
	submitArg
	Sign string `placeholder:"KEY" help:"Sign the merged run with this ed25519 key (PKCS #8, PEM)."`
	JSON bool   `name:"json" help:"Print what was merged as JSON."`
}

const waitPeriod = 5 * time.Second // between looks at the engine

// Run waits until no shard waits or runs, and merges the shards into the directory merged.
func (cmd *submitWaitCmd) Run(ctx context.Context, a *app) error {
	with, err := cmd.read()
	for busy := true; err == nil; err = sleep(ctx, waitPeriod) {
		if busy, err = with.busy(ctx); !busy {
			break
		}
	}
	if err != nil {
		return err
	}
	err = with.merge(ctx, a, cmd)
	if errors.Is(err, run.ErrInfrastructure) {
		a.say(slog.LevelWarn, "next: sbench submit retry "+cmd.Dir)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type submitCancelCmd struct{ submitArg }

func (cmd *submitCancelCmd) Run(ctx context.Context) error {
	with, err := cmd.read()
	if err == nil {
		err = with.cancel(ctx)
	}
	return err
}

type submitRetryCmd struct{ submitArg }

func (cmd *submitRetryCmd) Run(ctx context.Context, a *app) error {
	with, err := cmd.read()
	if err != nil {
		return err
	}
	all, err := with.states(ctx)
	if err != nil {
		return err
	}
	var again []int
	for _, s := range all {
		if s.State == "ended" {
			again = append(again, s.Shard)
		}
	}
	if len(again) == 0 {
		return a.printf("every shard is complete, waiting or running\n")
	}
	return with.retry(ctx, a, again)
}
