package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
)

// BenchmarkThroughput runs b.N trivial terminal tasks with sbench and, if a Docker daemon has the base image,
// does the same work with a container for the harness and a fresh one for the checker.
func BenchmarkThroughput(b *testing.B) {
	dir := b.TempDir()
	containerdtest.Open(b)
	docker := exec.Command("docker", "image", "inspect", containerdtest.Image).Run() == nil
	if !docker {
		b.Log("no Docker daemon with the base image answers: not measured")
	}
	ways := []struct{ name, program, variable string }{{"sbench", "runc", ""}, {"sbench-crun", "crun", "SBENCH_OCI_RUNTIME=crun"}, {"sbench-gvisor", "runsc", "SBENCH_ISOLATION=gvisor"}}
	for _, jobs := range []int{1, 2, 8} {
		for _, way := range ways {
			if _, err := exec.LookPath(way.program); err != nil {
				b.Logf("%s: not measured: %v", way.name, err)
				continue
			}
			b.Run(fmt.Sprintf("%s/jobs=%d", way.name, jobs), func(b *testing.B) { sbenchTasks(b, dir, jobs, way.variable) })
		}
		if docker {
			b.Run(fmt.Sprintf("docker/jobs=%d", jobs), func(b *testing.B) { dockerTasks(b, jobs) })
		}
	}
}

// sbenchTasks runs the tasks with one more environment variable, NAME=VALUE.
func sbenchTasks(b *testing.B, dir string, jobs int, variable string) {
	tester := trivialPack(b, dir, b.N)
	cmd := exec.Command("sbench", "run", "--progress=none", "--config", tester, "--output-dir", filepath.Join(b.TempDir(), "out"), "--jobs", fmt.Sprint(jobs))
	cmd.Env = append(os.Environ(), append(containerdtest.Environment(), variable)...)
	begun := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), fmt.Sprintf("passed=%d ", b.N)) {
		b.Fatalf("%v\n%s", err, out)
	}
	rate(b, begun)
	use := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	b.ReportMetric(float64(use.Maxrss)/1024, "MB")
	b.ReportMetric((cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()).Seconds()/float64(b.N)*1000, "own-cpu-ms/task")
}

func rate(b *testing.B, begun time.Time) {
	b.ReportMetric(float64(b.N)/time.Since(begun).Minutes(), "tasks/min")
}

func trivialPack(b *testing.B, dir string, n int) string {
	return writePack(b, dir, taskRows(n, "grep -q right answer", ""), commandHarness("echo right > answer"))
}

func dockerTasks(b *testing.B, jobs int) {
	dir := b.TempDir()
	var next atomic.Int64
	begun := time.Now()
	var group errgroup.Group
	for range jobs {
		group.Go(func() error {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if err := dockerTask(dir, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	must.Do(b, group.Wait())
	rate(b, begun)
}

func dockerTask(dir string, n int64) error {
	workspace := filepath.Join(dir, fmt.Sprint(n))
	if err := os.Mkdir(workspace, 0o777); err != nil {
		return err
	}
	for step, script := range []string{"echo right > answer", "grep -q right answer"} {
		name := fmt.Sprintf("sbench-throughput-%d-%d-%d", os.Getpid(), n, step)
		for _, args := range [][]string{
			{"run", "-d", "--name", name, "--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true", "--read-only",
				"--tmpfs", "/tmp:size=256m", "--memory", "1g", "--memory-swap", "1g", "--pids-limit", "256", "--cpus", "1",
				"-v", workspace + ":/workspace", "-w", "/workspace", containerdtest.Image, "sleep", "1000"},
			{"exec", name, "sh", "-c", script},
			{"rm", "-f", name},
		} {
			if out, err := exec.Command("docker", args...).CombinedOutput(); err != nil {
				return fmt.Errorf("docker %v: %w: %s", args, err, out)
			}
		}
	}
	return nil
}
