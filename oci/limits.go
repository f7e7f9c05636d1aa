package oci

import (
	"errors"
	"fmt"
	"math"

	"github.com/opencontainers/runtime-spec/specs-go"
)

const (
	minMemory = 6 << 20 // runc itself needs about this much to reach execve
	maxMemory = 1 << 50 // version 1 of control groups takes what is near 2^63 for no limit
	cpuPeriod = 100_000 // microseconds; the kernel's default
	minCPUs   = 0.01    // the kernel refuses quotas under 1 ms
)

// WithMemoryLimit caps memory at limit bytes and forbids swap. It fails below
// 6 MiB and above 1 PiB: a missing limit is an error, never "unlimited".
func WithMemoryLimit(limit int64) Option {
	return func(s *specs.Spec) error {
		if limit < minMemory || limit > maxMemory {
			return fmt.Errorf("memory limit of %d bytes is not between %d and %d", limit, minMemory, int64(maxMemory))
		}
		// Limit and swap equal: in the specification swap means memory plus swap.
		resources(s).Memory = &specs.LinuxMemory{Limit: &limit, Swap: &limit}
		return nil
	}
}

// WithoutSwapLimit drops the bound on swap for a kernel that does not account
// it. It comes after [WithMemoryLimit].
func WithoutSwapLimit() Option {
	return func(s *specs.Spec) error {
		if s.Linux.Resources == nil || s.Linux.Resources.Memory == nil {
			return errors.New("WithoutSwapLimit before WithMemoryLimit")
		}
		s.Linux.Resources.Memory.Swap = nil
		return nil
	}
}

// WithPidsLimit caps processes and threads together.
func WithPidsLimit(limit int64) Option {
	return func(s *specs.Spec) error {
		if limit < 1 {
			return fmt.Errorf("process limit of %d is not positive", limit)
		}
		resources(s).Pids = &specs.LinuxPids{Limit: &limit}
		return nil
	}
}

// WithCPUs caps CPU time at cpus cores, fractions allowed.
func WithCPUs(cpus float64) Option {
	return func(s *specs.Spec) error {
		if math.IsNaN(cpus) || cpus < minCPUs || cpus > 4096 {
			return fmt.Errorf("CPU limit of %v cores is not between %v and 4096", cpus, minCPUs)
		}
		period, quota := uint64(cpuPeriod), int64(math.Round(cpus*cpuPeriod))
		resources(s).CPU = &specs.LinuxCPU{Period: &period, Quota: &quota}
		return nil
	}
}

// WithoutCPULimit states that the host can limit memory and processes, but not CPU
// time.
func WithoutCPULimit() Option {
	return func(s *specs.Spec) error { return annotate(s, withoutCPU, "true") }
}

// WithCgroup places the sandbox in the cgroup at p, absolute within the
// cgroup hierarchy, and denies it every device but runc's minimal set.
func WithCgroup(p string) Option {
	return func(s *specs.Spec) error {
		if !cleanAbs(p) || p == "/" {
			return fmt.Errorf("cgroup %q is not a clean absolute path below the root", p)
		}
		s.Linux.CgroupsPath = p
		resources(s).Devices = []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
		return nil
	}
}

// WithoutCgroup states that no kernel limit holds for the sandbox as a whole: what
// looks after it from outside has to see all of its memory. So memory that no
// process has mapped is not to be had: memfd_create(2) is missing, and a System V
// segment goes with the last process that has it (shm_rmid_forced of proc(5)). It
// comes before [WithSeccomp]; New fails when it finds limits beside it.
func WithoutCgroup() Option {
	return func(s *specs.Spec) error {
		if s.Linux.Seccomp != nil {
			return errors.New("WithoutCgroup after WithSeccomp")
		}
		s.Linux.Sysctl = map[string]string{"kernel.shm_rmid_forced": "1"}
		return annotate(s, withoutCgroup, "true")
	}
}

// WithNoFile bounds open files per process. Lower only: a hard limit above the
// container runtime's own needs CAP_SYS_RESOURCE.
func WithNoFile(limit uint64) Option {
	return func(s *specs.Spec) error {
		if limit < 16 {
			return fmt.Errorf("bound of %d open files is below 16", limit)
		}
		return addRlimit(s, "RLIMIT_NOFILE", limit)
	}
}

// WithLowCoreLimit sets RLIMIT_CORE to 0, for an OCI runtime that may not have it higher. There
// a crash in the sandbox starts the host's handler of core files, if there is one.
func WithLowCoreLimit() Option {
	return func(s *specs.Spec) error {
		for i, l := range s.Process.Rlimits {
			if l.Type == "RLIMIT_CORE" {
				s.Process.Rlimits[i] = specs.POSIXRlimit{Type: l.Type}
			}
		}
		return nil
	}
}

// WithNProc bounds the processes of the sandbox's user, for hosts without
// cgroups. It counts per user namespace and user id (setrlimit(2)).
func WithNProc(limit uint64) Option {
	return func(s *specs.Spec) error {
		if limit < 1 {
			return errors.New("bound of 0 processes")
		}
		return addRlimit(s, "RLIMIT_NPROC", limit)
	}
}

// WithDataSize bounds what each process may have in private writable mappings,
// touched or not (setrlimit(2), RLIMIT_DATA). It fails below 256 MiB, with which
// runc itself does not start.
func WithDataSize(bytes uint64) Option {
	return func(s *specs.Spec) error {
		if bytes < 256<<20 {
			return fmt.Errorf("bound of %d bytes of data is below 256 MiB", bytes)
		}
		return addRlimit(s, "RLIMIT_DATA", bytes)
	}
}

// WithOOMScoreAdj makes the kernel prefer the sandbox as a victim. Negative
// values are refused: they need CAP_SYS_RESOURCE and would shield the sandbox
// at the host's cost (proc(5), oom_score_adj).
func WithOOMScoreAdj(adj int) Option {
	return func(s *specs.Spec) error {
		if adj < 0 || adj > 1000 {
			return fmt.Errorf("OOM score adjustment %d is not between 0 and 1000", adj)
		}
		s.Process.OOMScoreAdj = &adj
		return nil
	}
}

func addRlimit(s *specs.Spec, name string, limit uint64) error {
	if hasRlimit(s, name) {
		return fmt.Errorf("%s: given twice", name)
	}
	s.Process.Rlimits = append(s.Process.Rlimits, specs.POSIXRlimit{Type: name, Soft: limit, Hard: limit})
	return nil
}

func resources(s *specs.Spec) *specs.LinuxResources {
	if s.Linux.Resources == nil {
		s.Linux.Resources = &specs.LinuxResources{}
	}
	return s.Linux.Resources
}
