//go:build kubernetes

package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/run/record"
)

// TestKubernetes makes the shards of the smoke pack on a real API server, with its controllers
// and containers, in both modes, and with all that goes wrong.
func TestKubernetes(t *testing.T) {
	k := newKubeCluster(t)
	archive, err := containerdtest.Archive()
	must(t, err)
	copyFile(t, archive, filepath.Join(k.claims, "results/images/base.tar"))
	tester, err := filepath.Abs("../../benchmarks/terminal-task-smoke/tester-command.yaml")
	must(t, err)
	submit := func(name string, more ...string) (dir string, args []string) {
		dir = filepath.Join(k.dir, "submitted", name)
		return dir, append([]string{"submit", "kubernetes", tester, "-o", dir, "--name", name, "--image", k.image, "--claim", "results", "--import", "images/base.tar"}, more...)
	}
	for _, mode := range []struct {
		name string
		args []string
	}{{"private", nil}, {"node", []string{"--node-socket", k.socket, "--node-root", filepath.Join(k.dir, "cr"), "--node-dir", k.nodeDir}}} {
		t.Run(mode.name, func(t *testing.T) {
			k := k.in(t)
			dir, args := submit(mode.name, append(mode.args, "--shards", "2")...)
			k.sbench(0, args...)
			k.sbench(codeUsage, args...) // it was submitted before
			stdout, _ := k.sbench(0, "submit", "wait", dir)
			if !strings.Contains(stdout, "shards=2 of 2 attempts=5 of 5") {
				t.Fatalf("wait: %s", stdout)
			}
			k.wantSmoke(mode.name)
			if stdout, _ := k.sbench(0, "submit", "status", dir); stdout != "shard 1 of 2: complete\nshard 2 of 2: complete\n" {
				t.Errorf("status: %s", stdout)
			}
		})
	}
	t.Run("keys", func(t *testing.T) { k.in(t).keys(submit) })
	t.Run("lost pod", func(t *testing.T) {
		k := k.in(t)
		dir, args := submit("lost", "--shards", "1")
		k.sbench(0, args...)
		killed := k.killOne("lost")
		k.sbench(0, "submit", "wait", dir)
		k.wantSmoke("lost")
		if pods := k.podsOf("lost"); len(pods) != 2 || !slices.Contains(pods, killed) {
			t.Errorf("pods %v, of which %s was killed", pods, killed)
		}
	})
	t.Run("cancelled and submitted again", func(t *testing.T) {
		k := k.in(t)
		dir, args := submit("cancelled", "--shards", "2", "--parallel", "1")
		k.sbench(0, args...)
		awaited(t, "an attempt", func() bool {
			pods := k.podsOf("cancelled")
			return len(pods) > 0 && strings.Contains(k.logOf(pods[0]), "[1/")
		})
		k.sbench(0, "submit", "cancel", dir)
		stdout, _ := k.sbench(codeInfrastructure, "submit", "wait", dir)
		t.Logf("after cancelling: %s", stdout)
		k.sbench(0, "submit", "retry", dir)
		k.sbench(0, "submit", "wait", dir)
		k.wantSmoke("cancelled")
	})
	t.Run("a mistake in all shards", func(t *testing.T) {
		k := k.in(t)
		dir, args := submit("mistake", "--shards", "2", "--", "--task", "there is none")
		k.sbench(0, args...)
		if _, stderr := k.sbench(codeUsage, "submit", "wait", dir); !strings.Contains(stderr, "no task is selected") {
			t.Errorf("wait: %s", stderr)
		}
		if stdout, _ := k.sbench(0, "submit", "status", dir); !strings.Contains(stdout, "shard 1 of 2: ended") {
			t.Errorf("status: %s", stdout)
		}
		for _, pod := range k.podsOf("mistake") {
			if strings.Count(pod, "mistake-0-")+strings.Count(pod, "mistake-1-") != 1 {
				t.Errorf("pods %v: a mistake is repeated", k.podsOf("mistake"))
			}
		}
	})
	t.Run("refused", func(t *testing.T) { k.in(t).refused(submit) })
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

// wantSmoke checks the verdicts of the smoke pack on the claim.
func (k *kubeCluster) wantSmoke(name string) {
	k.t.Helper()
	merged := filepath.Join(k.claims, "results", name, "merged")
	k.sbench(0, "verify", merged)
	got := map[string]string{}
	_, err := record.Read(merged, record.Trust{AcceptUnsigned: true}, func(r record.Record) error {
		got[strings.TrimPrefix(r.TaskID, "terminal-task-smoke/")] = r.FailureReason
		return nil
	})
	must(k.t, err)
	text, err := json.Marshal(got)
	must(k.t, err)
	if want := `{"asset":"","create-file":"","fails":"checker_failed","image-workdir":"","times-out":"producer_timeout"}`; string(text) != want {
		k.t.Errorf("verdicts %s, want %s", text, want)
	}
}

func (k *kubeCluster) podsOf(job string) (names []string) {
	list, err := k.api.CoreV1().Pods("default").List(k.t.Context(), metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
	must(k.t, err)
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	return names
}

// keys submits a run with a key, which must be in the Secret and nowhere else, and only until
// the run is merged.
func (k *kubeCluster) keys(submit func(string, ...string) (string, []string)) {
	pack := filepath.Join(k.dir, "keyed")
	must(k.t, os.CopyFS(pack, os.DirFS("../../benchmarks/terminal-task-smoke")))
	text, err := os.ReadFile(filepath.Join(pack, "tester-command.yaml"))
	must(k.t, err)
	must(k.t, os.WriteFile(filepath.Join(pack, "tester.yaml"), []byte(strings.Replace(string(text), "type: command", "type: command\n  env: [TEST_TOKEN]", 1)), 0o644))
	const value = "this-is-a-secret-value"
	must(k.t, os.WriteFile(filepath.Join(pack, "keys.env"), []byte("TEST_TOKEN="+value+"\n"), 0o600))
	dir, args := submit("keyed", "--shards", "1", "--env-file", filepath.Join(pack, "keys.env"))
	args[2] = filepath.Join(pack, "tester.yaml")
	printed, _ := k.sbench(0, append(slices.Clone(args), "--print")...)
	k.sbench(0, args...)
	secret, err := k.api.CoreV1().Secrets("default").Get(k.t.Context(), "keyed-keys", metav1.GetOptions{})
	must(k.t, err)
	if string(secret.Data["TEST_TOKEN"]) != value {
		k.t.Errorf("secret: %v", secret.Data)
	}
	config, err := k.api.CoreV1().ConfigMaps("default").Get(k.t.Context(), "keyed-files", metav1.GetOptions{})
	must(k.t, err)
	job, err := k.api.BatchV1().Jobs("default").Get(k.t.Context(), "keyed", metav1.GetOptions{})
	must(k.t, err)
	for name, object := range map[string]any{"--print": printed, "ConfigMap": config, "Job": job} {
		if text, err := json.Marshal(object); err != nil || strings.Contains(string(text), value) {
			k.t.Errorf("the key is in %s: %v", name, err)
		}
	}
	k.sbench(0, "submit", "wait", dir)
	k.wantSmoke("keyed")
	for _, root := range []string{dir, filepath.Join(k.claims, "results/keyed")} {
		must(k.t, filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if text, err := os.ReadFile(name); err != nil || strings.Contains(string(text), value) {
					k.t.Errorf("the key is in %s: %v", name, err)
				}
			}
			return err
		}))
	}
	if _, err := k.api.CoreV1().Secrets("default").Get(k.t.Context(), "keyed-keys", metav1.GetOptions{}); err == nil {
		k.t.Error("the Secret is there after the merge")
	}
}

// refused submits what the API server refuses: nothing must be created.
func (k *kubeCluster) refused(submit func(string, ...string) (string, []string)) {
	dir, args := submit("refused", "--shards", "2")
	printed, _ := k.sbench(0, append(slices.Clone(args), "--print")...)
	file := filepath.Join(k.dir, "objects.yaml")
	for change, want := range map[[2]string]string{
		{"podReplacementPolicy: Failed", "podReplacementPolicy: TerminatingOrFailed"}: "podReplacementPolicy",
		{"restartPolicy: Never", "restartPolicy: Always"}:                             "restartPolicy",
	} {
		must(k.t, os.WriteFile(file, []byte(strings.Replace(printed, change[0], change[1], 1)), 0o644))
		if _, stderr := k.sbench(codeInfrastructure, append(slices.Clone(args), "--objects", file)...); !strings.Contains(stderr, want) {
			k.t.Errorf("%v: %s", change, stderr)
		}
		if _, err := k.api.CoreV1().ConfigMaps("default").Get(k.t.Context(), "refused-files", metav1.GetOptions{}); err == nil {
			k.t.Errorf("%v: the ConfigMap was created", change)
		}
	}
	must(k.t, os.WriteFile(file, []byte(strings.Replace(printed, "restartPolicy:", "restartPolice:", 1)), 0o644))
	if _, stderr := k.sbench(codeUsage, append(slices.Clone(args), "--objects", file)...); !strings.Contains(stderr, `unknown field "restartPolice"`) {
		k.t.Errorf("a key that there is not: %s", stderr)
	}
	// What was printed is accepted as it is.
	must(k.t, os.WriteFile(file, []byte(printed), 0o644))
	k.sbench(0, append(slices.Clone(args), "--objects", file)...)
	k.sbench(0, "submit", "wait", dir)
	k.wantSmoke("refused")
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(to), 0o755))
	in, err := os.Open(from)
	must(t, err)
	out, err := os.Create(to)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, err)
	must(t, in.Close())
	must(t, out.Close())
}
