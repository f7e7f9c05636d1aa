package oci

import (
	"cmp"
	"errors"
	"math"

	"github.com/opencontainers/runtime-spec/specs-go"
)

const (
	minMemory = 6 << 20 // runc itself needs about this much to reach execve
	maxMemory = 1 << 50 // for cgroup v1, values near 2^63 mean no limit
	cpuPeriod = 100_000 // microseconds; the kernel's default
	minCPUs   = 0.01    // the kernel refuses quotas under 1 ms
	maxCPUs   = 4096
	minData   = 256 << 20
)

// check returns which limits are missing or out of bounds. No value is invented for them.
func (l Limits) check() error {
	var faults faults
	need := faults.need
	if l.WithoutCgroup {
		need(l.Cgroup == "" && l.Memory == 0 && l.Pids == 0 && l.CPUs == 0, "WithoutCgroup together with a cgroup or limits")
		need(l.Processes > 0, "RLIMIT_NPROC: 0 is below 1")
		need(l.Data >= minData, "RLIMIT_DATA: %d is below %d", l.Data, minData)
		return errors.Join(faults...)
	}
	need(cleanAbs(l.Cgroup) && l.Cgroup != "/", "cgroup %q is not a clean absolute path below the root", l.Cgroup)
	need(l.Memory >= minMemory && l.Memory <= maxMemory, "memory limit of %d bytes is not between %d and %d", l.Memory, minMemory, int64(maxMemory))
	need(l.Pids > 0, "process limit of %d is not positive", l.Pids)
	if l.WithoutCPUs {
		need(l.CPUs == 0, "WithoutCPUs together with a CPU limit")
	} else {
		need(l.CPUs >= minCPUs && l.CPUs <= maxCPUs, "CPU limit of %v cores is not between %v and %v", l.CPUs, minCPUs, maxCPUs)
	}
	need(l.Processes == 0 && l.Data == 0, "limits of single processes together with a cgroup")
	return errors.Join(faults...)
}

// resources returns what the control group bounds.
func (l Limits) resources() *specs.LinuxResources {
	if l.WithoutCgroup {
		return nil
	}
	r := &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
		Memory:  &specs.LinuxMemory{Limit: &l.Memory, Swap: &l.Memory}, // in the specification, swap means memory plus swap
		Pids:    &specs.LinuxPids{Limit: &l.Pids},
	}
	if l.WithoutSwap {
		r.Memory.Swap = nil
	}
	if !l.WithoutCPUs {
		period, quota := uint64(cpuPeriod), int64(math.Round(l.CPUs*cpuPeriod))
		r.CPU = &specs.LinuxCPU{Period: &period, Quota: &quota}
	}
	return r
}

// noCores is the value of RLIMIT_CORE, in bytes: smaller than any core file. With 0, the kernel would start the
// host's core dump handler, outside all limits, for each crash in a sandbox (core(5), fs/coredump.c).
const noCores = 1

const unlimited = math.MaxUint64 // RLIM_INFINITY

// rlimits has every resource limit of Linux (setrlimit(2)), because a process inherits a limit
// that nobody sets: the operator's shell would decide it.
func (c Config) rlimits() []specs.POSIXRlimit {
	same := func(name string, limit uint64) specs.POSIXRlimit {
		return specs.POSIXRlimit{Type: name, Soft: limit, Hard: limit}
	}
	all := []specs.POSIXRlimit{
		same("RLIMIT_CORE", noCores),
		same("RLIMIT_NOFILE", c.Files),
		// The kernel's own defaults. A stack is memory of the sandbox, so that a process may have a larger one.
		{Type: "RLIMIT_STACK", Soft: 8 << 20, Hard: unlimited},
		same("RLIMIT_MEMLOCK", 8<<20),
		same("RLIMIT_MSGQUEUE", 819_200),
		same("RLIMIT_SIGPENDING", 16_384),
		// No priority above the usual: quotas of processor time do not bound real-time processes.
		same("RLIMIT_NICE", 0), same("RLIMIT_RTPRIO", 0), same("RLIMIT_RTTIME", unlimited),
		// With a control group, the sandbox's limits bound these as a whole.
		same("RLIMIT_AS", unlimited), same("RLIMIT_DATA", cmp.Or(c.Limits.Data, unlimited)), same("RLIMIT_RSS", unlimited),
		same("RLIMIT_NPROC", cmp.Or(c.Limits.Processes, unlimited)), same("RLIMIT_CPU", unlimited), same("RLIMIT_FSIZE", unlimited), same("RLIMIT_LOCKS", unlimited),
	}
	for i := range all {
		if most, ok := c.HardLimits[all[i].Type]; ok {
			all[i].Soft, all[i].Hard = min(all[i].Soft, most), min(all[i].Hard, most)
		}
	}
	return all
}
