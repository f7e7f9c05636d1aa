package kubernetes

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Where pods find things.
const (
	ResultsDir = "/results"          // the claim
	FilesDir   = "/etc/sbench/files" // the files of the ConfigMap
	privateDir = "/var/lib/sbench"   // what a private containerd keeps
)

// A Job is an Indexed Job with an index for each shard of a run.
type Job struct {
	Name       string // of the Job; names of the other objects begin with it
	Shards     int
	Parallel   int // shards at a time; 0 means all
	Image      string
	PullSecret string // with which Image is pulled; "" for none
	Claim      string // a PersistentVolumeClaim for results, that all nodes can write
	// Command is the command line of a shard, without --shard. Prepare are commands before it.
	Command []string
	Prepare [][]string
	Files   []File
	Keys    map[string]string // variables with secrets
	// NodeSocket is the socket of the nodes' containerd, on which sandboxes run; "" gives each pod a
	// containerd of its own. NodeRoot is the root directory of the nodes' containerd, and NodeDir one for
	// what sbench keeps on each node.
	NodeSocket   string
	NodeRoot     string
	NodeDir      string
	CPUs         float64 // cores of a shard
	Memory       int64   // of a shard, in bytes
	Grace        time.Duration
	Retries      int32 // how often an index may fail before it is given up
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
}

// A File is a file of the tester's that pods find in FilesDir.
type File struct {
	Path       string // relative, with slashes
	Text       []byte
	Executable bool
}

// What the names of other objects have after the Job's.
const (
	filesSuffix = "-files"
	keysSuffix  = "-keys"
	mergeSuffix = "-merge"
)

// maxFiles bounds the files of a ConfigMap, of which the API takes 1 MiB with names and all
// (kubernetes.io/docs/concepts/configuration/configmap).
const maxFiles = 1<<20 - 64<<10

// ErrTooLarge means that the files do not fit a ConfigMap.
var ErrTooLarge = errors.New("more than a ConfigMap holds")

// Objects returns what the shards are made of: a ConfigMap, unless there are no Files, a Secret,
// unless there are no Keys, and the Job.
func (j Job) Objects() (Objects, error) {
	// Names of pods are made of the Job's and the index.
	if problems := validation.IsDNS1035Label(j.Name); len(problems) > 0 || len(j.Name) > 40 {
		return Objects{}, fmt.Errorf("%q is no name of a job: at most 40 lower-case letters, digits and -, and a letter first", j.Name)
	}
	size := 0
	for _, f := range j.Files {
		if size += len(f.Text) + len(f.Path); !fs.ValidPath(f.Path) {
			return Objects{}, fmt.Errorf("%q is no path of a file", f.Path)
		}
	}
	if size > maxFiles {
		return Objects{}, fmt.Errorf("%w: %d files of %d bytes", ErrTooLarge, len(j.Files), size)
	}
	o := Objects{Job: j.job()}
	if len(j.Files) > 0 {
		o.Files = j.configMap()
	}
	if len(j.Keys) > 0 {
		o.Keys = &corev1.Secret{TypeMeta: kind("v1", "Secret"), ObjectMeta: j.meta(keysSuffix), Immutable: new(true), StringData: j.Keys}
	}
	return o, nil
}

func kind(version, name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: name}
}

func (j Job) meta(suffix string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: j.Name + suffix, Labels: map[string]string{"app.kubernetes.io/name": "sbench", "app.kubernetes.io/instance": j.Name}}
}

func (j Job) configMap() *corev1.ConfigMap {
	m := &corev1.ConfigMap{TypeMeta: kind("v1", "ConfigMap"), ObjectMeta: j.meta(filesSuffix), Immutable: new(true), Data: map[string]string{}, BinaryData: map[string][]byte{}}
	for i, f := range j.Files {
		if utf8.Valid(f.Text) {
			m.Data[key(i)] = string(f.Text)
		} else {
			m.BinaryData[key(i)] = f.Text
		}
	}
	return m
}

// key returns the key of a file in the ConfigMap, where paths are not possible.
func key(i int) string { return "file" + strconv.Itoa(i) }

func (j Job) job() *batchv1.Job {
	count := int32(j.Shards)
	parallel := count
	if j.Parallel > 0 {
		parallel = min(count, int32(j.Parallel))
	}
	pod := j.pod(j.container("sbench", append(slices.Clone(j.Command), "--shard", "auto/"+strconv.Itoa(j.Shards), "--resume")))
	for i, args := range j.Prepare {
		pod.InitContainers = append(pod.InitContainers, j.container("prepare-"+strconv.Itoa(i), args))
	}
	j.powers(&pod)
	on := func(action batchv1.PodFailurePolicyAction, code int32) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			ContainerName: new("sbench"), Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{code},
		}}
	}
	return &batchv1.Job{TypeMeta: kind("batch/v1", "Job"), ObjectMeta: j.meta(""), Spec: batchv1.JobSpec{
		CompletionMode: new(batchv1.IndexedCompletion), Completions: &count, Parallelism: &parallel,
		BackoffLimitPerIndex: &j.Retries,
		// Two pods of one shard would write to one directory.
		PodReplacementPolicy: new(batchv1.Failed),
		PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
			// A node that is drained or lost is no failure of the shard's.
			{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
				{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
			}},
			on(batchv1.PodFailurePolicyActionFailJob, 2), // the same in every shard
			on(batchv1.PodFailurePolicyActionCount, 3),   // some attempts were not measured; the next pod makes them
		}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: j.meta("").Labels}, Spec: pod},
	}}
}

// MergeJob returns the Job with the command line args that puts the shards of the Job of
// together, without any power over the node. It fails if of is not as Objects makes it.
func MergeJob(of *batchv1.Job, args []string) (*batchv1.Job, error) {
	pod := of.Spec.Template.Spec.DeepCopy()
	isResults := func(name string) bool { return name == "results" }
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(v corev1.Volume) bool { return !isResults(v.Name) })
	if len(pod.Volumes) == 0 || len(pod.Containers) == 0 {
		return nil, errors.New("the job has no volume results, or no container")
	}
	merge := pod.Containers[0]
	merge.Command, merge.Args, merge.Env, merge.EnvFrom = command(args), nil, nil, nil
	merge.VolumeMounts = slices.DeleteFunc(merge.VolumeMounts, func(m corev1.VolumeMount) bool { return !isResults(m.Name) })
	merge.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	pod.HostPID, pod.InitContainers, pod.Containers = false, nil, []corev1.Container{merge}
	return &batchv1.Job{
		TypeMeta: of.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: of.Name + mergeSuffix, Labels: of.Labels},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)),
			Template:     corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: of.Labels}, Spec: *pod},
		},
	}, nil
}

// command returns the command of a container. tini reaps what containerd's shims leave, and
// passes signals on.
func command(args []string) []string { return append([]string{"tini", "-s", "--"}, args...) }

func (j Job) container(name string, args []string) corev1.Container {
	have := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(j.CPUs*1000), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(j.Memory, resource.BinarySI),
	}
	c := corev1.Container{
		Name: name, Image: j.Image, Command: command(args),
		Resources:    corev1.ResourceRequirements{Requests: have, Limits: have},
		VolumeMounts: []corev1.VolumeMount{{Name: "results", MountPath: ResultsDir}},
	}
	if len(j.Files) > 0 {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "files", MountPath: path.Dir(FilesDir), ReadOnly: true})
	}
	for _, name := range slices.Sorted(maps.Keys(j.Keys)) {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: j.Name + keysSuffix}, Key: name,
		}}})
	}
	return c
}

// pod returns a pod that has no more power than others.
func (j Job) pod(c corev1.Container) corev1.PodSpec {
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{c},
		// The API of Kubernetes is none of its business, nor are the addresses of services.
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		TerminationGracePeriodSeconds: new(int64(j.Grace.Round(time.Second) / time.Second)),
		NodeSelector:                  j.NodeSelector, Tolerations: j.Tolerations,
		Volumes: []corev1.Volume{{Name: "results", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: j.Claim}}}},
	}
	if j.PullSecret != "" {
		pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: j.PullSecret}}
	}
	if len(j.Files) == 0 {
		return pod
	}
	files := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: j.Name + filesSuffix}}
	for i, f := range j.Files {
		mode := int32(0o444)
		if f.Executable {
			mode = 0o555
		}
		// In a directory of the volume: the volume's own entries are symbolic links.
		files.Items = append(files.Items, corev1.KeyToPath{Key: key(i), Path: path.Join(path.Base(FilesDir), f.Path), Mode: &mode})
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "files", VolumeSource: corev1.VolumeSource{ConfigMap: files}})
	return pod
}

// powers gives a pod what sandboxes need: docs/scale.md says what each of it is for.
func (j Job) powers(pod *corev1.PodSpec) {
	env := []corev1.EnvVar{{Name: "CONTAINERD_ADDRESS", Value: "none"}, {Name: "SBENCH_ROOT", Value: privateDir}, {Name: "SBENCH_STATE", Value: privateDir + "/state"}}
	volumes := []corev1.Volume{{Name: "private", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	mounts := []corev1.VolumeMount{{Name: "private", MountPath: privateDir}}
	if j.NodeSocket != "" {
		pod.HostPID = true
		env[0].Value, env[1].Value, env[2].Value = j.NodeSocket, j.NodeDir, filepath.Join(j.NodeDir, "state")
		host := func(name, dir string, kind corev1.HostPathType, propagation corev1.MountPropagationMode) {
			volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir, Type: &kind}}})
			mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: dir, MountPropagation: &propagation})
		}
		volumes, mounts = nil, nil
		// The directory, so that a daemon that starts again is found.
		host("containerd", filepath.Dir(j.NodeSocket), corev1.HostPathDirectory, corev1.MountPropagationHostToContainer)
		host("layers", j.NodeRoot, corev1.HostPathDirectory, corev1.MountPropagationHostToContainer)
		host("node", j.NodeDir, corev1.HostPathDirectoryOrCreate, corev1.MountPropagationBidirectional)
		host("cgroup", "/sys/fs/cgroup", corev1.HostPathDirectory, corev1.MountPropagationHostToContainer)
	}
	pod.Volumes = append(pod.Volumes, volumes...)
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			c := &containers[i]
			c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
			c.Env = append(env[:len(env):len(env)], c.Env...)
			c.VolumeMounts = append(c.VolumeMounts, mounts...)
		}
	}
}

// ParseToleration parses KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT, as taints are written.
func ParseToleration(text string) (corev1.Toleration, error) {
	name, effect, _ := strings.Cut(text, ":")
	name, value, equal := strings.Cut(name, "=")
	t := corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Value: value, Effect: corev1.TaintEffect(effect)}
	if equal {
		t.Operator = corev1.TolerationOpEqual
	}
	effects := []corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if name == "" || !slices.Contains(effects, t.Effect) {
		return t, fmt.Errorf("%q is no taint: write KEY=VALUE:EFFECT, KEY=VALUE, KEY:EFFECT or KEY", text)
	}
	return t, nil
}
