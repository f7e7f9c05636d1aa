// Package admission lets attempts begin as soon as the host has room for them. [New] measures the host;
// [Host.Take] and [Host.Give] are for attempts, [Host.Spare] is for further sandboxes of an attempt.
package admission

import (
	"context"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Need is the most that something may use under its limits. CPU time is not part of it: a
// shortage only slows attempts down, and every record states the number of cores.
type Need struct{ Memory, Pids, Disk int64 } // Memory and Disk in bytes

// Plus returns the sum of two needs.
func (n Need) Plus(m Need) Need { return Need{n.Memory + m.Memory, n.Pids + m.Pids, n.Disk + m.Disk} }

// A Host admits attempts in the order in which they ask, as soon as the host has all that
// their limits allow. An attempt that needs more than the whole host runs alone.
type Host struct {
	mu   sync.Mutex
	jobs int
	free Need
	used int  // attempts in progress, and further sandboxes of their verifications
	wait bool // an attempt waits
	wake chan struct{}
}

// New measures the host's memory, processes, and free space on the file system of dir. It
// reserves a tenth of the memory and of the disk for the host itself.
func New(dir string, jobs int) (*Host, error) {
	memory, err := AvailableMemory("/")
	if err != nil {
		return nil, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return nil, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return &Host{
		jobs: jobs, wake: make(chan struct{}, 1),
		free: Need{Memory: memory / 10 * 9, Pids: AvailablePids("/"), Disk: int64(fs.Bavail) * fs.Bsize / 10 * 9},
	}, nil
}

// Take waits until n is free. If something other than a job slot is short, it calls waits once.
func (h *Host) Take(ctx context.Context, n Need, waits func(short string)) error {
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
			h.mu.Lock()
			defer h.mu.Unlock()
			h.wait = false
			return context.Cause(ctx)
		}
	}
}

// Spare takes n for a further sandbox of an attempt in progress, unless another attempt waits to begin.
func (h *Host) Spare(n Need) bool { return h.try(n, false) == "" }

// try takes n, or returns what is short. While an attempt waits, no attempt gets further sandboxes.
func (h *Host) try(n Need, attempt bool) string {
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
		case n.Memory > h.free.Memory:
			return fmt.Sprintf("for %d MiB of memory (%d MiB are free)", n.Memory>>20, max(h.free.Memory, 0)>>20)
		case n.Pids > h.free.Pids:
			return fmt.Sprintf("for %d processes (%d are free)", n.Pids, max(h.free.Pids, 0))
		case n.Disk > h.free.Disk:
			return fmt.Sprintf("for %d MiB of disk (%d MiB are free)", n.Disk>>20, max(h.free.Disk, 0)>>20)
		}
	}
	h.change(n, -1)
	h.wait = false
	return ""
}

func (h *Host) change(n Need, sign int64) {
	h.free.Memory += sign * n.Memory
	h.free.Pids += sign * n.Pids
	h.free.Disk += sign * n.Disk
	h.used -= int(sign)
}

// Give returns what was taken.
func (h *Host) Give(n Need) {
	h.mu.Lock()
	h.change(n, 1)
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// AvailableMemory returns the memory that the kernel could hand out, in bytes, or the lowest limit
// of this process's control groups if the limit is lower. Files are below root, "/" except in tests.
func AvailableMemory(root string) (int64, error) {
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

// AvailablePids returns half of the processes that the kernel or the container around sbench allows, at
// most 16384. Files are below root, "/" except in tests.
func AvailablePids(root string) int64 {
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
