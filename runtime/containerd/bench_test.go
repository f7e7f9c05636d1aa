package containerd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd"
	"github.com/securebench/sbench/runtime/containerd/containerdtest"
)

// dockerImage must be in the rival's store; scripts/bench.sh puts it there.
const dockerImage = "sbench.local/base:bookworm"

// BenchmarkLife takes sandboxes through their whole life, create, start, wait
// for true, delete, next to runc alone on the same specification and, where a
// Docker daemon answers, next to docker with the same restrictions.
func BenchmarkLife(b *testing.B) {
	run, image := containerdtest.NewRun(b, containerdtest.Open(b))
	cfg := runtime.Config{Name: "bench", Image: image, Limits: runtime.DefaultLimits(), Workdir: "/tmp"}
	lives := []struct {
		name string
		life func(n int64) error
	}{
		{"runc", runcLife(b, run, cfg)},
		{"sbench", sbenchLife(run, cfg)},
	}
	if exec.Command("docker", "info").Run() == nil {
		lives = append(lives, struct {
			name string
			life func(n int64) error
		}{"docker", dockerLife})
	}
	for _, parallel := range []int{1, 8, 32} {
		for _, l := range lives {
			b.Run(fmt.Sprintf("%s/parallel=%d", l.name, parallel), func(b *testing.B) { measure(b, parallel, l.life) })
		}
	}
}

// measure runs b.N lives in parallel and reports their latency and rate.
func measure(b *testing.B, parallel int, life func(n int64) error) {
	if err := life(-int64(b.N) - 1); err != nil { // warm
		b.Fatal(err)
	}
	var mu sync.Mutex
	var took []time.Duration
	var next atomic.Int64
	b.ResetTimer()
	begun := time.Now()
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				start := time.Now()
				if err := life(n); err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(start))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	quantile := func(q float64) float64 {
		return float64(took[min(len(took)-1, int(q*float64(len(took))))].Microseconds()) / 1000
	}
	b.ReportMetric(quantile(0.5), "p50-ms")
	b.ReportMetric(quantile(0.99), "p99-ms")
	b.ReportMetric(quantile(1), "max-ms")
	b.ReportMetric(float64(len(took))/time.Since(begun).Seconds(), "lives/s")
}

func sbenchLife(run *containerd.Run, cfg runtime.Config) func(int64) error {
	return func(int64) error {
		ctx := context.Background()
		box, err := run.Create(ctx, cfg)
		if err != nil {
			return err
		}
		exit, err := box.Exec(ctx, runtime.Process{Args: []string{"true"}, Wall: time.Minute})
		if err != nil {
			return err
		}
		if !exit.Success() {
			return fmt.Errorf("sandbox %v", exit)
		}
		return box.Close(ctx)
	}
}

// runcLife runs the specification of a sandbox that stays open meanwhile.
func runcLife(b *testing.B, run *containerd.Run, cfg runtime.Config) func(int64) error {
	b.Helper()
	ctx := context.Background()
	sandbox, err := run.Create(ctx, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := sandbox.Close(ctx); err != nil {
			b.Error(err)
		}
	})
	spec, err := sandbox.(*containerd.Box).Spec(runtime.Process{Args: []string{"true"}})
	if err != nil {
		b.Fatal(err)
	}
	bundles, state := b.TempDir(), b.TempDir()
	cgroup := spec.Linux.CgroupsPath
	return func(n int64) error {
		id := "bench-" + strconv.FormatInt(n, 10)
		own := *spec
		linux := *spec.Linux
		linux.CgroupsPath = cgroup + "-" + id
		own.Linux = &linux
		bundle := filepath.Join(bundles, id)
		text, err := json.Marshal(own)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(bundle, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o644); err != nil {
			return err
		}
		out, err := exec.Command("runc", "--root", state, "run", "--bundle", bundle, id).CombinedOutput()
		if err != nil {
			return fmt.Errorf("runc: %w: %s", err, out)
		}
		return nil
	}
}

// dockerLife is what SecureBench does with Docker, for each task: a container
// that idles, a command in it, and its removal.
func dockerLife(n int64) error {
	name := fmt.Sprintf("sbench-bench-%d-%d", os.Getpid(), n)
	for _, args := range [][]string{
		{"run", "-d", "--name", name, "--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true", "--read-only",
			"--tmpfs", "/tmp:size=256m", "--memory", "1g", "--memory-swap", "1g", "--pids-limit", "256", "--cpus", "1", "--ulimit", "nofile=4096:4096",
			dockerImage, "sleep", "1000"},
		{"exec", name, "true"},
		{"rm", "-f", name},
	} {
		if out, err := exec.Command("docker", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("docker %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}
