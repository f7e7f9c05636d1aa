//go:build kubernetes

package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/daemon"
)

// kubeCluster is an API server with its controllers, and a node whose kubelet is this test: it
// runs the containers of pods in a containerd, and does of a kubelet's work what they need.
type kubeCluster struct {
	testHost
	api     *kubernetes.Clientset
	node    *containerd.Client
	socket  string // of the node's containerd
	claims  string // directory of volume claims
	nodeDir string
	image   string // sbench's

	mu   *sync.Mutex
	pods map[string]*kubePod // by UID
}

type kubePod struct {
	cancel context.CancelFunc // ends the container in order
	kill   func()             // as if the node had failed
	log    string             // file
}

const kubeNode = "node"

func newKubeCluster(t *testing.T) *kubeCluster {
	t.Helper()
	programs, archive := os.Getenv("SBENCH_TEST_KUBERNETES"), os.Getenv("SBENCH_TEST_CONTAINER")
	if programs == "" || archive == "" {
		t.Fatal("run by make kubernetes")
	}
	dir, err := os.MkdirTemp("/var/tmp", "kube") // short, and where containerd can have snapshots
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, os.RemoveAll(dir)) })
	must.Do(t, os.Chmod(dir, 0o711))
	k := &kubeCluster{testHost: testHost{t: t, dir: dir, env: os.Environ()}, claims: filepath.Join(dir, "claims"), nodeDir: filepath.Join(dir, "node"), mu: new(sync.Mutex), pods: map[string]*kubePod{}}
	k.startNode(archive)
	k.startAPI(programs)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); k.kubelet(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return k
}

// startNode starts the node's containerd, with sbench's image.
func (k *kubeCluster) startNode(archive string) {
	ctx := namespaces.WithNamespace(context.Background(), "k8s.io")
	d, err := daemon.Start(ctx, daemon.Config{Root: filepath.Join(k.dir, "cr"), State: filepath.Join(k.dir, "cs")})
	must.Do(k.t, err)
	k.t.Cleanup(func() { must.Do(k.t, d.Close(context.Background())) })
	must.Do(k.t, os.Chmod(filepath.Join(k.dir, "cr"), 0o711))
	k.socket = d.Address()
	k.node, err = containerd.New(d.Address())
	must.Do(k.t, err)
	k.t.Cleanup(func() { must.Do(k.t, k.node.Close()) })
	f, err := os.Open(archive)
	must.Do(k.t, err)
	images, err := k.node.Import(ctx, f)
	must.Do(k.t, f.Close())
	must.Do(k.t, err)
	k.image = images[0].Name
	image, err := k.node.GetImage(ctx, k.image)
	must.Do(k.t, err)
	must.Do(k.t, image.Unpack(ctx, ""))
	// As systemd makes the host's mounts, and as kubelets need them.
	must.Do(k.t, os.MkdirAll(k.nodeDir, 0o711))
	must.Do(k.t, syscall.Mount(k.nodeDir, k.nodeDir, "", syscall.MS_BIND, ""))
	k.t.Cleanup(func() { must.Do(k.t, syscall.Unmount(k.nodeDir, syscall.MNT_DETACH)) })
	must.Do(k.t, syscall.Mount("", k.nodeDir, "", syscall.MS_SHARED, ""))
}

func (k *kubeCluster) program(name string, args ...string) {
	log, err := os.Create(filepath.Join(k.dir, filepath.Base(name)+".log"))
	must.Do(k.t, err)
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	must.Do(k.t, cmd.Start())
	k.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); k.t.Failed() && err == nil {
			k.t.Logf("%s: %s", name, text[max(0, len(text)-1000):])
		}
	})
}

func (k *kubeCluster) startAPI(programs string) {
	t, ports := k.t, freePorts(k.t, 4)
	secret, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Do(t, err)
	key, tokens := filepath.Join(k.dir, "sa.key"), filepath.Join(k.dir, "tokens")
	must.Do(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(secret)}), 0o600))
	must.Do(t, os.WriteFile(tokens, []byte("test,admin,admin,system:masters\n"), 0o600))
	etcd, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	k.program(programs+"/etcd", "--data-dir="+k.dir+"/etcd", "--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer, "--unsafe-no-fsync")
	k.program(programs+"/kube-apiserver", "--etcd-servers="+etcd, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[2]), "--cert-dir="+k.dir+"/certificates",
		"--token-auth-file="+tokens, "--authorization-mode=AlwaysAllow", "--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged=true", "--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://test", "--service-account-key-file="+key, "--service-account-signing-key-file="+key)
	config := filepath.Join(k.dir, "kubeconfig")
	must.Do(t, os.WriteFile(config, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: admin, namespace: default}}]
clusters: [{name: test, cluster: {server: "https://127.0.0.1:%d", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: test}}]
`, ports[2]), 0o600))
	k.env = append(k.env, "KUBECONFIG="+config)
	loaded, err := clientcmd.BuildConfigFromFlags("", config)
	must.Do(t, err)
	loaded.QPS, loaded.Burst = 100, 200
	k.api, err = kubernetes.NewForConfig(loaded)
	must.Do(t, err)
	must.Await(t, "the API server", func() bool {
		_, err := k.api.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	k.program(programs+"/kube-controller-manager", "--kubeconfig="+config, "--leader-elect=false", fmt.Sprintf("--secure-port=%d", ports[3]),
		"--controllers=job-controller,garbage-collector-controller", "--cert-dir="+k.dir+"/certificates-controllers")

	_, err = k.api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: kubeNode}}, metav1.CreateOptions{})
	must.Do(t, err)
}

func (k *kubeCluster) kubelet(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for ctx.Err() == nil {
		list, err := k.api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			time.Sleep(time.Second)
			continue
		}
		for _, pod := range list.Items {
			k.mu.Lock()
			known := k.pods[string(pod.UID)]
			if known == nil && pod.DeletionTimestamp == nil {
				within, cancel := context.WithCancel(ctx)
				known = &kubePod{cancel: cancel, kill: func() {}, log: filepath.Join(k.dir, pod.Name+".log")}
				k.pods[string(pod.UID)] = known
				running.Go(func() { k.live(within, &pod, known) })
			}
			k.mu.Unlock()
			if known != nil && pod.DeletionTimestamp != nil {
				known.cancel()
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (k *kubeCluster) live(ctx context.Context, pod *corev1.Pod, p *kubePod) {
	api := k.api.CoreV1().Pods(pod.Namespace)
	always := context.WithoutCancel(ctx)
	err := api.Bind(always, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: kubeNode}}, metav1.CreateOptions{})
	if err != nil {
		k.t.Errorf("bind %s: %v", pod.Name, err)
		return
	}
	k.status(pod, corev1.PodRunning, nil)
	code := 1
	volumes, err := k.volumes(pod)
	for _, c := range append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...) {
		if err == nil {
			code, err = k.container(ctx, pod, c, volumes, p)
		}
		if err != nil || code != 0 {
			break
		}
	}
	if err != nil {
		k.t.Errorf("pod %s: %v", pod.Name, err)
	}
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	k.status(pod, phase, &code)
	if now, err := api.Get(always, pod.Name, metav1.GetOptions{}); err == nil && now.DeletionTimestamp != nil {
		_ = api.Delete(always, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	}
}

func (k *kubeCluster) status(pod *corev1.Pod, phase corev1.PodPhase, code *int) {
	ctx := context.Background()
	api := k.api.CoreV1().Pods(pod.Namespace)
	now, err := api.Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return
	}
	now.Status.Phase = phase
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	if code != nil {
		state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(*code), FinishedAt: metav1.Now()}}
	}
	now.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: state}}
	if _, err := api.UpdateStatus(ctx, now, metav1.UpdateOptions{}); err != nil {
		k.t.Logf("status of %s: %v", pod.Name, err)
	}
}

func (k *kubeCluster) volumes(pod *corev1.Pod) (map[string]string, error) {
	dirs := map[string]string{}
	for _, v := range pod.Spec.Volumes {
		dir := filepath.Join(k.dir, "volumes", string(pod.UID), v.Name)
		switch {
		case v.HostPath != nil:
			dir = v.HostPath.Path
		case v.PersistentVolumeClaim != nil:
			dir = filepath.Join(k.claims, v.PersistentVolumeClaim.ClaimName)
		}
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, err
		}
		dirs[v.Name] = dir
	}
	return dirs, nil
}

func (k *kubeCluster) container(ctx context.Context, pod *corev1.Pod, c corev1.Container, volumes map[string]string, p *kubePod) (int, error) {
	always := namespaces.WithNamespace(context.WithoutCancel(ctx), "k8s.io")
	image, err := k.node.GetImage(always, c.Image)
	if err != nil {
		return 0, err
	}
	env := []string{"JOB_COMPLETION_INDEX=" + pod.Annotations["batch.kubernetes.io/job-completion-index"]}
	for _, e := range c.Env {
		value := e.Value
		if from := e.ValueFrom; from != nil && from.SecretKeyRef != nil {
			secret, err := k.api.CoreV1().Secrets(pod.Namespace).Get(always, from.SecretKeyRef.Name, metav1.GetOptions{})
			if err != nil {
				return 0, err
			}
			value = string(secret.Data[from.SecretKeyRef.Key])
		}
		if e.ValueFrom == nil || e.ValueFrom.FieldRef == nil { // the index, which is there already
			env = append(env, e.Name+"="+value)
		}
	}
	options := []oci.SpecOpts{
		oci.WithDefaultSpec(), oci.WithDefaultUnixDevices, oci.WithImageConfig(image), oci.WithProcessArgs(c.Command...), oci.WithEnv(env),
		oci.WithHostNamespace(specs.NetworkNamespace), oci.WithHostResolvconf,
	}
	propagation := "" // as containerd's CRI plugin sets it
	mounts := []specs.Mount{{Type: "cgroup", Source: "cgroup", Destination: "/sys/fs/cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "rw"}}}
	for _, m := range c.VolumeMounts {
		how := []string{"rbind", "rw", "rprivate"}
		if m.MountPropagation != nil {
			how[2] = map[corev1.MountPropagationMode]string{corev1.MountPropagationBidirectional: "rshared", corev1.MountPropagationHostToContainer: "rslave"}[*m.MountPropagation]
			if propagation != "rshared" {
				propagation = how[2]
			}
		}
		if m.MountPath == "/sys/fs/cgroup" {
			mounts = mounts[1:]
		}
		mounts = append(mounts, specs.Mount{Type: "bind", Source: volumes[m.Name], Destination: m.MountPath, Options: how})
	}
	options = append(options, oci.WithMounts(mounts), func(_ context.Context, _ oci.Client, _ *containers.Container, spec *oci.Spec) error {
		spec.Linux.RootfsPropagation = propagation
		return nil
	})
	if *c.SecurityContext.Privileged {
		options = append(options, oci.WithPrivileged, oci.WithAllDevicesAllowed, oci.WithHostDevices, oci.WithNewPrivileges)
	}
	if pod.Spec.HostPID {
		options = append(options, oci.WithHostNamespace(specs.PIDNamespace))
	}
	id := c.Name + "-" + string(pod.UID)
	made, err := k.node.NewContainer(always, id, containerd.WithNewSnapshot(id, image), containerd.WithNewSpec(options...))
	if err != nil {
		return 0, err
	}
	defer func() {
		if err := made.Delete(always, containerd.WithSnapshotCleanup); err != nil {
			k.t.Errorf("delete container %s: %v", id, err)
		}
	}()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }()
	task, err := made.NewTask(always, cio.NewCreator(cio.WithStreams(nil, io.Writer(log), log), cio.WithFIFODir(filepath.Join(k.dir, "fifo"))))
	if err != nil {
		return 0, err
	}
	defer func() { _, _ = task.Delete(always, containerd.WithProcessKill) }()
	exit, err := task.Wait(always)
	if err != nil {
		return 0, err
	}
	if err := task.Start(always); err != nil {
		return 0, err
	}
	k.mu.Lock()
	p.kill = func() { _ = task.Kill(always, syscall.SIGKILL, containerd.WithKillAll) }
	k.mu.Unlock()
	select {
	case <-ctx.Done():
		_ = task.Kill(always, syscall.SIGTERM)
	case status := <-exit:
		return int(status.ExitCode()), status.Error()
	}
	select {
	case status := <-exit:
		return int(status.ExitCode()), status.Error()
	case <-time.After(time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second):
		_ = task.Kill(always, syscall.SIGKILL, containerd.WithKillAll)
		return int((<-exit).ExitCode()), nil
	}
}

// killOne kills the containers of a pod that runs, as the loss of its node does.
func (k *kubeCluster) killOne(job string) string {
	k.t.Helper()
	var name string
	must.Await(k.t, "a pod of "+job, func() bool {
		list, err := k.api.CoreV1().Pods("default").List(k.t.Context(), metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
		must.Do(k.t, err)
		for _, pod := range list.Items {
			if pod.Status.Phase == corev1.PodRunning && strings.Contains(k.logOf(pod.Name), "attempts of each") {
				k.mu.Lock()
				k.pods[string(pod.UID)].kill()
				k.mu.Unlock()
				name = pod.Name
				return true
			}
		}
		return false
	})
	return name
}

func (k *kubeCluster) logOf(pod string) string {
	text, err := os.ReadFile(filepath.Join(k.dir, pod+".log"))
	if err != nil && !os.IsNotExist(err) {
		k.t.Fatal(err)
	}
	return string(text)
}

func (k *kubeCluster) logs() string {
	names := must.Glob(k.t, filepath.Join(k.dir, "*.log"))
	texts := map[string]string{}
	for _, name := range names {
		if base := filepath.Base(name); !strings.HasPrefix(base, "kube") && base != "etcd.log" {
			texts[base] = k.logOf(strings.TrimSuffix(base, ".log"))
		}
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		fmt.Fprintf(&all, "%s:\n%s\n", name, texts[name])
	}
	return all.String()
}
