package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/sandbox"
)

// dockerImage is in the store of a Docker daemon if scripts/docker-image.sh has put it there.
const dockerImage = "sbench.local/base:bookworm"

// BenchmarkLife measures the whole life of a sandbox that runs true: create, start, wait,
// delete. It compares runc alone with the same specification, crun if it is installed and, where a Docker daemon answers, docker with the same
// restrictions.
func BenchmarkLife(b *testing.B) {
	run, image := containerdtest.NewRun(b, containerdtest.Open(b))
	cfg := runtime.Config{Name: "bench", Image: image, Limits: runtime.DefaultLimits(), Workdir: "/tmp"}
	type rival struct {
		name string
		life func(n int64) error
	}
	rivals := []rival{
		{"runc-run", runcLife(b, run, cfg)},
		{"sbench", sbenchLife(run, cfg)},
	}
	for name, change := range map[string]func(*host.Options){
		"sbench-host-ids": func(o *host.Options) { o.UserNamespace = "host" },
		"sbench-gvisor":   func(o *host.Options) { o.Isolation = string(runtime.GVisor) },
		"sbench-crun":     func(o *host.Options) { o.OCIRuntime = "crun" },
	} {
		life, err := otherLife(b, cfg, change)
		if err != nil {
			b.Logf("%s: not measured: %v", name, err)
			continue
		}
		rivals = append(rivals, rival{name, life})
	}
	slices.SortFunc(rivals, func(a, b rival) int { return strings.Compare(a.name, b.name) })
	if exec.Command("docker", "image", "inspect", dockerImage).Run() == nil {
		rivals = append(rivals, rival{"docker", dockerLife})
	} else {
		b.Log("no Docker daemon with the base image answers: not measured")
	}
	for _, parallel := range []int{1, 8, 32} {
		for _, l := range rivals {
			b.Run(fmt.Sprintf("%s/parallel=%d", l.name, parallel), func(b *testing.B) { measure(b, parallel, l.life) })
		}
	}
}

// measure runs b.N lives in parallel and reports their latency and rate.
func measure(b *testing.B, parallel int, life func(n int64) error) {
	must.Do(b, life(-int64(b.N)-1))
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

func sbenchLife(run *sandbox.Engine, cfg runtime.Config) func(int64) error {
	return func(int64) error {
		ctx := context.Background()
		sandbox, err := run.Create(ctx, cfg)
		if err != nil {
			return err
		}
		exit, err := sandbox.Exec(ctx, runtime.Process{Args: []string{"true"}, Wall: time.Minute})
		if err != nil {
			return err
		}
		if !exit.Success() {
			return fmt.Errorf("sandbox %v", exit)
		}
		return sandbox.Close(ctx)
	}
}

// otherLife returns the life of a sandbox with other options.
func otherLife(b *testing.B, cfg runtime.Config, change func(*host.Options)) (func(int64) error, error) {
	b.Helper()
	ctx := context.Background()
	opts := containerdtest.Options()
	change(&opts)
	c, err := host.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	run, err := c.NewRun(ctx)
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	b.Cleanup(func() { must.Report(b, errors.Join(run.Close(ctx), c.Close(ctx))) })
	return sbenchLife(run, cfg), nil
}

// command runs a command with a file for its output, since processes that runc leaves
// running would hold a pipe open.
func command(args ...string) error {
	out, err := os.CreateTemp("", "sbench-bench-")
	if err != nil {
		return err
	}
	defer func() { _, _ = out.Close(), os.Remove(out.Name()) }()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%v: %w: %s", args, err, text)
	}
	return nil
}

// runcLife returns the whole life by one command, attached to the caller, with the specification of a
// sandbox that stays open until the benchmark ends.
func runcLife(b *testing.B, run *sandbox.Engine, cfg runtime.Config) func(int64) error {
	b.Helper()
	ctx := context.Background()
	base, err := run.Create(ctx, cfg)
	must.Do(b, err)
	b.Cleanup(func() { must.Report(b, base.Close(ctx)) })
	spec, err := base.(*sandbox.Sandbox).Spec(runtime.Process{Args: []string{"true"}})
	must.Do(b, err)
	dir, err := os.MkdirTemp(containerdtest.Options().State, "runc-") // where sbench has its own
	must.Do(b, err)
	b.Cleanup(func() { must.Report(b, os.RemoveAll(dir)) })
	bundles, state := filepath.Join(dir, "bundles"), filepath.Join(dir, "state")
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
		return command("runc", "--root", state, "run", "--bundle", bundle, id)
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
		if err := command(append([]string{"docker"}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkIdle measures the memory that an idle sandbox costs beside the memory of its own processes: the
// memory of the run's shims.
func BenchmarkIdle(b *testing.B) {
	run, image := containerdtest.NewRun(b, containerdtest.Open(b))
	b.Run("sbench", func(b *testing.B) {
		const sandboxes = 8
		for b.Loop() {
			var all []runtime.Sandbox
			for range sandboxes {
				sandbox, err := run.Create(b.Context(), runtime.Config{Name: "idle", Image: image, Limits: runtime.DefaultLimits(), Persistent: true})
				must.Do(b, err)
				all = append(all, sandbox)
			}
			b.ReportMetric(float64(shimMemory(b, run.ID()))/sandboxes/1024, "MiB/sandbox")
			for _, sandbox := range all {
				must.Do(b, sandbox.Close(b.Context()))
			}
		}
	})
}

// shimMemory returns the proportional set size of a run's shims, in KiB.
func shimMemory(b *testing.B, run string) (sum int) {
	b.Helper()
	pids, err := proc.All()
	must.Do(b, err)
	for _, pid := range pids {
		args := proc.Args(pid)
		at := slices.Index(args, "-id")
		if at < 0 || !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") || !strings.HasPrefix(args[at+1], run+"-") {
			continue
		}
		text := must.Read(b, fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		for line := range strings.Lines(string(text)) {
			var kib int
			if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kib); n == 1 {
				sum += kib
			}
		}
	}
	return sum
}
