package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness/setup"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/kubernetes"
)

type submitKubernetesCmd struct {
	submitFlags
	OutputDir     string            `short:"o" placeholder:"DIR" help:"Local directory for notes about the job, instead of the tester file's output directory. Results are on the claim."`
	Image         string            `required:"" placeholder:"IMAGE" help:"sbench's own container image, in a registry that the nodes can reach."`
	PullSecret    string            `placeholder:"NAME" help:"Secret with the credentials for pulling it."`
	Claim         string            `required:"" placeholder:"NAME" help:"PersistentVolumeClaim for the results, to which all nodes can write."`
	OnClaim       string            `placeholder:"DIR" help:"Directory on the claim that has the tester file and the files that it names, instead of a ConfigMap."`
	Name          string            `placeholder:"NAME" help:"Name of the job and of the results. Default: from the tester file's run.id."`
	Context       string            `placeholder:"NAME" help:"Context of the kubeconfig. Default: its current one."`
	KubeNamespace string            `placeholder:"NAME" help:"Kubernetes' namespace. Default: the context's."`
	NodeSocket    string            `placeholder:"SOCKET" help:"Use the nodes' containerd, such as /run/containerd/containerd.sock. Default: each pod has one of its own."`
	NodeRoot      string            `default:"/var/lib/containerd" placeholder:"DIR" help:"With --node-socket: the root directory of the nodes' containerd. Default: /var/lib/containerd."`
	NodeDir       string            `default:"/var/lib/sbench" placeholder:"DIR" help:"With --node-socket: each node's directory for images and volumes. Default: /var/lib/sbench."`
	Parallel      int               `placeholder:"N" help:"How many shards run at a time. Default: all."`
	Retries       int               `default:"3" placeholder:"N" help:"How often a shard may fail before it is not tried again. Default: 3."`
	Grace         time.Duration     `default:"2m" placeholder:"DURATION" help:"How long a pod that is stopped has to end its attempts. Default: 2m."`
	NodeSelector  map[string]string `placeholder:"LABEL=VALUE" mapsep:"," help:"Only nodes with this label. Can be repeated."`
	Toleration    []string          `placeholder:"TAINT" help:"A taint to tolerate: KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT. Can be repeated."`
	Objects       string            `placeholder:"FILE" help:"Create these objects, such as an edited output of --print."`
}

// A kubernetesJob is a Job that was submitted.
type kubernetesJob struct {
	Context   string `json:"context,omitempty"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// objectsFile is the file of a submission's objects, without the Secret.
const objectsFile = "objects.yaml"

func (cmd *submitKubernetesCmd) Run(ctx context.Context, a *app) error {
	p, err := cmd.load(a, cmd.OutputDir)
	if err != nil {
		return err
	}
	objects, err := cmd.objects(ctx, a, p)
	if err != nil {
		return err
	}
	text, err := objects.YAML()
	if err != nil {
		return err
	}
	if cmd.Print {
		if objects.Keys != nil {
			text = append(fmt.Appendf(nil, "# The Secret %s with these variables is not printed: %s\n", objects.Keys.Name, strings.Join(slices.Sorted(maps.Keys(objects.Keys.StringData)), ", ")), text...)
		}
		return a.printf("%s", text)
	}
	cluster, err := kubernetes.Connect(cmd.Context, cmd.KubeNamespace)
	if err != nil {
		return marked(errUsage, err)
	}
	within, err := p.begin()
	if err == nil {
		err = os.WriteFile(filepath.Join(within, objectsFile), text, 0o644)
	}
	if err != nil {
		return err
	}
	job := &kubernetesJob{Context: cmd.Context, Namespace: cluster.Namespace, Name: objects.Job.Name}
	if err := (submission{Kubernetes: job, Shards: cmd.Shards}).write(p.dir); err != nil {
		return err
	}
	if err := cluster.Create(ctx, objects); err != nil {
		return errors.Join(marked(run.ErrInfrastructure, err), os.RemoveAll(within))
	}
	return a.printf("submitted as job %s in namespace %s: sbench submit wait %s\n", job.Name, job.Namespace, p.dir)
}

func (cmd *submitKubernetesCmd) objects(ctx context.Context, a *app, p submissionPlan) (kubernetes.Objects, error) {
	job, err := cmd.job(ctx, a, p)
	if err != nil {
		return kubernetes.Objects{}, err
	}
	objects, err := job.Objects()
	switch {
	case errors.Is(err, kubernetes.ErrTooLarge):
		return objects, fmt.Errorf("%w: the tester file and what it names are %w: put them on the claim, and say where by --on-claim", errUsage, err)
	case err != nil:
		return objects, marked(errUsage, err)
	case cmd.Objects == "":
		return objects, nil
	}
	text, err := os.ReadFile(cmd.Objects)
	if err != nil {
		return objects, fmt.Errorf("%w: --objects: %w", errUsage, err)
	}
	changed, err := kubernetes.Parse(text)
	if err != nil {
		return objects, fmt.Errorf("%w: --objects %s: %w", errUsage, cmd.Objects, err)
	}
	if n := changed.Job.Spec.Completions; n == nil || int(*n) != cmd.Shards {
		return objects, fmt.Errorf("%w: --objects %s: its Job does not have as many completions as --shards says", errUsage, cmd.Objects)
	}
	changed.Keys = objects.Keys
	return changed, nil
}

func (cmd *submitKubernetesCmd) job(ctx context.Context, a *app, p submissionPlan) (kubernetes.Job, error) {
	cpus, memory := cmd.resources(p.tester)
	j := kubernetes.Job{
		Name: cmd.Name, Shards: cmd.Shards, Parallel: cmd.Parallel, Image: cmd.Image, PullSecret: cmd.PullSecret, Claim: cmd.Claim,
		NodeSocket: cmd.NodeSocket, NodeRoot: cmd.NodeRoot, NodeDir: filepath.Clean(cmd.NodeDir), CPUs: cpus, Memory: memory,
		Grace: cmd.Grace, Retries: int32(cmd.Retries), NodeSelector: cmd.NodeSelector,
	}
	if j.Name == "" {
		name := "sbench-" + strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(otherCharacters.ReplaceAllString(p.tester.Run.ID, "-")))
		j.Name = strings.TrimRight(name[:min(len(name), 40)], "-")
	}
	if err := errors.Join(notNegative("--parallel", cmd.Parallel), notNegative("--retries", cmd.Retries)); err != nil {
		return j, err
	}
	for _, dir := range []string{cmp.Or(cmd.NodeSocket, "/"), cmd.NodeRoot, cmd.NodeDir} {
		if !filepath.IsAbs(dir) {
			return j, fmt.Errorf("%w: %s is no absolute path", errUsage, dir)
		}
	}
	for _, text := range cmd.Toleration {
		t, err := kubernetes.ParseToleration(text)
		if err != nil {
			return j, fmt.Errorf("%w: --toleration %w", errUsage, err)
		}
		j.Tolerations = append(j.Tolerations, t)
	}
	for _, archive := range cmd.Import {
		if !fs.ValidPath(archive) {
			return j, fmt.Errorf("%w: --import %s: expected a path on the claim, such as images/base.tar", errUsage, archive)
		}
		j.Prepare = append(j.Prepare, []string{"sbench", "image", "import", path.Join(kubernetes.ResultsDir, archive)})
	}
	var err error
	if j.Keys, err = cmd.keys(ctx, a, p.tester); err != nil {
		return j, err
	}
	var tester string
	if tester, j.Files, err = cmd.files(p); err != nil {
		return j, err
	}
	dir := kubernetes.FilesDir
	if cmd.OnClaim != "" {
		dir = path.Join(kubernetes.ResultsDir, cmd.OnClaim)
		if !fs.ValidPath(cmd.OnClaim) {
			return j, fmt.Errorf("%w: --on-claim %s: expected a path on the claim", errUsage, cmd.OnClaim)
		}
	}
	j.Command = cmd.command("sbench", path.Join(dir, tester), path.Join(kubernetes.ResultsDir, j.Name), p)
	return j, nil
}

// keys returns the values of the variables that runs need, which the Secret holds.
func (cmd *submitKubernetesCmd) keys(ctx context.Context, a *app, t *testerfile.File) (map[string]string, error) {
	file, err := envFile(cmd.EnvFile)
	if err != nil {
		return nil, err
	}
	values, err := harnessEnv(ctx, a, t, file)
	if err != nil || t.Verification.Judge == nil {
		return values, err
	}
	_, values[t.Verification.Judge.Key], err = judgeFor(t, file)
	return values, err
}

// files returns the files that a shard reads (the tester file, its pack and the files that it names), and
// the path of the tester file among them. If they are on the claim, it returns only the path.
func (cmd *submitKubernetesCmd) files(p submissionPlan) (tester string, files []kubernetes.File, err error) {
	t := p.tester
	h, problems := setup.Of(t)
	if problems != nil {
		return "", nil, problems
	}
	sources := append(h.Sources(), t.Path, filepath.Dir(t.Benchmark.Manifest), filepath.Dir(t.Benchmark.Tasks))
	top := filepath.Dir(t.Path)
	for _, source := range sources {
		for !isWithin(source, top) {
			top = filepath.Dir(top)
		}
	}
	tester, _ = filepath.Rel(top, t.Path) // both are absolute
	if cmd.OnClaim != "" {
		return tester, nil, nil
	}
	env, err := filepath.Abs(cmp.Or(cmd.EnvFile, ".env"))
	if err != nil {
		return "", nil, err
	}
	never := []string{t.Run.OutputDir, p.dir, env}
	for _, secret := range t.Harness.Secrets {
		never = append(never, secret.File)
	}
	texts := map[string]kubernetes.File{}
	for _, source := range sources {
		if err := addFiles(texts, top, source, never); err != nil {
			return "", nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		files = append(files, texts[name])
	}
	return tester, files, checkFiles(files, tester, p.source)
}

func isWithin(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimRight(dir, "/")+"/")
}

// addFiles adds the files of source, except files of version control and files in never.
func addFiles(texts map[string]kubernetes.File, top, source string, never []string) error {
	return filepath.WalkDir(source, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == ".env", slices.Contains(never, name), d.IsDir() && d.Name() == ".git":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%w: %s is no regular file, and cannot be in a ConfigMap: put the files on the claim, and say where by --on-claim", errUsage, name)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Size() > 1<<20 {
			return fmt.Errorf("%w: %s is larger than a ConfigMap: put the files on the claim, and say where by --on-claim", errUsage, name)
		}
		within, _ := filepath.Rel(top, name) // both are absolute
		text, err := os.ReadFile(name)
		texts[name] = kubernetes.File{Path: within, Text: text, Executable: info.Mode()&0o111 != 0}
		return err
	})
}

// checkFiles loads the files as a pod will. The tester file may name a file that is only on this machine.
func checkFiles(files []kubernetes.File, tester string, source testerSource) error {
	dir, err := os.MkdirTemp("", "sbench-submit-")
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
	source.path = filepath.Join(dir, filepath.FromSlash(tester))
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

// connect returns the engine of the job that was submitted from dir.
func (j kubernetesJob) connect(dir string) (engine, error) {
	cluster, err := kubernetes.Connect(j.Context, j.Namespace)
	if err != nil {
		return nil, marked(errUsage, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, submitDir, objectsFile))
	if err != nil {
		return nil, marked(errUsage, err)
	}
	objects, err := kubernetes.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errUsage, dir, err)
	}
	return kubernetesEngine{cluster, j.Name, objects}, nil
}

// kubernetesEngine is a cluster with the Job of a submission.
type kubernetesEngine struct {
	*kubernetes.Cluster
	name    string
	objects kubernetes.Objects
}

// job returns the state of the Job. A deleted Job has ended.
func (k kubernetesEngine) job(ctx context.Context) (job *kubernetes.Status, err error) {
	job, err = k.Status(ctx, k.objects.Job)
	return job, marked(run.ErrInfrastructure, err)
}

func (k kubernetesEngine) states(ctx context.Context) ([]shardState, error) {
	job, err := k.job(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]shardState, len(job.Shards))
	for i, state := range job.Shards {
		if job.Ended && state != kubernetes.Complete {
			state = "ended"
		}
		all[i] = shardState{Shard: i + 1, State: state}
	}
	return all, nil
}

func (k kubernetesEngine) busy(ctx context.Context) (bool, error) {
	job, err := k.job(ctx)
	return err == nil && !job.Ended, err
}

// merge merges the shards on the claim, in a pod. Once all are there, it deletes the keys.
func (k kubernetesEngine) merge(ctx context.Context, a *app, cmd *submitWaitCmd) error {
	if cmd.Sign != "" {
		return fmt.Errorf("%w: --sign: the key is here, and the results are not: sbench merge --sign signs them where the claim is mounted", errUsage)
	}
	state, err := k.job(ctx)
	if err != nil {
		return err
	}
	incomplete := func(state string) bool { return state != kubernetes.Complete }
	if output, err := k.FailedOutput(ctx, k.name); err == nil && len(output) > 0 && slices.ContainsFunc(state.Shards, incomplete) {
		a.say(slog.LevelWarn, "the end of the log of a pod that failed:\n"+strings.TrimSpace(string(output)))
	}
	results := path.Join(kubernetes.ResultsDir, k.name)
	args := []string{"sbench", "merge", results, "--output-dir", path.Join(results, "merged")}
	if cmd.JSON {
		args = append(args, "--json")
	}
	job, err := kubernetes.MergeJob(k.objects.Job, args)
	if err != nil {
		return marked(errUsage, err)
	}
	code, log, err := k.Run(ctx, job)
	if err != nil {
		return marked(run.ErrInfrastructure, err)
	}
	if i := bytes.IndexByte(log, '{'); cmd.JSON && i >= 0 { // warnings are before it
		log = log[i:]
	}
	if err := a.printf("%s", log); err != nil {
		return err
	}
	switch code {
	case 0:
		return k.DeleteKeys(ctx, k.name)
	case codeUsage:
		return fmt.Errorf("%w: merging failed: see the messages above", errUsage)
	case codeNotVerified:
		return fmt.Errorf("%w: merging failed: see the messages above", errNotVerified)
	}
	return fmt.Errorf("%w: not all attempts are there", run.ErrInfrastructure)
}

func (k kubernetesEngine) cancel(ctx context.Context) error {
	return marked(run.ErrInfrastructure, k.Suspend(ctx, k.name, true))
}

// retry resumes a suspended Job, and replaces a Job that has ended: complete shards end at once.
func (k kubernetesEngine) retry(ctx context.Context, a *app, _ []int) error {
	job, err := k.job(ctx)
	if err != nil {
		return err
	}
	if job.Suspended {
		err = k.Suspend(ctx, k.name, false)
	} else if err = k.DeleteJob(ctx, k.name); err == nil {
		err = k.Create(ctx, kubernetes.Objects{Job: k.objects.Job})
	}
	if err != nil {
		return marked(run.ErrInfrastructure, err)
	}
	return a.printf("submitted again as job %s\n", k.name)
}
