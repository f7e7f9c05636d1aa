package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/slurm"
	"github.com/securebench/sbench/runtime"
)

type submitCmd struct {
	Slurm  submitSlurmCmd  `cmd:"" help:"Make the shards of a run with an array job of Slurm."`
	Status submitStatusCmd `cmd:"" help:"Say how far the shards are."`
	Wait   submitWaitCmd   `cmd:"" help:"Wait for the shards to end, and merge them."`
	Cancel submitCancelCmd `cmd:"" help:"End the shards in order. retry goes on with them."`
	Retry  submitRetryCmd  `cmd:"" help:"Submit the shards again that have ended without all of their attempts."`
}

type submitSlurmCmd struct {
	testerArgs
	Flags     []string      `arg:"" optional:"" name:"flags" help:"After --, further flags of run, such as -- --balance DIR."`
	Shards    int           `required:"" placeholder:"N" help:"Shards, each of which is a task of the array job."`
	OutputDir string        `short:"o" placeholder:"DIR" help:"Directory for the shards, on a file system of all nodes, instead of the tester file's."`
	EnvFile   string        `placeholder:"FILE" help:"File of NAME=value lines for harness.env. Jobs do not get its variables from the environment."`
	Jobs      int           `short:"j" default:"1" placeholder:"N" help:"Attempts of a shard at a time. Default: 1."`
	Partition string        `placeholder:"NAME" help:"Slurm's partition."`
	Account   string        `placeholder:"NAME" help:"Slurm's account."`
	Time      time.Duration `placeholder:"DURATION" help:"How long a shard may run before it makes room for others and is queued again. Default: the partition's limit."`
	Grace     time.Duration `default:"2m" placeholder:"DURATION" help:"How long before that its attempts are ended. Default: 2m."`
	NodeDir   string        `placeholder:"DIR" help:"Directory of each node's own for images and volumes, such as /local/sbench. Default: that of sbench there."`
	Import    []string      `placeholder:"ARCHIVE" help:"Archive of images that each node imports. Can be repeated."`
	Print     bool          `help:"Print the job's script, and submit nothing."`
	Script    string        `placeholder:"FILE" help:"Submit this script, such as --print printed and somebody changed."`
}

// submission is what is known of jobs that were submitted; it is in the file job.json.
type submission struct {
	Jobs   []string `json:"jobs"` // ids, the latest last
	Shards int      `json:"shards"`
}

// ownMemory is what a shard needs besides that of its sandboxes, in bytes.
const ownMemory = 1 << 30

// submitDir is the directory of a submission, below that of the shards.
const submitDir = "submit"

// Run submits the job.
func (cmd *submitSlurmCmd) Run(ctx context.Context, a *app) error {
	source, err := cmd.source()
	if err != nil {
		return err
	}
	in, err := loadTester(a, source)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(cmp.Or(cmd.OutputDir, in.Tester.Run.OutputDir))
	if err != nil {
		return err
	}
	job, err := cmd.job(in.Tester, source, filepath.Join(dir, submitDir))
	if err != nil {
		return err
	}
	script, err := job.Script()
	if cmd.Script != "" {
		var text []byte
		text, err = os.ReadFile(cmd.Script)
		script = string(text)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if cmd.Print {
		_, err := fmt.Fprint(a.stdout, script)
		return err
	}
	if _, err := os.Stat(filepath.Join(job.Dir, "job.json")); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("%w: %s was submitted before: sbench submit retry goes on with it", errUsage, dir))
	}
	if err := os.MkdirAll(job.Dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(slurm.ScriptFile(job.Dir), []byte(script), 0o755); err != nil {
		return err
	}
	return submit(ctx, a, dir, submission{Shards: cmd.Shards})
}

// job returns the array job.
func (cmd *submitSlurmCmd) job(t *compiler.Tester, source testerSource, dir string) (slurm.Job, error) {
	if cmd.Shards < 1 || cmd.Jobs < 1 {
		return slurm.Job{}, fmt.Errorf("%w: --shards and --jobs are at least 1", errUsage)
	}
	self, err := os.Executable()
	if err != nil {
		return slurm.Job{}, err
	}
	config, err := filepath.Abs(source.path)
	if err != nil {
		return slurm.Job{}, err
	}
	args := []string{self, "run", "--config", config, "--output-dir", filepath.Dir(dir), "--jobs", strconv.Itoa(cmd.Jobs), "--progress", "plain"}
	for _, s := range source.settings {
		args = append(args, "--set", s.Key+"="+s.Value)
	}
	env, err := cmd.keys(t)
	if err != nil {
		return slurm.Job{}, err
	}
	args = append(args, env...)
	args = append(args, cmd.Flags...)
	l := t.Runtime.Limits
	each := runtime.Limits{Memory: l.Memory, CPUs: l.CPUs}.Over(runtime.DefaultLimits())
	j := slurm.Job{
		Name: "sbench-" + otherCharacters.ReplaceAllString(t.Run.ID, "-"), Shards: cmd.Shards, Dir: dir, Command: args, Time: cmd.Time, Grace: cmd.Grace,
		Partition: cmd.Partition, Account: cmd.Account, Export: exported(os.Environ()), NodeDir: cmd.NodeDir,
		CPUs: int(math.Ceil(each.CPUs * float64(cmd.Jobs))), Memory: each.Memory*int64(cmd.Jobs) + ownMemory,
	}
	for _, archive := range cmd.Import {
		name, err := filepath.Abs(archive)
		if err == nil {
			_, err = os.Stat(name)
		}
		if err != nil {
			return j, fmt.Errorf("%w: --import: %w", errUsage, err)
		}
		j.Prepare = append(j.Prepare, []string{self, "image", "import", name})
	}
	return j, nil
}

var otherCharacters = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// exported returns the names of the variables that jobs get: where programs and files are, and
// none that may be a secret.
func exported(environ []string) (names []string) {
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		switch {
		case name == "SBENCH_SHARD":
		case strings.HasPrefix(name, "SBENCH_"), slices.Contains([]string{
			"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "CONTAINERD_ADDRESS", "CONTAINERD_NAMESPACE", "npm_config_registry", "SSL_CERT_FILE", "SLURM_CONF",
		}, name):
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// keys returns the flags for the env file, after checking that jobs can find every value of
// harness.env.
func (cmd *submitSlurmCmd) keys(t *compiler.Tester) ([]string, error) {
	name := cmd.EnvFile
	if _, err := os.Stat(".env"); name == "" && err == nil {
		name = ".env"
	}
	values, err := envFile(name)
	if err != nil {
		return nil, err
	}
	for _, variable := range t.Harness.Env {
		if _, from := t.Harness.Secrets[variable]; values[variable] == "" && !from {
			return nil, compiler.Problems{t.Problem("$.harness.env", "give it in a file, by --env-file, or by harness.secrets", fmt.Sprintf("the job does not get %q, whose environment everybody could read who runs Slurm", variable))}
		}
	}
	if name == "" {
		return nil, nil
	}
	if name, err = filepath.Abs(name); err != nil {
		return nil, err
	}
	return []string{"--env-file", name}, nil
}

// submit submits shards, all of them if none are named, and notes the job.
func submit(ctx context.Context, a *app, dir string, s submission, shards ...int) error {
	within := filepath.Join(dir, submitDir)
	if err := os.Remove(filepath.Join(within, slurm.Cancelled)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	id, err := slurm.Submit(ctx, slurm.ScriptFile(within), shards...)
	if err != nil {
		return fmt.Errorf("%w: %w", run.ErrInfrastructure, err)
	}
	s.Jobs = append(s.Jobs, id)
	text, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(filepath.Join(within, "job.json"), append(text, '\n'), 0o644)
	}
	_, also := fmt.Fprintf(a.stdout, "submitted as job %s: sbench submit wait %s\n", id, dir)
	return errors.Join(err, also)
}

// submitArg names a submission.
type submitArg struct {
	Dir string `arg:"" help:"Directory of the shards."`
}

func (s submitArg) read() (submission, error) {
	var is submission
	text, err := os.ReadFile(filepath.Join(s.Dir, submitDir, "job.json"))
	if err == nil {
		err = json.Unmarshal(text, &is)
	}
	if err != nil || len(is.Jobs) == 0 {
		return is, fmt.Errorf("%w: %s: nothing was submitted: %w", errUsage, s.Dir, cmp.Or(err, fs.ErrInvalid))
	}
	return is, nil
}

// shardState is how far a shard is.
type shardState struct {
	Shard   int    `json:"shard"`
	State   string `json:"state"` // of Slurm's, or complete, ended or damaged
	Done    int    `json:"done"`  // attempts that were measured
	Planned int    `json:"planned"`
}

// states returns how far all shards are.
func (s submitArg) states(ctx context.Context, is submission) ([]shardState, error) {
	queue, err := slurm.Queue(ctx, is.Jobs...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", run.ErrInfrastructure, err)
	}
	all := make([]shardState, is.Shards)
	for i := range all {
		all[i] = shardState{Shard: i + 1, State: queue[i+1]}
		dir := filepath.Join(s.Dir, shardDir(i+1, is.Shards))
		type attempt struct {
			task   string
			number int
		}
		done := map[attempt]bool{}
		seal, err := record.Read(dir, record.Trust{Resume: true}, func(r record.Record) error {
			done[attempt{r.TaskID, r.Attempt}] = r.VerificationStatus != record.Error
			return nil
		})
		for _, measured := range done {
			if measured {
				all[i].Done++
			}
		}
		if all[i].Planned = seal.Planned; all[i].State != "" {
			continue
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			all[i].State = "ended" // before its first attempt
		case err != nil:
			all[i].State = "damaged"
		case all[i].Done >= seal.Planned:
			all[i].State = "complete"
		default:
			all[i].State = "ended"
		}
	}
	return all, nil
}

type submitStatusCmd struct {
	submitArg
	JSON bool `name:"json" help:"Print JSON."`
}

// Run prints the states of the shards.
func (cmd *submitStatusCmd) Run(ctx context.Context, a *app) error {
	is, err := cmd.read()
	if err != nil {
		return err
	}
	all, err := cmd.states(ctx, is)
	if err != nil {
		return err
	}
	return printList(a, cmd.JSON, all, func(s shardState) string {
		return fmt.Sprintf("shard %d of %d: %s, %d of %d attempts", s.Shard, is.Shards, strings.ToLower(s.State), s.Done, s.Planned)
	})
}

type submitWaitCmd struct {
	submitArg
	Sign string `placeholder:"KEY" help:"Sign the merged run with this ed25519 key (PKCS #8, PEM)."`
	JSON bool   `name:"json" help:"Print what was merged as JSON."`
}

const waitPeriod = 5 * time.Second // between looks at Slurm's queue

// Run waits until no task is in Slurm's queue, and merges the shards into the directory merged.
func (cmd *submitWaitCmd) Run(ctx context.Context, a *app) error {
	is, err := cmd.read()
	for ; err == nil; err = sleep(ctx, waitPeriod) {
		var queue map[int]string
		if queue, err = slurm.Queue(ctx, is.Jobs...); len(queue) == 0 {
			break
		}
	}
	if err != nil {
		return err
	}
	merge := mergeCmd{RunDirs: []string{cmd.Dir}, OutputDir: filepath.Join(cmd.Dir, "merged"), Sign: cmd.Sign, JSON: cmd.JSON}
	err = merge.Run(ctx, a)
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

// Run ends the tasks.
func (cmd *submitCancelCmd) Run(ctx context.Context) error {
	is, err := cmd.read()
	if err == nil {
		err = os.WriteFile(filepath.Join(cmd.Dir, submitDir, slurm.Cancelled), nil, 0o644)
	}
	if err != nil {
		return err
	}
	if err := slurm.Cancel(ctx, is.Jobs...); err != nil {
		return fmt.Errorf("%w: %w", run.ErrInfrastructure, err)
	}
	return nil
}

type submitRetryCmd struct{ submitArg }

// Run submits what has ended and is not complete.
func (cmd *submitRetryCmd) Run(ctx context.Context, a *app) error {
	is, err := cmd.read()
	if err != nil {
		return err
	}
	all, err := cmd.states(ctx, is)
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
		_, err := fmt.Fprintln(a.stdout, "every shard is complete, or in Slurm's queue")
		return err
	}
	return submit(ctx, a, cmd.Dir, is, again...)
}
