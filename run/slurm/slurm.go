// Package slurm writes the script of an array job of Slurm that runs the shards of a run. Slurm's own
// programs submit the job, show its tasks and end them.
package slurm

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/run"
)

// A Job is an array job with a task for each shard of a run.
type Job struct {
	Settings
	Name    string // letters, digits and - _ .
	Shards  int
	Command []string
	CPUs    int        // cores of a task
	Memory  int64      // of a task, in bytes
	Prepare [][]string // commands before Command, on a node each time that it gets a task
	Export  []string   // names of the only environment variables that tasks get
}

// New returns the job for a tester file, without its commands. env has the variables of the env file, which jobs read. It
// is an error if jobs cannot find a value of harness.env.
func New(s Settings, t *testerfile.File, shards, jobs int, env map[string]string) (Job, error) {
	for _, name := range t.Harness.Env {
		if _, from := t.Harness.Secrets[name]; env[name] == "" && !from {
			return Job{}, compiler.Problems{t.Problem("$.harness.env", "give it in a file, by --env-file, or by harness.secrets", fmt.Sprintf("%q is not passed to the job, because everybody who uses Slurm could read its environment", name))}
		}
	}
	cpus, memory := run.ShardNeeds(t, jobs)
	return Job{Settings: s, Name: run.JobName(t), Shards: shards, CPUs: int(math.Ceil(cpus)), Memory: memory, Export: exported(os.Environ())}, nil
}

// exported returns the variables by which jobs find programs and directories. None may be a secret.
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

// Settings are what the user says about a Job. The command line makes flags of them.
type Settings struct {
	Partition string        `placeholder:"NAME" help:"Slurm's partition."`
	Account   string        `placeholder:"NAME" help:"Slurm's account."`
	Time      time.Duration `placeholder:"DURATION" help:"How long a shard may run before it makes room for other jobs and is queued again. Default: the partition's limit."`
	Grace     time.Duration `default:"2m" placeholder:"DURATION" help:"How long before that to end its attempts. Default: 2m."`
	// The shards on a node share NodeDir. A shell expands variables in it.
	NodeDir string `placeholder:"DIR" help:"Directory on each node's own disk for images and volumes, such as /local/sbench. Default: sbench's usual directory."`
}

//go:embed job.sh
var jobText string

var jobScript = template.Must(template.New("job").Funcs(template.FuncMap{
	"words":    func(args []string) string { return compiler.ShellWords(args...) },
	"join":     strings.Join,
	"seconds":  func(d time.Duration) int { return int(d.Round(time.Second) / time.Second) },
	"minutes":  func(d time.Duration) int { return int((d + time.Minute - 1) / time.Minute) },
	"megabyte": func(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 },
}).Parse(jobText))

// Script returns the script of the job, for sbatch.
func (j Job) Script() (string, error) {
	const never = "\n\"'\\%`" // would end or change what sbatch or a shell reads in quotes
	for _, text := range []string{j.NodeDir, j.Name, j.Partition, j.Account, strings.Join(j.Export, "")} {
		if strings.ContainsAny(text, never) || strings.ContainsAny(text, " \t,") && text != j.NodeDir {
			return "", fmt.Errorf("%q cannot stand in a job's script", text)
		}
	}
	var b bytes.Buffer
	err := jobScript.Execute(&b, j)
	return b.String(), err
}
