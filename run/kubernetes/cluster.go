// Package kubernetes runs the shards of a run as an Indexed Job of Kubernetes: it creates the objects,
// and follows and ends the Job, with the access that kubectl would have. [Job.Objects] makes the
// objects, a [Cluster] sends them to the API server.
package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/cpuset"
	"sigs.k8s.io/yaml"
)

// Objects are what the shards of a run are made of.
type Objects struct {
	Files *corev1.ConfigMap // nil if there are none
	Keys  *corev1.Secret    // nil if there are none
	Job   *batchv1.Job
}

// YAML returns the objects without Keys.
func (o Objects) YAML() ([]byte, error) {
	job, err := yaml.Marshal(o.Job)
	if err != nil || o.Files == nil {
		return job, err
	}
	files, err := yaml.Marshal(o.Files)
	return slices.Concat(files, []byte(separator), job), err
}

const separator = "---\n"

// Parse parses what YAML returned, strictly.
func Parse(text []byte) (o Objects, err error) {
	for document := range bytes.SplitSeq(text, []byte("\n"+separator)) {
		var kind metav1.TypeMeta
		err := yaml.Unmarshal(document, &kind)
		switch {
		case err != nil:
		case kind.Kind == "ConfigMap":
			err = yaml.UnmarshalStrict(document, &o.Files)
		case kind.Kind == "Job":
			err = yaml.UnmarshalStrict(document, &o.Job)
		default:
			err = fmt.Errorf("kind %q: expected a ConfigMap and a Job", kind.Kind)
		}
		if err != nil {
			return o, err
		}
	}
	if o.Job == nil {
		return o, errors.New("there is no Job")
	}
	return o, nil
}

// A Cluster is a namespace of an API server.
type Cluster struct {
	Namespace   string
	core, batch *rest.RESTClient
}

// Connect returns the cluster that kubectl would use, with another context and namespace
// unless they are empty. It sends nothing.
func Connect(contextName, namespace string) (*Cluster, error) {
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(),
		&clientcmd.ConfigOverrides{CurrentContext: contextName})
	config, err := loaded.ClientConfig()
	if err != nil {
		return nil, err
	}
	c := &Cluster{Namespace: namespace}
	if namespace == "" {
		if c.Namespace, _, err = loaded.Namespace(); err != nil {
			return nil, err
		}
	}
	config.Timeout, config.UserAgent = 30*time.Second, "sbench" // of each request
	// Package kubernetes of client-go has clients for every kind of object. They would double the size of
	// this program and its work before main.
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(batchv1.AddToScheme(scheme))
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	for _, group := range []struct {
		version schema.GroupVersion
		path    string
		client  **rest.RESTClient
	}{{corev1.SchemeGroupVersion, "/api", &c.core}, {batchv1.SchemeGroupVersion, "/apis", &c.batch}} {
		of := rest.CopyConfig(config)
		of.GroupVersion, of.APIPath = &group.version, group.path
		if *group.client, err = rest.RESTClientFor(of); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Create creates the objects, after the API server has checked all of them. If it fails, it deletes
// those that it has created.
func (c *Cluster) Create(ctx context.Context, o Objects) error {
	type object struct {
		client         *rest.RESTClient
		resource, name string
		is             runtime.Object
	}
	var all []object
	if o.Files != nil {
		all = append(all, object{c.core, "configmaps", o.Files.Name, o.Files})
	}
	if o.Keys != nil {
		all = append(all, object{c.core, "secrets", o.Keys.Name, o.Keys})
	}
	all = append(all, object{c.batch, "jobs", o.Job.Name, o.Job})
	for _, try := range []bool{true, false} {
		for i, object := range all {
			err := create(ctx, object.client, object.resource, c.Namespace, object.is, try)
			if err == nil {
				continue
			}
			for _, made := range all[:i] {
				if !try {
					remove := made.client.Delete().Namespace(c.Namespace).Resource(made.resource).Name(made.name)
					err = errors.Join(err, remove.Do(context.WithoutCancel(ctx)).Error())
				}
			}
			return err
		}
	}
	return nil
}

func create(ctx context.Context, client *rest.RESTClient, resource, namespace string, object runtime.Object, try bool) error {
	request := client.Post().Namespace(namespace).Resource(resource).Param("fieldValidation", "Strict").Param("fieldManager", "sbench").Body(object)
	if try {
		request.Param("dryRun", metav1.DryRunAll)
	}
	return request.Do(ctx).Error()
}

// DeleteKeys deletes the Secret of a Job, if there is one.
func (c *Cluster) DeleteKeys(ctx context.Context, job string) error {
	return ignoreMissing(c.core.Delete().Namespace(c.Namespace).Resource("secrets").Name(job + keysSuffix).Do(ctx).Error())
}

// DeleteJob deletes a Job, if there is one, and returns when it and its pods are gone.
func (c *Cluster) DeleteJob(ctx context.Context, name string) error {
	err := c.batch.Delete().Namespace(c.Namespace).Resource("jobs").Name(name).
		Body(&metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}).Do(ctx).Error()
	for err == nil {
		if _, err = c.job(ctx, name); err == nil {
			err = sleep(ctx, pollInterval)
		}
	}
	return ignoreMissing(err)
}

// ignoreMissing returns err, or nil if err says that an object is missing.
func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

const pollInterval = time.Second

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Cluster) job(ctx context.Context, name string) (*batchv1.Job, error) {
	var job batchv1.Job
	err := c.batch.Get().Namespace(c.Namespace).Resource("jobs").Name(name).Do(ctx).Into(&job)
	return &job, err
}

// Suspend has the pods of a Job end cleanly, and the Job gets no new pods. If on is false, the Job gets
// pods again.
func (c *Cluster) Suspend(ctx context.Context, name string, on bool) error {
	return c.batch.Patch(types.MergePatchType).Namespace(c.Namespace).Resource("jobs").Name(name).
		Body(fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, on)).Do(ctx).Error()
}

// Status says how far a Job has got.
type Status struct {
	Shards    []string // Complete, Failed, Waiting, or the phase of its pod and why it waits
	Ended     bool     // no pod runs, and none will be made
	Suspended bool
}

// The states of shards that have no pod.
const (
	Complete = "complete"
	Failed   = "failed"
	Waiting  = "waiting"
)

// Status returns how far the Job has got that was created as of. A Job that does not exist has ended.
func (c *Cluster) Status(ctx context.Context, of *batchv1.Job) (*Status, error) {
	if of.Spec.Completions == nil {
		return nil, errors.New("the job has no completions")
	}
	s := &Status{Shards: slices.Repeat([]string{Waiting}, int(*of.Spec.Completions))}
	job, err := c.job(ctx, of.Name)
	if apierrors.IsNotFound(err) {
		s.Ended = true
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	s.Suspended = job.Spec.Suspend != nil && *job.Spec.Suspend
	_, s.Ended = ended(job)
	pods, err := c.pods(ctx, job.Name)
	if err != nil {
		return nil, err
	}
	set := func(i int, state string) {
		if i >= 0 && i < len(s.Shards) {
			s.Shards[i] = state
		}
	}
	for _, pod := range pods {
		i, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
		if err == nil && (pod.Status.Phase == corev1.PodPending || pod.Status.Phase == corev1.PodRunning) {
			set(i, podState(pod))
		}
	}
	for state, text := range map[string]string{Complete: job.Status.CompletedIndexes, Failed: *cmp.Or(job.Status.FailedIndexes, new(""))} {
		indexes, err := cpuset.Parse(text) // in this form, such as 1,3-5
		if err != nil {
			return nil, fmt.Errorf("indexes %q: %w", text, err)
		}
		for _, i := range indexes.UnsortedList() {
			set(i, state)
		}
	}
	return s, nil
}

// ended reports whether a Job makes no more pods, and why. A suspended Job has ended once its
// pods have.
func ended(job *batchv1.Job) (reason string, ended bool) {
	for _, c := range job.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return cmp.Or(c.Message, string(c.Type)), true
		}
	}
	if job.Spec.Suspend != nil && *job.Spec.Suspend && job.Status.Active == 0 && (job.Status.Terminating == nil || *job.Status.Terminating == 0) {
		return "suspended", true
	}
	return "", false
}

// podState returns the phase of a pod, or why it waits.
func podState(pod corev1.Pod) string {
	for _, s := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if w := s.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
			return fmt.Sprintf("%s (%s)", strings.ToLower(string(pod.Status.Phase)), w.Reason)
		}
	}
	return strings.ToLower(string(pod.Status.Phase))
}

func (c *Cluster) pods(ctx context.Context, job string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.core.Get().Namespace(c.Namespace).Resource("pods").Param("labelSelector", batchv1.JobNameLabel+"="+job).Do(ctx).Into(&list)
	return list.Items, err
}

// Run runs a Job with one pod, replacing a Job of the same name. It waits for the end, and returns the
// exit code and the output of the container.
func (c *Cluster) Run(ctx context.Context, job *batchv1.Job) (code int, log []byte, err error) {
	if err := c.DeleteJob(ctx, job.Name); err != nil {
		return 0, nil, err
	}
	if err := create(ctx, c.batch, "jobs", c.Namespace, job, false); err != nil {
		return 0, nil, err
	}
	for {
		now, err := c.job(ctx, job.Name)
		if err != nil {
			return 0, nil, err
		}
		if why, done := ended(now); done {
			return c.result(ctx, job.Name, why)
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return 0, nil, err
		}
	}
}

// maxLog bounds what is read of a pod's log.
const maxLog = 1 << 20

func (c *Cluster) result(ctx context.Context, job, why string) (int, []byte, error) {
	pods, err := c.pods(ctx, job)
	if err != nil {
		return 0, nil, err
	}
	if len(pods) != 1 || len(pods[0].Status.ContainerStatuses) != 1 || pods[0].Status.ContainerStatuses[0].State.Terminated == nil {
		return 0, nil, fmt.Errorf("job %s has no pod that has ended: %s", job, why)
	}
	log, err := c.log(ctx, pods[0].Name, "limitBytes", strconv.Itoa(maxLog))
	return int(pods[0].Status.ContainerStatuses[0].State.Terminated.ExitCode), log, err
}

func (c *Cluster) log(ctx context.Context, pod, bound, value string) ([]byte, error) {
	stream, err := c.core.Get().Namespace(c.Namespace).Resource("pods").Name(pod).SubResource("log").Param(bound, value).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	return io.ReadAll(io.LimitReader(stream, maxLog))
}

// FailedOutput returns the end of the output of a failed pod of a Job; nil if no pod has failed.
func (c *Cluster) FailedOutput(ctx context.Context, job string) ([]byte, error) {
	pods, err := c.pods(ctx, job)
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodFailed {
			return c.log(ctx, pod.Name, "tailLines", "5")
		}
	}
	return nil, err
}
