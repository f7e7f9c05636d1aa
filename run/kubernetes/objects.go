// Package kubernetes makes the Indexed Job with which Kubernetes runs the shards of a run. kubectl sends it to a
// cluster, and follows and ends it.
package kubernetes

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/run"
)

// Where pods find things.
const (
	resultsDir = "/results"        // the claim
	privateDir = "/var/lib/sbench" // what a private containerd keeps
)

// A Job is an Indexed Job with an index for each shard of a run.
type Job struct {
	Settings
	Shards int
	// Command is the command line of a shard, without --shard. Prepare are commands before it.
	Command []string
	Prepare [][]string
	Keys    []string // variables with secrets, which are in the Secret KeysName
	CPUs    float64  // cores of a shard
	Memory  int64    // of a shard, in bytes
}

// Settings are what the user says about a Job. The command line makes flags of them.
type Settings struct {
	Image        string            `required:"" placeholder:"IMAGE" help:"sbench's own container image, in a registry that the nodes can reach."`
	Claim        string            `required:"" placeholder:"NAME" help:"PersistentVolumeClaim for the results, to which all nodes can write."`
	Name         string            `placeholder:"NAME" help:"Name of the job and of the results. Default: from the tester file's run.id."`
	NodeSocket   string            `placeholder:"SOCKET" help:"Use the nodes' containerd, such as /run/containerd/containerd.sock. Default: a containerd in each pod."`
	NodeRoot     string            `default:"/var/lib/containerd" placeholder:"DIR" help:"With --node-socket: the root directory of the nodes' containerd. Default: /var/lib/containerd."`
	NodeDir      string            `default:"/var/lib/sbench" placeholder:"DIR" help:"With --node-socket: each node's directory for images and volumes. Default: /var/lib/sbench."`
	Retries      int32             `default:"3" placeholder:"N" help:"How often a shard may fail before it is not tried again. Default: 3."`
	Grace        time.Duration     `default:"2m" placeholder:"DURATION" help:"How long a pod that is stopped has to end its attempts. Default: 2m."`
	NodeSelector map[string]string `placeholder:"LABEL=VALUE" mapsep:"," help:"Only nodes with this label. Can be repeated."`
	Toleration   []Toleration      `placeholder:"TAINT" help:"A taint to tolerate: KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT. Can be repeated."`
	OnClaim      string            `required:"" placeholder:"FILE" help:"Path of the tester file on the claim, where the files that it names have to be, too."`
}

// New returns the Job for a tester file, without its Command. imports are archives of images on the claim.
func New(s Settings, t *testerfile.File, shards, jobs int, imports []string) (Job, error) {
	j := Job{Settings: s, Shards: shards, Keys: slices.Clone(t.Harness.Env)}
	j.CPUs, j.Memory = run.ShardNeeds(t, jobs)
	j.NodeDir = filepath.Clean(j.NodeDir)
	if t.Verification.Judge != nil {
		j.Keys = append(j.Keys, t.Verification.Judge.Key)
	}
	slices.Sort(j.Keys)
	j.Keys = slices.Compact(j.Keys)
	if j.Name == "" {
		name := strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(run.JobName(t)))
		j.Name = strings.TrimRight(name[:min(len(name), 40)], "-")
	}
	if j.Retries < 0 {
		return j, errors.New("--retries is not negative")
	}
	for _, dir := range []string{cmp.Or(j.NodeSocket, "/"), j.NodeRoot, j.NodeDir} {
		if !filepath.IsAbs(dir) {
			return j, fmt.Errorf("%q is no absolute path", dir)
		}
	}
	for _, name := range append(slices.Clone(imports), j.OnClaim) {
		if !fs.ValidPath(name) {
			return j, fmt.Errorf("%q is no path on the claim, such as images/base.tar", name)
		}
	}
	for _, archive := range imports {
		j.Prepare = append(j.Prepare, []string{"sbench", "image", "import", path.Join(resultsDir, archive)})
	}
	return j, nil
}

// Tester returns the path of the tester file in pods.
func (j Job) Tester() string { return path.Join(resultsDir, j.OnClaim) }

// Output returns the directory of the results in pods.
func (j Job) Output() string { return path.Join(resultsDir, j.Name) }

// KeysName returns the name of the Secret, which the user creates.
func (j Job) KeysName() string { return j.Name + "-keys" }

// YAML returns the Job as a document.
func (j Job) YAML() ([]byte, error) {
	// The name of a pod is the Job's name and the index.
	if problems := validation.IsDNS1035Label(j.Name); len(problems) > 0 || len(j.Name) > 40 {
		return nil, fmt.Errorf("%q cannot be the name of a job: at most 40 lower-case letters, digits and -, and a letter first", j.Name)
	}
	var text bytes.Buffer
	if err := jobTemplate.Execute(&text, j); err != nil {
		return nil, err
	}
	var job batchv1.Job
	if err := yaml.UnmarshalStrict(text.Bytes(), &job); err != nil {
		return nil, err
	}
	return yaml.Marshal(job)
}

//go:embed job.yaml
var jobText string

var jobTemplate = template.Must(template.New("job").Funcs(template.FuncMap{
	"json": func(v any) (string, error) {
		text, err := json.Marshal(v)
		return string(text), err
	},
	"command": command, "dir": path.Dir, "base": path.Base, "join": path.Join,
	"shard": func(j Job) []string {
		return append(slices.Clone(j.Command), "--shard", "auto/"+strconv.Itoa(j.Shards), "--resume")
	},
	"seconds": func(d time.Duration) int64 { return int64(d.Round(time.Second) / time.Second) },
	"cores": func(n float64) *resource.Quantity {
		return resource.NewMilliQuantity(int64(n*1000), resource.DecimalSI)
	},
	"bytes":   func(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) },
	"results": func() string { return resultsDir },
	"private": func() string { return privateDir },
}).Parse(jobText))

// command returns a container's command. tini reaps the orphans of containerd's shims, and passes signals on.
func command(args []string) []string { return append([]string{"tini", "-s", "--"}, args...) }

// A Toleration lets pods run on nodes with a taint.
type Toleration corev1.Toleration

// UnmarshalText parses a taint.
func (t *Toleration) UnmarshalText(text []byte) error {
	name, effect, _ := strings.Cut(string(text), ":")
	name, value, equal := strings.Cut(name, "=")
	*t = Toleration{Key: name, Operator: corev1.TolerationOpExists, Value: value, Effect: corev1.TaintEffect(effect)}
	if equal {
		t.Operator = corev1.TolerationOpEqual
	}
	effects := []corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if name == "" || !slices.Contains(effects, t.Effect) {
		return fmt.Errorf("%q is no taint: write KEY=VALUE:EFFECT, KEY=VALUE, KEY:EFFECT or KEY", text)
	}
	return nil
}
