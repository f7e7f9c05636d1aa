package oci

import (
	"fmt"
	"math"

	"github.com/opencontainers/runtime-spec/specs-go"
)

const (
	minMemory = 6 << 20 // runc itself needs about this much to reach execve
	maxMemory = 1 << 50 // for cgroup v1, values near 2^63 mean no limit
	cpuPeriod = 100_000 // microseconds; the kernel's default
	minCPUs   = 0.01    // the kernel refuses quotas under 1 ms
)

// WithMemoryLimit caps the sandbox's memory at limit bytes and forbids swap. It fails below
// 6 MiB, which runc itself needs, and above 1 PiB. 0 and -1 are errors, never "unlimited".
func WithMemoryLimit(limit int64) Option {
	return func(s *draft) error {
		if limit < minMemory || limit > maxMemory {
			return fmt.Errorf("memory limit of %d bytes is not between %d and %d", limit, minMemory, int64(maxMemory))
		}
		// Limit and Swap are equal: in the specification, swap means memory plus swap.
		resources(s).Memory = &specs.LinuxMemory{Limit: &limit, Swap: &limit}
		return nil
	}
}

// WithoutSwapLimit leaves out the bound on swap that [WithMemoryLimit] sets, for
// kernels that do not account for swap.
func WithoutSwapLimit() Option {
	return always(func(s *draft) { s.withoutSwap = true })
}

// WithPidsLimit caps the number of processes and threads, counted together
// (pids.max in cgroup-v2.rst). It fails unless limit is positive.
func WithPidsLimit(limit int64) Option {
	return func(s *draft) error {
		if limit < 1 {
			return fmt.Errorf("process limit of %d is not positive", limit)
		}
		resources(s).Pids = &specs.LinuxPids{Limit: &limit}
		return nil
	}
}

// WithCPUs caps CPU time at cpus cores, which may be a fraction, in periods of 100 ms. It
// fails below 0.01, since the kernel refuses quotas under 1 ms, above 4096, and for NaN.
func WithCPUs(cpus float64) Option {
	return func(s *draft) error {
		if math.IsNaN(cpus) || cpus < minCPUs || cpus > 4096 {
			return fmt.Errorf("CPU limit of %v cores is not between %v and 4096", cpus, minCPUs)
		}
		period, quota := uint64(cpuPeriod), int64(math.Round(cpus*cpuPeriod))
		resources(s).CPU = &specs.LinuxCPU{Period: &period, Quota: &quota}
		return nil
	}
}

// WithoutCPULimit states that the host can limit memory and processes but not CPU
// time. [New] then accepts a specification without [WithCPUs].
func WithoutCPULimit() Option {
	return always(func(s *draft) { s.withoutCPU = true })
}

// WithCgroup places the sandbox in the cgroup at p, an absolute path within the cgroup
// hierarchy, and denies access to every device except the default devices, which the OCI runtime
// always adds (config-linux.md, "Default Devices"). It fails if p is not clean and absolute
// or is "/". [New] then also requires the memory, process and CPU limits.
func WithCgroup(p string) Option {
	return func(s *draft) error {
		if !cleanAbs(p) || p == "/" {
			return fmt.Errorf("cgroup %q is not a clean absolute path below the root", p)
		}
		s.Linux.CgroupsPath = p
		resources(s).Devices = []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
		return nil
	}
}

// WithoutCgroup states that the kernel cannot limit the sandbox as a whole, so that a process outside
// has to watch its memory use. That process sees only mapped memory, so the option rules out other
// memory: memfd_create(2) fails with ENOSYS, and the kernel removes a System V segment with the last
// process attached to it (kernel.shm_rmid_forced in proc(5)). [New] fails if a cgroup or a limit is
// also given.
func WithoutCgroup() Option {
	return always(func(s *draft) {
		s.Linux.Sysctl = map[string]string{"kernel.shm_rmid_forced": "1"}
		s.withoutCgroup = true
	})
}

// WithNoFile bounds the open files of each process (RLIMIT_NOFILE, setrlimit(2)). There is
// no default: [New] requires it. It fails below 16 and if given twice. An OCI runtime without
// CAP_SYS_RESOURCE fails if the limit is above the runtime's own hard limit.
func WithNoFile(limit uint64) Option {
	return rlimit("RLIMIT_NOFILE", limit, 16)
}

// WithHardLimits lowers the limits of each process, soft and hard, to the given values, by names such
// as RLIMIT_STACK. It is for an OCI runtime without CAP_SYS_RESOURCE, which cannot set a limit above
// its own hard limit (setrlimit(2)). The price of an RLIMIT_CORE of 0: if kernel.core_pattern is a
// pipe, a crash in the sandbox starts the host's core dump handler (core(5)), which only a limit of 1
// prevents.
func WithHardLimits(most map[string]uint64) Option {
	return always(func(s *draft) { s.mostRlimits = most })
}

// WithNProc bounds the number of processes and threads of the sandbox's user (RLIMIT_NPROC),
// for hosts without cgroups. The kernel counts them per user namespace and user id
// (setrlimit(2)). It fails for 0 and if given twice.
func WithNProc(limit uint64) Option {
	return rlimit("RLIMIT_NPROC", limit, 1)
}

// WithDataSize bounds the private writable mappings of each process to bytes, whether
// touched or not (RLIMIT_DATA, setrlimit(2)). It fails below 256 MiB, with which runc
// does not start, and if given twice.
func WithDataSize(bytes uint64) Option {
	return rlimit("RLIMIT_DATA", bytes, 256<<20)
}

// WithOOMScoreAdj sets how strongly the kernel prefers the sandbox's processes as victims
// when memory runs out, from 0 to 1000 (oom_score_adj in proc(5)). It fails for negative values:
// they need CAP_SYS_RESOURCE and would protect the sandbox at the host's expense.
func WithOOMScoreAdj(adj int) Option {
	return func(s *draft) error {
		if adj < 0 || adj > 1000 {
			return fmt.Errorf("OOM score adjustment %d is not between 0 and 1000", adj)
		}
		s.Process.OOMScoreAdj = &adj
		return nil
	}
}

// noCores is the value of RLIMIT_CORE, in bytes. It is smaller than any core file, which
// would carry memory out of the sandbox. If kernel.core_pattern is a pipe, the kernel starts the
// host's handler, outside all limits, for each crash in a sandbox. Only 1 prevents this
// (fs/coredump.c), and 0 does not (core(5)).
const noCores = 1

const unlimited = math.MaxUint64 // RLIM_INFINITY

// defaultRlimits has every resource limit of Linux (setrlimit(2)), because a process inherits a limit
// that nobody sets: the operator's shell would decide it. RLIMIT_NOFILE has no default.
func defaultRlimits() []specs.POSIXRlimit {
	same := func(name string, limit uint64) specs.POSIXRlimit {
		return specs.POSIXRlimit{Type: name, Soft: limit, Hard: limit}
	}
	return []specs.POSIXRlimit{
		same("RLIMIT_CORE", noCores),
		same("RLIMIT_NOFILE", 0),
		// The kernel's own defaults. A stack is memory of the sandbox, so that a process may have a larger one.
		{Type: "RLIMIT_STACK", Soft: 8 << 20, Hard: unlimited},
		same("RLIMIT_MEMLOCK", 8<<20),
		same("RLIMIT_MSGQUEUE", 819_200),
		same("RLIMIT_SIGPENDING", 16_384),
		// No priority above the usual: quotas of processor time do not bound real-time processes.
		same("RLIMIT_NICE", 0), same("RLIMIT_RTPRIO", 0), same("RLIMIT_RTTIME", unlimited),
		// The sandbox's limits bound these as a whole.
		same("RLIMIT_AS", unlimited), same("RLIMIT_DATA", unlimited), same("RLIMIT_RSS", unlimited),
		same("RLIMIT_NPROC", unlimited), same("RLIMIT_CPU", unlimited), same("RLIMIT_FSIZE", unlimited), same("RLIMIT_LOCKS", unlimited),
	}
}

// setRlimits sets all resource limits: those that options have given, and the defaults.
func (s *draft) setRlimits() {
	all := defaultRlimits()
	for i := range all {
		l := &all[i]
		if given, ok := s.rlimits[l.Type]; ok {
			l.Soft, l.Hard = given, given
		}
		if most, ok := s.mostRlimits[l.Type]; ok {
			l.Soft, l.Hard = min(l.Soft, most), min(l.Hard, most)
		}
	}
	s.Process.Rlimits = all
}

// rlimit bounds a resource of each process, soft and hard. A limit below least is an error.
func rlimit(name string, limit, least uint64) Option {
	return func(s *draft) error {
		if limit < least {
			return fmt.Errorf("%s: %d is below %d", name, limit, least)
		}
		if _, ok := s.rlimits[name]; ok {
			return fmt.Errorf("%s: given twice", name)
		}
		s.rlimits[name] = limit
		return nil
	}
}

func resources(s *draft) *specs.LinuxResources {
	if s.Linux.Resources == nil {
		s.Linux.Resources = &specs.LinuxResources{}
	}
	return s.Linux.Resources
}
