package oci

import (
	"cmp"
	"errors"
	"fmt"
	"path"
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

// New returns the specification of a sandbox. The caller owns it. The error joins everything that is
// wrong with the Config; the specification is then nil.
func New(c Config) (*specs.Spec, error) {
	mounts, mountsErr := c.mounts()
	filter, filterErr := c.filter()
	if err := errors.Join(c.check(), c.Limits.check(), mountsErr, filterErr); err != nil {
		return nil, fmt.Errorf("runtime spec: %w", err)
	}
	s := &specs.Spec{
		Version: version, Hostname: Hostname, Root: &specs.Root{Path: c.Rootfs}, Mounts: mounts,
		Process: &specs.Process{
			Args: slices.Clone(c.Args), Env: c.env(), Cwd: c.cwd(), User: c.User, OOMScoreAdj: &c.OOMScoreAdj, Rlimits: c.rlimits(),
			Capabilities: &specs.LinuxCapabilities{Bounding: slices.Clone(c.Capabilities), Effective: slices.Clone(c.Capabilities), Permitted: slices.Clone(c.Capabilities)},
			// prctl(2) PR_SET_NO_NEW_PRIVS: setuid, setgid and file capabilities have no effect on execve.
			NoNewPrivileges: true,
		},
		Linux: &specs.Linux{
			Namespaces: c.namespaces(), UIDMappings: slices.Clone(c.Mappings), GIDMappings: slices.Clone(c.Mappings),
			// Nothing mounted on the host later appears inside, and nothing inside on the host.
			RootfsPropagation: "private",
			MaskedPaths:       maskedPaths(), ReadonlyPaths: append([]string{"/proc/sys", "/proc/sysrq-trigger"}, c.ReadOnly...),
			Seccomp: filter, CgroupsPath: c.Limits.Cgroup, Resources: c.Limits.resources(),
		},
	}
	if c.IsolatedProcesses {
		s.Linux.ReadonlyPaths = append(s.Linux.ReadonlyPaths, "/proc")
	}
	if c.Limits.WithoutCgroup {
		s.Linux.Sysctl = map[string]string{"kernel.shm_rmid_forced": "1"}
	}
	return s, nil
}

// faults are what is wrong with a Config.
type faults []error

// need adds a fault unless ok.
func (f *faults) need(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// check returns what is wrong with the fields that other methods do not check.
func (c Config) check() error {
	var faults faults
	need := faults.need
	need(cleanAbs(c.Rootfs), "rootfs %q is not a clean absolute path", c.Rootfs)
	need(len(c.Args) > 0 && c.Args[0] != "", "arguments: the command is empty")
	for i, a := range c.Args {
		need(!strings.ContainsRune(a, 0), "arguments: number %d contains a NUL byte", i)
	}
	for _, e := range c.Env {
		name, _, ok := strings.Cut(e, "=")
		need(ok && name != "" && !strings.ContainsRune(e, 0), "environment: entry for %q is not NAME=value", name) // the value may be a secret
	}
	need(cleanAbs(c.cwd()), "working directory %q is not a clean absolute path", c.Cwd)
	for _, n := range c.Capabilities {
		within := slices.Contains([]string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_NET_BIND_SERVICE"}, n)
		need(within || slices.Contains([]string{"CAP_SYS_CHROOT", "CAP_SETUID", "CAP_SETGID", "CAP_KILL"}, n), "capability %q cannot be given to a sandbox", n)
		need(!within || c.UserNamespace != "" || c.OwnKernel && len(c.Mappings) > 0, "capability %q needs a user namespace of the sandbox's own (sbench doctor says why there is none)", n)
	}
	// A negative adjustment needs CAP_SYS_RESOURCE, and would protect the sandbox at the host's expense.
	need(c.OOMScoreAdj >= 0 && c.OOMScoreAdj <= 1000, "OOM score adjustment %d is not between 0 and 1000", c.OOMScoreAdj)
	need(cleanAbs(c.Network), "network namespace %q is not a clean absolute path", c.Network)
	need(c.UserNamespace == "" || cleanAbs(c.UserNamespace) && !c.OwnKernel, "user namespace %q is not a clean absolute path, or is given to a kernel of the sandbox's own", c.UserNamespace)
	need(len(c.Mappings) == 0 || c.UserNamespace != "" || c.OwnKernel, "mappings without a user namespace")
	for _, m := range c.Mappings {
		need(m.Size > 0, "user namespace: a mapping has size 0")
	}
	for _, p := range c.ReadOnly {
		need(cleanAbs(p) && p != "/", "read-only path %q is not a clean absolute path below the root", p)
	}
	need(c.Files >= 16, "RLIMIT_NOFILE: %d is below 16", c.Files)
	return errors.Join(faults...)
}

// env returns the environment, in which only the last entry with a name is left.
func (c Config) env() (env []string) {
	for _, e := range c.Env {
		name, _, _ := strings.Cut(e, "=")
		env = append(slices.DeleteFunc(env, func(have string) bool { return strings.HasPrefix(have, name+"=") }), e)
	}
	return env
}

func (c Config) cwd() string { return cmp.Or(c.Cwd, "/") }

func (c Config) namespaces() []specs.LinuxNamespace {
	all := []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace}}
	if !c.OwnKernel {
		all = append(all, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	all = append(all, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: c.Network})
	if c.UserNamespace != "" || c.OwnKernel && len(c.Mappings) > 0 {
		all = append(all, specs.LinuxNamespace{Type: specs.UserNamespace, Path: c.UserNamespace})
	}
	return all
}

// mounts gives nosuid and nodev to every mount. Only /dev and /dev/pts lack nodev, since they
// have devices. There is no /sys and no mqueue.
func (c Config) mounts() ([]specs.Mount, error) {
	proc := specs.Mount{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}}
	if c.OwnKernel && c.IsolatedProcesses { // gVisor's runsc knows no read-only paths
		proc.Options = append(proc.Options, "ro")
	}
	dev := specs.Mount{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: append([]string{"nosuid", "noexec"}, sized(DevBytes, DevInodes, 0o755)...)}
	if c.Devices != "" {
		dev = specs.Mount{Destination: "/dev", Type: "bind", Source: c.Devices, Options: []string{"bind", "private", "nosuid", "noexec", "rw"}}
	}
	all := []specs.Mount{proc, dev,
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "max=" + strconv.Itoa(maxTerminals)}},
	}
	var faults faults
	faults.need(c.Devices == "" || cleanAbs(c.Devices), "devices in %q, which is not a clean absolute path", c.Devices)
	add := func(m specs.Mount) {
		faults = append(faults, checkDestination(m.Destination, all))
		all = append(all, m)
	}
	tmpfs := func(dest string, bytes, inodes int64, flags ...string) {
		faults.need(bytes >= 4*kib && inodes >= 2, "tmpfs %q: %d bytes and %d inodes are no usable size", dest, bytes, inodes)
		add(specs.Mount{Destination: dest, Type: "tmpfs", Source: "tmpfs", Options: append(flags, sized(bytes, inodes, 0o1777)...)})
	}
	if c.SharedMemory != 0 {
		tmpfs("/dev/shm", c.SharedMemory, c.SharedMemory/(4*kib)+16, "nosuid", "nodev", "noexec")
	}
	for _, t := range c.Tmpfs {
		tmpfs(t.Dest, t.Bytes, t.Inodes, "nosuid", "nodev")
	}
	for _, b := range c.Binds {
		faults.need(cleanAbs(b.Source), "bind source %q is not a clean absolute path", b.Source)
		mode := "ro"
		if b.Writable {
			mode = "rw"
		}
		add(specs.Mount{Destination: b.Dest, Type: "bind", Source: b.Source, Options: []string{"bind", "private", "nosuid", "nodev", mode}})
	}
	return all, errors.Join(faults...)
}

// checkDestination refuses destinations that would hide the specification's own mounts, or another one.
func checkDestination(dest string, mounts []specs.Mount) error {
	if !cleanAbs(dest) || dest == "/" {
		return fmt.Errorf("mount destination %q is not a clean absolute path below the root", dest)
	}
	for _, top := range []string{"/proc", "/sys", "/dev"} {
		if (dest == top || strings.HasPrefix(dest, top+"/")) && dest != "/dev/shm" {
			return fmt.Errorf("mount destination %q lies in %s", dest, top)
		}
	}
	if slices.ContainsFunc(mounts, func(have specs.Mount) bool { return have.Destination == dest }) {
		return fmt.Errorf("mount destination %q: given twice", dest)
	}
	return nil
}

// maskedPaths lists the files that describe the whole host whatever the namespaces (proc(5)), and
// host-wide counters, by which a sandbox could signal to another. Programs cannot do without /proc/stat,
// meminfo, loadavg and uptime, which stay visible.
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

// cleanAbs reports whether p is absolute, clean, and free of bytes that would truncate it in
// the kernel or in mountinfo.
func cleanAbs(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !strings.ContainsAny(p, "\x00\n")
}
