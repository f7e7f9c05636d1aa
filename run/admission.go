package run

import (
	"context"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/proxy"
)

// need is the most that an attempt may use under its limits. CPU time is not part of it: a
// shortage only slows attempts down, and every record states the number of cores.
type need struct{ memory, pids, disk int64 } // memory and disk in bytes

// need returns the larger of the harness's and the verifier's needs: their sandboxes never
// exist at the same time.
func (c config) need(task *compiler.Task) need {
	p := c.policy(task)
	sandboxes := int64(1 + len(task.Environment().Sidecars))
	n := need{memory: sandboxes*p.Limits.Memory + c.held(), pids: sandboxes * p.Limits.Pids, disk: p.WorkspaceBytes + sandboxes*p.Limits.LayerBytes}
	if slices.Contains(c.Degraded, "disk") { // volumes are then in memory, but the stored workspace is on the disk
		n.memory += n.disk
	}
	return n
}

// held returns the most memory that sbench and the kernel hold for the network access of one attempt, in bytes. No
// sandbox is charged for it.
func (c config) held() (n int64) {
	if c.networked() {
		n += c.Egress.Limits.SandboxBytes()
	}
	if r := c.producer().Relay; r != nil {
		n += r.Limits.SandboxBytes()
	}
	return n
}

// admission admits attempts in the order in which they ask, as soon as the host has all that
// their limits allow. An attempt that needs more than the whole host runs alone.
type admission struct {
	mu   sync.Mutex
	jobs int
	free need
	used int  // attempts under way, and further sandboxes of their verifications
	wait bool // an attempt waits
	wake chan struct{}
}

// newAdmission measures the host's memory, processes, and free space on the file system of dir. It
// reserves a tenth of the memory and of the disk for the host itself.
func newAdmission(dir string, jobs int) (*admission, error) {
	memory, err := availableMemory("/")
	if err != nil {
		return nil, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return nil, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return &admission{
		jobs: jobs, wake: make(chan struct{}, 1),
		free: need{memory: memory / 10 * 9, pids: pidsLeft("/"), disk: int64(fs.Bavail) * fs.Bsize / 10 * 9},
	}, nil
}

// take waits until n is free. If something other than a job slot is short, it calls waits once.
func (h *admission) take(ctx context.Context, n need, waits func(short string)) error {
	told := false
	for {
		short := h.try(n, true)
		if short == "" {
			return nil
		}
		if !told && short != "jobs" {
			waits(short)
			told = true
		}
		select {
		case <-h.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// spare takes n for a further sandbox of an attempt under way, if no attempt waits for it.
func (h *admission) spare(n need) bool { return h.try(n, false) == "" }

// try takes n, or returns what is short. An attempt goes before others' further sandboxes.
func (h *admission) try(n need, attempt bool) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !attempt && h.wait {
		return "jobs"
	}
	h.wait = attempt // unless nothing is short
	if h.used > 0 {
		switch {
		case h.used >= h.jobs:
			return "jobs"
		case n.memory > h.free.memory:
			return fmt.Sprintf("for %d MiB of memory (%d MiB are free)", n.memory>>20, max(h.free.memory, 0)>>20)
		case n.pids > h.free.pids:
			return fmt.Sprintf("for %d processes (%d are free)", n.pids, max(h.free.pids, 0))
		case n.disk > h.free.disk:
			return fmt.Sprintf("for %d MiB of disk (%d MiB are free)", n.disk>>20, max(h.free.disk, 0)>>20)
		}
	}
	h.change(n, -1)
	h.wait = false
	return ""
}

func (h *admission) change(n need, sign int64) {
	h.free.memory += sign * n.memory
	h.free.pids += sign * n.pids
	h.free.disk += sign * n.disk
	h.used -= int(sign)
}

func (h *admission) give(n need) {
	h.mu.Lock()
	h.change(n, 1)
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// defaultJobs returns how many attempts the cores can serve at the tasks' limits.
func (p Plan) defaultJobs() int {
	most := p.cpus()
	if most <= 0 {
		return 1
	}
	return max(1, int(float64(goruntime.NumCPU())/most))
}

// descriptors bounds the connections of each sandbox, so that no sandbox can use up the open files
// of this process. A connection takes two.
func descriptors(jobs int) proxy.EgressLimits {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return proxy.EgressLimits{} // the defaults
	}
	const own, ownEach, least = 256, 64, 8
	usual := proxy.DefaultLimits()
	left := int64(min(limit.Cur, 1<<30)) - own - int64(jobs)*ownEach
	most := int(max(least, left/int64(jobs)/4))
	return proxy.EgressLimits{Connections: min(usual.Connections, most)}
}

// availableMemory returns the memory that the kernel could hand out, in bytes, or the lowest limit
// of this process's control groups if the limit is lower. Files are below root, "/" except in tests.
func availableMemory(root string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0, err
	}
	var kib int64
	_, available, _ := strings.Cut(string(text), "\nMemAvailable:")
	if _, err := fmt.Sscan(available, &kib); err != nil {
		return 0, fmt.Errorf("/proc/meminfo: no MemAvailable: %w", err)
	}
	return min(kib<<10, groupMemory(root)), nil
}

// groupMemory returns the lowest memory limit of this process's control group and the groups above
// it, up to the top of what is mounted, where a container has its limit.
func groupMemory(root string) int64 {
	least := int64(math.MaxInt64)
	text, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup")) // missing in a kernel without control groups
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy:controllers:group (cgroups(7))
		if len(fields) < 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		if fields[1] != "" { // version 1
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
			if !slices.Contains(strings.Split(fields[1], ","), "memory") {
				continue
			}
		}
		for group := path.Clean(fields[2]); ; group = path.Dir(group) {
			if limit, ok := numberIn(filepath.Join(root, mount, group, file)); ok {
				least = min(least, limit)
			}
			if group == "/" || group == "." {
				break
			}
		}
	}
	return least
}

// pidsLeft returns half of the processes that the kernel or the container around sbench allows, at
// most 16384. Files are below root, "/" except in tests.
func pidsLeft(root string) int64 {
	most := int64(32768)
	for _, name := range []string{
		"proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max",
		"sys/fs/cgroup/pids.max", "sys/fs/cgroup/pids/pids.max", // the top of what is mounted, which on a host has none
	} {
		if n, ok := numberIn(filepath.Join(root, name)); ok {
			most = min(most, n)
		}
	}
	return most / 2
}

// numberIn reads a number from a kernel file; ok is false if it holds none.
func numberIn(name string) (n int64, ok bool) {
	text, err := os.ReadFile(name)
	if err == nil {
		n, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	}
	return n, err == nil
}
