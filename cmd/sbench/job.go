package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness/setup"
	"github.com/securebench/sbench/run/kubernetes"
	"github.com/securebench/sbench/run/slurm"
	"github.com/securebench/sbench/runtime"
)

type jobCmd struct {
	Slurm      jobSlurmCmd      `cmd:"" help:"Print the script of an array job, for sbatch."`
	Kubernetes jobKubernetesCmd `cmd:"" help:"Print the objects of an Indexed Job, for kubectl apply."`
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

// ownMemory is the memory, in bytes, that a shard needs besides the memory of its sandboxes.
const ownMemory = 1 << 30

// resources returns the cores and the memory, in bytes, of a shard.
func (f *jobFlags) resources(t *testerfile.File) (cpus float64, memory int64) {
	l := t.Runtime.Limits
	each := runtime.Limits{Memory: l.Memory, CPUs: l.CPUs}.Over(runtime.DefaultLimits())
	return each.CPUs * float64(f.Jobs), each.Memory*int64(f.Jobs) + ownMemory
}

// jobName returns the name of a run's job.
func jobName(t *testerfile.File) string {
	return "sbench-" + regexp.MustCompile(`[^A-Za-z0-9._-]+`).ReplaceAllString(t.Run.ID, "-")
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
	self, err := os.Executable()
	if err != nil {
		return err
	}
	names := []string{source.path, cmp.Or(cmd.OutputDir, tester.Run.OutputDir)}
	for _, archive := range cmd.Import {
		if _, err := os.Stat(archive); err != nil {
			return fmt.Errorf("%w: --import: %w", errUsage, err)
		}
		names = append(names, archive)
	}
	for i := range names {
		if names[i], err = filepath.Abs(names[i]); err != nil {
			return err
		}
	}
	keys, err := cmd.keys(tester)
	if err != nil {
		return err
	}
	cpus, memory := cmd.resources(tester)
	j := slurm.Job{
		Settings: cmd.Settings, Name: jobName(tester), Shards: cmd.Shards, Command: cmd.command(self, names[0], names[1], source.settings, keys...),
		Export: exported(os.Environ()), CPUs: int(math.Ceil(cpus)), Memory: memory,
	}
	for _, archive := range names[2:] {
		j.Prepare = append(j.Prepare, []string{self, "image", "import", archive})
	}
	script, err := j.Script()
	if err != nil {
		return marked(errUsage, err)
	}
	return a.printf("%s", script)
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
func (cmd *jobSlurmCmd) keys(t *testerfile.File) ([]string, error) {
	name := cmd.EnvFile
	if name == "" && exists(".env") {
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

type jobKubernetesCmd struct {
	jobFlags
	kubernetes.Settings
	OnClaim string `placeholder:"DIR" help:"Directory on the claim that has the tester file and the files that it names, instead of a ConfigMap."`
}

func (cmd *jobKubernetesCmd) Run(a *app) error {
	source, tester, err := cmd.load(a)
	if err != nil {
		return err
	}
	job, err := cmd.job(source, tester)
	if err != nil {
		return err
	}
	objects, err := job.Objects()
	if err != nil {
		return onClaim(marked(errUsage, err))
	}
	text, err := objects.YAML()
	if err != nil {
		return err
	}
	if len(job.Keys) > 0 {
		err = a.printf("# First: kubectl create secret generic %s --from-env-file=FILE, with %s\n", job.KeysName(), strings.Join(job.Keys, ", "))
	}
	return errors.Join(err, a.printf("%s", text))
}

// onClaim adds to an error about files that cannot be in a ConfigMap how to put them on the claim.
func onClaim(err error) error {
	if errors.Is(err, kubernetes.ErrNoConfigMap) {
		err = fmt.Errorf("%w: put the files on the claim, and name their directory by --on-claim", err)
	}
	return err
}

func (cmd *jobKubernetesCmd) job(source testerSource, t *testerfile.File) (kubernetes.Job, error) {
	cpus, memory := cmd.resources(t)
	j := kubernetes.Job{Settings: cmd.Settings, Shards: cmd.Shards, CPUs: cpus, Memory: memory, Keys: slices.Clone(t.Harness.Env)}
	j.NodeDir = filepath.Clean(j.NodeDir)
	if t.Verification.Judge != nil {
		j.Keys = append(j.Keys, t.Verification.Judge.Key)
	}
	slices.Sort(j.Keys)
	j.Keys = slices.Compact(j.Keys)
	if j.Name == "" {
		name := strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(jobName(t)))
		j.Name = strings.TrimRight(name[:min(len(name), 40)], "-")
	}
	if err := errors.Join(notNegative("--parallel", cmd.Parallel), notNegative("--retries", int(cmd.Retries))); err != nil {
		return j, err
	}
	for _, dir := range []string{cmp.Or(cmd.NodeSocket, "/"), cmd.NodeRoot, cmd.NodeDir} {
		if !filepath.IsAbs(dir) {
			return j, fmt.Errorf("%w: %q is no absolute path", errUsage, dir)
		}
	}
	for _, name := range append(slices.Clone(cmd.Import), cmp.Or(cmd.OnClaim, ".")) {
		if !fs.ValidPath(name) {
			return j, fmt.Errorf("%w: %q is no path on the claim, such as images/base.tar", errUsage, name)
		}
	}
	for _, archive := range cmd.Import {
		j.Prepare = append(j.Prepare, []string{"sbench", "image", "import", path.Join(kubernetes.ResultsDir, archive)})
	}
	h, problems := setup.Of(t)
	if problems != nil {
		return j, problems
	}
	sources := append(h.Sources(), t.Path, filepath.Dir(t.Benchmark.Manifest), filepath.Dir(t.Benchmark.Tasks))
	top := filepath.Dir(t.Path)
	for _, source := range sources {
		for !isWithin(source, top) {
			top = filepath.Dir(top)
		}
	}
	tester, err := filepath.Rel(top, t.Path)
	if err != nil {
		return j, err
	}
	dir := path.Join(kubernetes.ResultsDir, cmd.OnClaim)
	if cmd.OnClaim == "" {
		dir = kubernetes.FilesDir
		never := []string{t.Run.OutputDir}
		for _, secret := range t.Harness.Secrets {
			never = append(never, secret.File)
		}
		if j.Files, err = kubernetes.ReadFiles(top, sources, never); err != nil {
			return j, onClaim(marked(errUsage, err))
		}
		if err := checkFiles(j.Files, tester, source); err != nil {
			return j, err
		}
	}
	j.Command = cmd.command("sbench", path.Join(dir, tester), path.Join(kubernetes.ResultsDir, j.Name), source.settings)
	return j, nil
}

func isWithin(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimRight(dir, "/")+"/")
}

// checkFiles loads the files as a pod will. The tester file may name a file that is only on this machine.
func checkFiles(files []kubernetes.File, tester string, source testerSource) error {
	dir, err := os.MkdirTemp("", "sbench-job-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, file := range files {
		name := filepath.Join(dir, filepath.FromSlash(file.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(name, file.Text, 0o600); err != nil {
			return err
		}
	}
	source.path = filepath.Join(dir, tester)
	in, err := loadTester(&app{stderr: new(bytes.Buffer)}, source)
	if err != nil {
		return err
	}
	b := in.Tester.Benchmark
	names := []string{b.Manifest, b.Tasks}
	for _, file := range in.Tester.Harness.Config.Files {
		names = append(names, file.Source)
	}
	for _, name := range names {
		if !isWithin(name, dir) {
			return fmt.Errorf("%w: the tester file names %s, which pods do not have: name it relative to the tester file", errUsage, name)
		}
	}
	return nil
}
