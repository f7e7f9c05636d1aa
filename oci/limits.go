package oci

import (
	"errors"
	"fmt"
	"math"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func WithMemoryLimit(limit int64) Option {
	return func(s *specs.Spec) error {
		if limit < minMemory {
			return fmt.Errorf("memory limit of %d bytes is below %d", limit, minMemory)
		}
		// Limit and swap equal: in the specification swap means memory plus swap.
		resources(s).Memory = &specs.LinuxMemory{Limit: &limit, Swap: &limit}
		return nil
	}
}

func WithSocketMemoryLimit(limit int64) Option {
	return func(s *specs.Spec) error {
		if limit < 1 || s.Linux.Resources == nil || s.Linux.Resources.Memory == nil {
			return fmt.Errorf("socket memory limit of %d bytes, or before WithMemoryLimit", limit)
		}
		s.Linux.Resources.Memory.KernelTCP = &limit
		return nil
	}
}

func WithoutSwapLimit() Option {
	return func(s *specs.Spec) error {
		if s.Linux.Resources == nil || s.Linux.Resources.Memory == nil {
			return errors.New("WithoutSwapLimit before WithMemoryLimit")
		}
		s.Linux.Resources.Memory.Swap = nil
		return nil
	}
}

func WithPidsLimit(limit int64) Option {
	return func(s *specs.Spec) error {
		if limit < 1 {
			return fmt.Errorf("process limit of %d is not positive", limit)
		}
		resources(s).Pids = &specs.LinuxPids{Limit: &limit}
		return nil
	}
}

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

func WithoutCPULimit() Option {
	return func(s *specs.Spec) error { return annotate(s, withoutCPU, "true") }
}

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

func WithoutCgroup() Option {
	return func(s *specs.Spec) error {
		if s.Linux.Seccomp != nil {
			return errors.New("WithoutCgroup after WithSeccomp")
		}
		s.Linux.Sysctl = map[string]string{"kernel.shm_rmid_forced": "1"}
		return annotate(s, withoutCgroup, "true")
	}
}

func WithNoFile(limit uint64) Option {
	return func(s *specs.Spec) error {
		if limit < 16 {
			return fmt.Errorf("bound of %d open files is below 16", limit)
		}
		return addRlimit(s, "RLIMIT_NOFILE", limit)
	}
}

func WithNProc(limit uint64) Option {
	return func(s *specs.Spec) error {
		if limit < 1 {
			return errors.New("bound of 0 processes")
		}
		return addRlimit(s, "RLIMIT_NPROC", limit)
	}
}

func WithDataSize(bytes uint64) Option {
	return func(s *specs.Spec) error {
		if bytes < 256<<20 {
			return fmt.Errorf("bound of %d bytes of data is below 256 MiB", bytes)
		}
		return addRlimit(s, "RLIMIT_DATA", bytes)
	}
}

func WithFileSize(bytes uint64) Option {
	return func(s *specs.Spec) error {
		if bytes < 1 {
			return errors.New("bound of 0 bytes for files")
		}
		return addRlimit(s, "RLIMIT_FSIZE", bytes)
	}
}

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
