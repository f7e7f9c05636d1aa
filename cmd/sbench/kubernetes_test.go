//go:build kubernetes

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/record"
)

// TestKubernetes makes the shards of the smoke pack on a real API server, with its controllers
// and containers, in both modes, and with all that goes wrong.
func TestKubernetes(t *testing.T) {
	k := newKubeCluster(t)
	archive, err := containerdtest.Archive()
	must.Do(t, err)
	copyFile(t, archive, filepath.Join(k.claims, "results/images/base.tar"))
	const smoke = "../../benchmarks/terminal-task-smoke"
	must.Do(t, os.CopyFS(filepath.Join(k.claims, "results/smoke"), os.DirFS(smoke)))
	job := func(name string, more ...string) []string {
		return append([]string{"job", "kubernetes", filepath.Join(smoke, "tester-command.yaml"), "--on-claim", "smoke/tester-command.yaml", "--name", name, "--image", k.image, "--claim", "results", "--import", "images/base.tar"}, more...)
	}
	for _, mode := range []struct {
		name string
		args []string
	}{{"private", nil}, {"node", []string{"--node-socket", k.socket, "--node-root", filepath.Join(k.dir, "cr"), "--node-dir", k.nodeDir}}} {
		t.Run(mode.name, func(t *testing.T) {
			k := k.in(t)
			k.apply(job(mode.name, append(mode.args, "--shards", "2")...))
			k.wantSmoke(mode.name)
		})
	}
	t.Run("keys", func(t *testing.T) { k.in(t).keys(job) })
	t.Run("lost pod", func(t *testing.T) {
		k := k.in(t)
		k.apply(job("lost", "--shards", "1"))
		killed := k.killOne("lost")
		k.wantSmoke("lost")
		if pods := k.podsOf("lost"); len(pods) != 2 || !slices.Contains(pods, killed) {
			t.Errorf("pods %v, of which %s was killed", pods, killed)
		}
	})
	t.Run("suspended and continued", func(t *testing.T) {
		k := k.in(t)
		k.apply(job("suspended", "--shards", "2"))
		must.Await(t, "an attempt", func() bool {
			pods := k.podsOf("suspended")
			return len(pods) > 0 && strings.Contains(k.logOf(pods[0]), "[1/")
		})
		k.suspend("suspended", true)
		must.Await(t, "the end of the pods", func() bool {
			status := k.job("suspended").Status
			return status.Active == 0 && (status.Terminating == nil || *status.Terminating == 0)
		})
		k.suspend("suspended", false)
		k.wantSmoke("suspended")
	})
	t.Run("a mistake in all shards", func(t *testing.T) {
		k := k.in(t)
		k.apply(job("mistake", "--shards", "2", "--", "--task", "there is none"))
		if k.ended("mistake") {
			t.Error("the job is complete")
		}
		for _, pod := range k.podsOf("mistake") {
			if strings.Count(pod, "mistake-0-")+strings.Count(pod, "mistake-1-") != 1 || !strings.Contains(k.logOf(pod), "no task is selected") {
				t.Errorf("pods %v: a mistake is repeated: %s", k.podsOf("mistake"), k.logOf(pod))
			}
		}
	})
}

func (k *kubeCluster) apply(args []string) (printed string) {
	k.t.Helper()
	printed, _ = k.sbench(0, args...)
	var job batchv1.Job
	must.Do(k.t, yaml.UnmarshalStrict([]byte(printed), &job))
	_, err := k.api.BatchV1().Jobs("default").Create(k.t.Context(), &job, metav1.CreateOptions{FieldValidation: "Strict"})
	must.Do(k.t, err)
	return printed
}

func (k *kubeCluster) job(name string) *batchv1.Job {
	k.t.Helper()
	job, err := k.api.BatchV1().Jobs("default").Get(k.t.Context(), name, metav1.GetOptions{})
	must.Do(k.t, err)
	return job
}

func (k *kubeCluster) suspend(name string, on bool) {
	k.t.Helper()
	_, err := k.api.BatchV1().Jobs("default").Patch(k.t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, on), metav1.PatchOptions{})
	must.Do(k.t, err)
}

// ended waits for the end of a Job, and reports whether it is complete.
func (k *kubeCluster) ended(name string) (complete bool) {
	k.t.Helper()
	must.Await(k.t, "the end of job "+name, func() bool {
		for _, c := range k.job(name).Status.Conditions {
			if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
				complete = c.Type == batchv1.JobComplete
				return true
			}
		}
		return false
	})
	return complete
}

func (k *kubeCluster) in(t *testing.T) *kubeCluster {
	within := &kubeCluster{testHost: testHost{t: t, dir: k.dir, env: k.env}, api: k.api, node: k.node, socket: k.socket, claims: k.claims, nodeDir: k.nodeDir, image: k.image, mu: k.mu, pods: k.pods}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(within.logs())
		}
	})
	return within
}

// wantSmoke waits for a job, merges its shards, and checks the verdicts of the smoke pack on the claim.
func (k *kubeCluster) wantSmoke(name string) {
	k.t.Helper()
	if !k.ended(name) {
		k.t.Fatalf("job %s failed", name)
	}
	merged := filepath.Join(k.claims, "results", name, "merged")
	k.sbench(0, "merge", filepath.Dir(merged), "--output-dir", merged)
	k.sbench(0, "verify", merged)
	got := map[string]string{}
	_, _, err := record.Read(merged, record.Trust{AcceptUnsigned: true}, func(r record.Record) error {
		got[strings.TrimPrefix(r.TaskID, "terminal-task-smoke/")] = r.FailureReason
		return nil
	})
	must.Do(k.t, err)
	text := must.JSON(k.t, got)
	if want := `{"asset":"","create-file":"","fails":"checker_failed","image-workdir":"","times-out":"producer_timeout"}`; string(text) != want {
		k.t.Errorf("verdicts %s, want %s", text, want)
	}
}

func (k *kubeCluster) podsOf(job string) (names []string) {
	list, err := k.api.CoreV1().Pods("default").List(k.t.Context(), metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
	must.Do(k.t, err)
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	return names
}

// keys makes a run with a key, which must be in the Secret and nowhere else.
func (k *kubeCluster) keys(args func(string, ...string) []string) {
	pack := filepath.Join(k.claims, "results/keyed-pack")
	must.Do(k.t, os.CopyFS(pack, os.DirFS("../../benchmarks/terminal-task-smoke")))
	text := must.Read(k.t, filepath.Join(pack, "tester-command.yaml"))
	must.Do(k.t, os.WriteFile(filepath.Join(pack, "tester.yaml"), []byte(strings.Replace(string(text), "type: command", "type: command\n  env: [TEST_TOKEN]", 1)), 0o644))
	const value = "this-is-a-secret-value"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keyed-keys"}, StringData: map[string]string{"TEST_TOKEN": value}}
	_, err := k.api.CoreV1().Secrets("default").Create(k.t.Context(), secret, metav1.CreateOptions{})
	must.Do(k.t, err)
	command := args("keyed", "--shards", "1")
	command[2], command[4] = filepath.Join(pack, "tester.yaml"), "keyed-pack/tester.yaml"
	if printed := k.apply(command); strings.Contains(printed, value) {
		k.t.Error("the key is printed")
	}
	k.wantSmoke("keyed")
	must.Do(k.t, filepath.WalkDir(filepath.Join(k.claims, "results/keyed"), func(name string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if text, err := os.ReadFile(name); err != nil || strings.Contains(string(text), value) {
				k.t.Errorf("the key is in %s: %v", name, err)
			}
		}
		return err
	}))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(to), 0o755))
	in, err := os.Open(from)
	must.Do(t, err)
	out, err := os.Create(to)
	must.Do(t, err)
	_, err = io.Copy(out, in)
	must.Do(t, err)
	must.Do(t, in.Close())
	must.Do(t, out.Close())
}
