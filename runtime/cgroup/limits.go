package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/securebench/sbench/runtime"
)

// Verify reads the group's limits on memory, processes and CPUs back from the kernel, since
// an OCI runtime may silently ignore unknown settings. With withoutSwap the group must not
// be able to swap. Limits of 0 are not checked. The error names every limit that differs.
func (g *Group) Verify(want runtime.Limits, withoutSwap bool) error {
	var errs []error
	check := func(controller, name string, ok func(text string) bool) {
		if text := g.read(controller, name); !ok(text) {
			errs = append(errs, fmt.Errorf("%s is %q", name, text))
		}
	}
	page := int64(os.Getpagesize())
	bytes := func(text string) bool { // the kernel rounds down to pages
		n, err := strconv.ParseInt(text, 10, 64)
		return err == nil && n <= want.Memory && n > want.Memory-page
	}
	pids := func(text string) bool { return text == strconv.FormatInt(want.Pids, 10) }
	noSwapLeft := func(text string) bool { return text == "0" || text == "" && noSwap() }
	memory, swap := "memory.max", "memory.swap.max"
	quota, period := "cpu.max", ""
	if g.h.Mode() != V2 { // there the limit on swap is that on memory and swap together
		memory, swap, noSwapLeft = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes
		quota, period = "cpu.cfs_quota_us", g.read("cpu", "cpu.cfs_period_us")
	}
	if want.Memory > 0 {
		check("memory", memory, bytes)
	}
	if want.Memory > 0 && withoutSwap {
		check("memory", swap, noSwapLeft)
	}
	if want.Pids > 0 {
		check("pids", "pids.max", pids)
	}
	if want.CPUs > 0 {
		check("cpu", quota, func(text string) bool { return atMost(strings.Fields(text+" "+period), want.CPUs) })
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cgroup %s: limits are not what was asked for: %w", g.path, err)
	}
	return nil
}

// atMost reports whether a quota and its period, in microseconds, allow no more than
// cpus cores.
func atMost(quota []string, cpus float64) bool {
	if len(quota) != 2 {
		return false
	}
	q, err1 := strconv.ParseFloat(quota[0], 64)
	p, err2 := strconv.ParseFloat(quota[1], 64)
	return err1 == nil && err2 == nil && q > 0 && p > 0 && q/p <= cpus*1.001
}

// LimitSockets limits the memory of the group's TCP and UDP sockets to bytes, and reads the
// limit back, if the kernel accounts for that memory separately. Only version 1 does
// (memory.kmem.tcp.limit_in_bytes in memory.rst), and current OCI runtimes do not set the limit.
func (g *Group) LimitSockets(bytes int64) error {
	const name = "memory.kmem.tcp.limit_in_bytes"
	if g.h.Mode() == V2 || !exists(g.h.byController["memory"], name) {
		return nil
	}
	if err := os.WriteFile(g.file("memory", name), strconv.AppendInt(nil, bytes, 10), 0); err != nil {
		return fmt.Errorf("limit the memory of sockets: %w", err)
	}
	page := int64(os.Getpagesize())
	if got, err := g.number("memory", name, ""); err != nil || got > bytes || got <= bytes-page {
		return fmt.Errorf("limit the memory of sockets: %s is %d, not %d", g.file("memory", name), got, bytes)
	}
	return nil
}

// Stats are the kernel's counters for a group. Counters that the kernel lacks are 0.
type Stats struct {
	CPU        time.Duration // user and system time of all processes
	PeakMemory int64         // bytes
	PeakPids   int64         // processes and threads
	OOMs       int64         // how often the group reached its own limit on memory; see [Group.CountOOMs]
	OOMKills   int64         // processes killed because the group, one above it, or the host was out of memory
	PidsDenied int64         // forks refused because of the limit on processes
}

// Stats reads the counters, which are 0 for a group that does not exist.
func (g *Group) Stats() (s Stats, err error) {
	read := func(controller, name, key string) int64 {
		n, readErr := g.number(controller, name, key)
		err = errors.Join(err, readErr)
		return n
	}
	s = Stats{PeakPids: read("pids", "pids.peak", ""), PidsDenied: read("pids", "pids.events", "max ")}
	if g.h.Mode() == V2 {
		s.CPU = time.Duration(read("cpu", "cpu.stat", "usage_usec ")) * time.Microsecond
		s.PeakMemory = read("memory", "memory.peak", "")
		s.OOMs, s.OOMKills = read("memory", "memory.events", "oom "), read("memory", "memory.events", "oom_kill ")
	} else {
		s.CPU = time.Duration(read("cpuacct", "cpuacct.usage", ""))
		s.PeakMemory = read("memory", "memory.max_usage_in_bytes", "")
		s.OOMKills = read("memory", "memory.oom_control", "oom_kill ")
		s.OOMs = s.OOMKills // where the kernel does not tell, all are its own
		if g.ooms != nil {
			var countErr error
			s.OOMs, countErr = g.ooms.count()
			err = errors.Join(err, countErr)
		}
	}
	return s, err
}
