package oci

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// version is the OCI runtime specification version in every spec. It is not the newest, because runc
// 1.1 refuses or ignores additions of later versions.
const version = "1.0.2"

// Hostname is the host name inside every sandbox (uts_namespaces(7)).
const Hostname = "sbench"

const kib = 1 << 10

// DevBytes and DevInodes are the size of the tmpfs at /dev, in bytes and inodes. It has room
// for device nodes and links, not for data.
const (
	DevBytes  = 64 << 10
	DevInodes = 64
)

// maxTerminals bounds the pseudo-terminals of one sandbox: kernel.pty.max bounds only the
// pseudo-terminals of the whole host (devpts.rst).
const maxTerminals = 256

// An Option opens or sizes one point of a specification. It returns an error if it cannot do exactly
// this. Options have no state: the same Option may be used for several specifications, concurrently.
// A nil Option panics.
type Option func(*draft) error

// always returns an option that cannot fail.
func always(set func(*draft)) Option {
	return func(s *draft) error {
		set(s)
		return nil
	}
}

// A draft is an unfinished specification. Its flags are for the parts that [New] makes after applying
// all options.
type draft struct {
	*specs.Spec
	arch                                   string // of the filter
	ownFilters, netlink, sealed, ownKernel bool
	withoutCgroup, withoutCPU, withoutSwap bool
	rlimits                                map[string]uint64 // given by options
	mostRlimits                            map[string]uint64 // that the OCI runtime can set
}

// New returns a specification for a process in the root file system at rootfs, a clean
// absolute host path, after applying opts in order. Its system call filter is for the
// architecture of this program. The caller owns the result.
//
// These options are required: [WithArgs], [WithNetworkNamespace], [WithNoFile], and either
// [WithoutCgroup] or [WithCgroup] with [WithMemoryLimit], [WithPidsLimit] and [WithCPUs] (or
// [WithoutCPULimit]). The error joins every missing option and every failed option; the
// specification is then nil.
func New(rootfs string, opts ...Option) (*specs.Spec, error) {
	var errs []error
	if !cleanAbs(rootfs) {
		errs = append(errs, fmt.Errorf("rootfs %q is not a clean absolute path", rootfs))
	}
	s := &draft{Spec: base(rootfs), arch: runtime.GOARCH, rlimits: map[string]uint64{}}
	for _, opt := range opts {
		errs = append(errs, opt(s))
	}
	errs = append(errs, s.complete())
	if err := errors.Join(append(errs, missing(s)...)...); err != nil {
		return nil, fmt.Errorf("runtime spec: %w", err)
	}
	return s.Spec, nil
}

// complete makes the filter, sets the resource limits, and annotates for people what options left out or opened.
func (s *draft) complete() error {
	for key, set := range map[string]bool{
		"without-cgroup": s.withoutCgroup, "without-cpu-limit": s.withoutCPU, "own-filters": s.ownFilters, "netlink": s.netlink, "sealed-processes": s.sealed,
	} {
		if set {
			s.Annotations["org.securebench."+key] = "true"
		}
	}
	if r := s.Linux.Resources; s.withoutSwap && r != nil && r.Memory != nil {
		r.Memory.Swap = nil
	}
	if proc := &s.Mounts[0]; s.ownKernel && s.sealed { // gVisor's runsc knows no read-only paths
		proc.Options = append(proc.Options, "ro")
	}
	s.setRlimits()
	var err error
	s.Linux.Seccomp, err = s.filter()
	return err
}

func base(rootfs string) *specs.Spec {
	return &specs.Spec{
		Version:  version,
		Hostname: Hostname,
		Root:     &specs.Root{Path: rootfs},
		Process: &specs.Process{
			Cwd: "/",
			Env: []string{},
			// All five sets must be there: the runtime would choose an absent set.
			Capabilities: &specs.LinuxCapabilities{
				Bounding: []string{}, Effective: []string{}, Inheritable: []string{}, Permitted: []string{}, Ambient: []string{},
			},
			// prctl(2) PR_SET_NO_NEW_PRIVS: setuid, setgid and file capabilities have no effect on execve.
			NoNewPrivileges: true,
		},
		Mounts:      baseMounts(),
		Annotations: map[string]string{}, // left out of JSON while empty
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.MountNamespace}, {Type: specs.CgroupNamespace},
			},
			// Nothing mounted on the host later appears inside, and nothing inside on the host.
			RootfsPropagation: "private",
			MaskedPaths:       maskedPaths(),
			ReadonlyPaths:     []string{"/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}

// baseMounts gives nosuid and nodev to every mount. Only /dev and /dev/pts lack nodev, since they
// have devices. There is no /sys and no mqueue. /proc is the first.
func baseMounts() []specs.Mount {
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: append([]string{"nosuid", "noexec"}, sized(DevBytes, DevInodes, 0o755)...)},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "max=" + strconv.Itoa(maxTerminals)}},
	}
}

// maskedPaths lists the files that describe the whole host whatever the namespaces
// (proc(5)): its hardware, kernel, boot and disks, and in /proc/locks every lock of any
// process. It also lists host-wide counters: a sandbox can change them, for example by opening files
// or pseudo-terminals, and could so signal to another sandbox. /proc/stat, meminfo, loadavg and
// uptime stay visible, because programs cannot do without them.
func maskedPaths() []string {
	return []string{
		"/proc/acpi", "/proc/allocinfo", "/proc/asound", "/proc/buddyinfo", "/proc/bus", "/proc/cgroups", "/proc/cmdline", "/proc/config.gz", "/proc/consoles",
		"/proc/crypto", "/proc/devices", "/proc/diskstats", "/proc/dma", "/proc/driver", "/proc/dynamic_debug", "/proc/fs", "/proc/interrupts", "/proc/iomem",
		"/proc/ioports", "/proc/irq", "/proc/kallsyms", "/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kpagecgroup",
		"/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/locks", "/proc/mdstat", "/proc/misc", "/proc/modules",
		"/proc/mtrr", "/proc/pagetypeinfo", "/proc/partitions", "/proc/pressure", "/proc/sched_debug", "/proc/schedstat", "/proc/scsi",
		"/proc/slabinfo", "/proc/softirqs", "/proc/swaps", "/proc/sys/fs/aio-nr", "/proc/sys/fs/dentry-state", "/proc/sys/fs/file-nr",
		"/proc/sys/fs/inode-nr", "/proc/sys/fs/inode-state", "/proc/sys/fs/quota", "/proc/sys/kernel/pty/nr",
		"/proc/sys/kernel/random/boot_id", "/proc/timer_list", "/proc/timer_stats", "/proc/tty/driver", "/proc/vmallocinfo",
		"/proc/vmstat", "/proc/zoneinfo",
	}
}

func sized(bytes, inodes int64, mode uint32) []string {
	return []string{
		fmt.Sprintf("size=%dk", (bytes+kib-1)/kib),
		fmt.Sprintf("nr_inodes=%d", inodes),
		fmt.Sprintf("mode=%04o", mode),
	}
}

// missing lists the required options that s lacks. New must not invent a value for them.
func missing(s *draft) []error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New(what))
		}
	}
	need(len(s.Process.Args) > 0, "no arguments: use WithArgs")
	need(hasNamespace(s, specs.NetworkNamespace), "no network namespace: use WithNetworkNamespace")
	need(s.rlimits["RLIMIT_NOFILE"] > 0, "no bound on open files: use WithNoFile")
	if s.Linux.Resources == nil && s.Linux.CgroupsPath == "" {
		need(s.withoutCgroup, "no limits: use WithCgroup and the limits, or WithoutCgroup")
		return errs
	}
	r := cmp.Or(s.Linux.Resources, &specs.LinuxResources{})
	need(s.Linux.CgroupsPath != "", "limits without a cgroup: use WithCgroup")
	need(!s.withoutCgroup, "WithoutCgroup together with a cgroup or limits")
	need(r.Memory != nil && r.Memory.Limit != nil, "no memory limit: use WithMemoryLimit")
	need(r.Pids != nil && r.Pids.Limit != nil, "no process limit: use WithPidsLimit")
	need(r.CPU != nil && r.CPU.Quota != nil || s.withoutCPU, "no CPU limit: use WithCPUs or WithoutCPULimit")
	return errs
}

func hasNamespace(s *draft, t specs.LinuxNamespaceType) bool {
	return slices.ContainsFunc(s.Linux.Namespaces, func(ns specs.LinuxNamespace) bool { return ns.Type == t })
}

// cleanAbs reports whether p is absolute, clean, and free of bytes that would truncate it in
// the kernel or in mountinfo.
func cleanAbs(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !strings.ContainsAny(p, "\x00\n")
}
