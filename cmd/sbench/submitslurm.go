package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/slurm"
)

type submitSlurmCmd struct {
	submitFlags
	OutputDir string        `short:"o" placeholder:"DIR" help:"Directory for the shards, on a file system that all nodes share, instead of the tester file's."`
	Partition string        `placeholder:"NAME" help:"Slurm's partition."`
	Account   string        `placeholder:"NAME" help:"Slurm's account."`
	Time      time.Duration `placeholder:"DURATION" help:"How long a shard may run before it makes room for others and is queued again. Default: the partition's limit."`
	Grace     time.Duration `default:"2m" placeholder:"DURATION" help:"How long before that to end its attempts. Default: 2m."`
	NodeDir   string        `placeholder:"DIR" help:"Directory on each node's own disk for images and volumes, such as /local/sbench. Default: sbench's usual one."`
	Script    string        `placeholder:"FILE" help:"Submit this script, such as an edited output of --print."`
}

func (cmd *submitSlurmCmd) Run(ctx context.Context, a *app) error {
	p, err := cmd.load(a, cmd.OutputDir)
	if err != nil {
		return err
	}
	job, err := cmd.job(p)
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
		return marked(errUsage, err)
	}
	if cmd.Print {
		return a.printf("%s", script)
	}
	within, err := p.begin()
	if err == nil {
		err = os.WriteFile(slurm.ScriptFile(within), []byte(script), 0o755)
	}
	if err != nil {
		return err
	}
	return slurmEngine{p.dir, submission{Shards: cmd.Shards}}.retry(ctx, a, nil)
}

func (cmd *submitSlurmCmd) job(p submissionPlan) (slurm.Job, error) {
	self, err := os.Executable()
	if err != nil {
		return slurm.Job{}, err
	}
	config, err := filepath.Abs(p.source.path)
	if err != nil {
		return slurm.Job{}, err
	}
	env, err := cmd.keys(p.tester)
	if err != nil {
		return slurm.Job{}, err
	}
	cpus, memory := cmd.resources(p.tester)
	j := slurm.Job{
		Name: "sbench-" + otherCharacters.ReplaceAllString(p.tester.Run.ID, "-"), Shards: cmd.Shards, Dir: filepath.Join(p.dir, submitDir),
		Command: cmd.command(self, config, p.dir, p, env...), Time: cmd.Time, Grace: cmd.Grace,
		Partition: cmd.Partition, Account: cmd.Account, Export: exported(os.Environ()), NodeDir: cmd.NodeDir,
		CPUs: int(math.Ceil(cpus)), Memory: memory,
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

// exported returns the names of the variables that jobs get to find programs and directories. None may be
// a secret.
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

// keys returns the flags that name the env file. It is an error if jobs cannot find a value of harness.env.
func (cmd *submitSlurmCmd) keys(t *testerfile.File) ([]string, error) {
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
			return nil, compiler.Problems{t.Problem("$.harness.env", "give it in a file, by --env-file, or by harness.secrets", fmt.Sprintf("%q is not passed to the job, because everybody who uses Slurm could read its environment", variable))}
		}
	}
	if name == "" {
		return nil, nil
	}
	name, err = filepath.Abs(name)
	return []string{"--env-file", name}, err
}

// slurmEngine is Slurm with the jobs of a submission.
type slurmEngine struct {
	dir string
	is  submission
}

// retry submits shards, all of them if none are named, and notes the job.
func (s slurmEngine) retry(ctx context.Context, a *app, shards []int) error {
	within := filepath.Join(s.dir, submitDir)
	if err := os.Remove(filepath.Join(within, slurm.Cancelled)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	id, err := slurm.Submit(ctx, slurm.ScriptFile(within), shards...)
	if err != nil {
		return marked(run.ErrInfrastructure, err)
	}
	s.is.Jobs = append(s.is.Jobs, id)
	return errors.Join(s.is.write(s.dir), a.printf("submitted as job %s: sbench submit wait %s\n", id, s.dir))
}

func (s slurmEngine) busy(ctx context.Context) (bool, error) {
	queue, err := slurm.Queue(ctx, s.is.Jobs...)
	return len(queue) > 0, marked(run.ErrInfrastructure, err)
}

func (s slurmEngine) merge(ctx context.Context, a *app, cmd *submitWaitCmd) error {
	merge := mergeCmd{RunDirs: []string{s.dir}, OutputDir: filepath.Join(s.dir, "merged"), Sign: cmd.Sign, JSON: cmd.JSON}
	return merge.Run(ctx, a)
}

func (s slurmEngine) cancel(ctx context.Context) error {
	if err := os.WriteFile(filepath.Join(s.dir, submitDir, slurm.Cancelled), nil, 0o644); err != nil {
		return err
	}
	return marked(run.ErrInfrastructure, slurm.Cancel(ctx, s.is.Jobs...))
}

func (s slurmEngine) states(ctx context.Context) ([]shardState, error) {
	queue, err := slurm.Queue(ctx, s.is.Jobs...)
	if err != nil {
		return nil, marked(run.ErrInfrastructure, err)
	}
	all := make([]shardState, s.is.Shards)
	for i := range all {
		all[i] = shardState{Shard: i + 1, State: queue[i+1]}
		dir := filepath.Join(s.dir, shardDir(i+1, s.is.Shards))
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
