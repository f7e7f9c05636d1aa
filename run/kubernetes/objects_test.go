package kubernetes_test

import (
	"path"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/kubernetes"
)

// TestTexts: texts of the tester's stay texts in the template of the Job, whatever they hold.
func TestTexts(t *testing.T) {
	texts := []string{"x: y", `--a="q"`, "{{.Keys}}", "a\tb\nc", "# no comment", "'", "- a", "true", "0o17", "é\u2028"}
	job := kubernetes.Job{
		Settings: kubernetes.Settings{
			Name: "a-job", Image: texts[0], Claim: texts[1], NodeSocket: texts[2], NodeDir: texts[3], NodeRoot: texts[4],
			NodeSelector: map[string]string{"a": texts[7]}, Toleration: []kubernetes.Toleration{{Key: texts[8]}},
		},
		Shards: 2, Command: texts, Prepare: [][]string{texts}, Keys: []string{"KEY"},
	}
	text, err := job.YAML()
	must.Do(t, err)
	var shards batchv1.Job
	must.Do(t, yaml.UnmarshalStrict(text, &shards))
	pod := shards.Spec.Template.Spec
	command := append([]string{"tini", "-s", "--"}, texts...)
	must.Equal(t, command, pod.InitContainers[0].Command)
	must.Equal(t, append(command, "--shard", "auto/2", "--resume"), pod.Containers[0].Command)
	got := []string{
		pod.Containers[0].Image, pod.Volumes[0].PersistentVolumeClaim.ClaimName, pod.Containers[0].Env[0].Value, path.Dir(pod.Containers[0].Env[1].Value), pod.Volumes[2].HostPath.Path,
		pod.NodeSelector["a"], pod.Tolerations[0].Key,
	}
	want := append(texts[:5:5], texts[7], texts[8])
	must.Equal(t, want, got)
	if key := pod.Containers[0].Env[3]; key.Name != "KEY" || key.ValueFrom.SecretKeyRef.Name != job.KeysName() {
		t.Errorf("%+v", key)
	}
}
