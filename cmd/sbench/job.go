package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/run/kubernetes"
	"github.com/securebench/sbench/run/slurm"
)

type jobCmd struct {
	Slurm      jobSlurmCmd      `cmd:"" help:"Print the script of an array job, for sbatch."`
	Kubernetes jobKubernetesCmd `cmd:"" help:"Print an Indexed Job, for kubectl apply."`
}

// jobFlags are the flags for all kinds of clusters.
type jobFlags struct {
	testerArgs
	Flags  []string `arg:"" optional:"" name:"flags" help:"After --, further flags of run, such as -- --limit 10."`
	Shards int      `required:"" placeholder:"N" help:"Number of shards. Each is a task of the job."`
	Jobs   int      `short:"j" default:"1" placeholder:"N" help:"How many attempts of a shard run at a time. Default: 1."`
	Import []string `placeholder:"ARCHIVE" help:"Archive of images to import first. Can be repeated."`
}

func (f *jobFlags) load(a *app) (testerSource, *testerfile.File, error) {
	if f.Shards < 1 || f.Jobs < 1 {
		return testerSource{}, nil, fmt.Errorf("%w: --shards and --jobs are at least 1", errUsage)
	}
	source, err := f.source()
	if err != nil {
		return source, nil, err
	}
	in, err := loadTester(a, source)
	return source, in.Tester, err
}

// command returns the command line of a shard, without --shard.
func (f *jobFlags) command(program, config, output string, settings []testerfile.Setting, more ...string) []string {
	args := []string{program, "run", "--config", config, "--output-dir", output, "--jobs", strconv.Itoa(f.Jobs), "--progress", "plain"}
	for _, s := range settings {
		args = append(args, "--set", s.Key+"="+s.Value)
	}
	return slices.Concat(args, more, f.Flags)
}

type jobSlurmCmd struct {
	jobFlags
	OutputDir string `short:"o" placeholder:"DIR" help:"Directory for the shards, on a file system that all nodes share, instead of the tester file's."`
	EnvFile   string `placeholder:"FILE" help:"File of NAME=value lines for harness.env. Default: .env, if it is there."`
	slurm.Settings
}

func (cmd *jobSlurmCmd) Run(a *app) error {
	source, tester, err := cmd.load(a)
	if err != nil {
		return err
	}
	envName, env, err := envFile(cmd.EnvFile)
	if err != nil {
		return err
	}
	j, err := slurm.New(cmd.Settings, tester, cmd.Shards, cmd.Jobs, env)
	if err != nil {
		return err
	}
	var keys []string
	if envName != "" {
		envName, err = filepath.Abs(envName)
		keys = []string{"--env-file", envName}
	}
	self, selfErr := os.Executable()
	config, configErr := filepath.Abs(source.path)
	output, outputErr := filepath.Abs(cmp.Or(cmd.OutputDir, tester.Run.OutputDir))
	if err = errors.Join(err, selfErr, configErr, outputErr); err != nil {
		return err
	}
	for _, archive := range cmd.Import {
		if _, err := os.Stat(archive); err != nil {
			return fmt.Errorf("%w: --import: %w", errUsage, err)
		}
		if archive, err = filepath.Abs(archive); err != nil {
			return err
		}
		j.Prepare = append(j.Prepare, []string{self, "image", "import", archive})
	}
	j.Command = cmd.command(self, config, output, source.settings, keys...)
	script, err := j.Script()
	if err != nil {
		return marked(errUsage, err)
	}
	return a.printf("%s", script)
}

type jobKubernetesCmd struct {
	jobFlags
	kubernetes.Settings
}

func (cmd *jobKubernetesCmd) Run(a *app) error {
	source, tester, err := cmd.load(a)
	if err != nil {
		return err
	}
	job, err := kubernetes.New(cmd.Settings, tester, cmd.Shards, cmd.Jobs, cmd.Import)
	if err != nil {
		return marked(errUsage, err)
	}
	job.Command = cmd.command("sbench", job.Tester(), job.Output(), source.settings)
	text, err := job.YAML()
	if err != nil {
		return marked(errUsage, err)
	}
	if len(job.Keys) > 0 {
		err = a.printf("# First: kubectl create secret generic %s --from-env-file=FILE, with %s\n", job.KeysName(), strings.Join(job.Keys, ", "))
	}
	return errors.Join(err, a.printf("%s", text))
}
