package oci

import "github.com/opencontainers/runtime-spec/specs-go"

// A Config says what a sandbox is made of, and what it may use. Rootfs, Args, Network, Files and
// Limits are required. The zero value of every other field opens nothing. Sizes are in bytes. Paths
// are absolute and clean, without NUL or newline.
type Config struct {
	Rootfs string // host path of the root file system

	// Args are the words of the first process's command. The OCI runtime looks up the first word in
	// the PATH of Env unless it contains a slash.
	Args []string
	// Env are NAME=value entries, the whole environment. The last entry with a name counts. Errors
	// quote the name but never the value, which may be a secret.
	Env []string
	Cwd string // inside the sandbox; "" means "/"
	// User has the ids of the first process inside the sandbox. The zero value is root without any
	// capability.
	User specs.User
	// Capabilities are the bounding, effective and permitted set of the first process
	// (capabilities(7)). Some admit the system calls that need them. Allowed are:
	//
	//	CAP_SYS_CHROOT                                       for tasks that need chroot(2)
	//	CAP_SETUID, CAP_SETGID, CAP_KILL                     for a trusted first process that runs other
	//	                                                     processes as another user of the sandbox
	//	CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, for package managers and services, with a
	//	CAP_NET_BIND_SERVICE                                 user namespace only: then they apply to
	//	                                                     the namespace's own ids and network
	Capabilities []string
	// OOMScoreAdj is how strongly the kernel prefers the sandbox's processes as victims when memory
	// runs out, from 0 to 1000 (oom_score_adj in proc(5)).
	OOMScoreAdj int

	// Network is the host path of the network namespace to join. The host's network cannot be shared.
	Network string
	// UserNamespace is the host path of the user namespace to join. "" leaves the sandbox in the
	// caller's.
	UserNamespace string
	// Mappings are the mappings of UserNamespace, for user and group ids alike. They are only for runc
	// before 1.1.11, which refuses to join without them. The OCI specification reserves mappings for a
	// namespace that the runtime creates (config-linux.md, "User namespace mappings"), so later versions
	// of runc, and crun, must get none.
	Mappings []specs.LinuxIDMapping
	// OwnKernel is for an OCI runtime that brings a kernel of its own, such as gVisor's runsc. Such a
	// runtime joins no user namespace: it makes one with Mappings, or none without them. It has no use
	// for a cgroup namespace either.
	OwnKernel bool

	// Devices is the host path of a directory to be mounted as /dev, instead of the tmpfs that the OCI
	// runtime fills itself: for hosts on which the runtime cannot create device files. It must contain
	// them, the symbolic links, and the directories pts and shm.
	Devices string
	// SharedMemory is the size of /dev/shm (shm_overview(7)), on which programs cannot be executed;
	// 0 means none.
	SharedMemory int64
	Tmpfs        []Tmpfs
	Binds        []Bind
	// ReadOnly are paths of the root file system that become read-only with everything below them
	// (config-linux.md, "Readonly Paths"). The OCI runtime ignores paths that do not exist.
	ReadOnly []string

	// IsolatedProcesses keeps processes from reading or writing each other's memory: for a trusted
	// process that starts an untrusted process as the same user. /proc, with /proc/PID/mem (proc(5)),
	// becomes read-only, and ptrace(2) fails with EPERM. The filter always denies
	// process_vm_readv(2) and process_vm_writev(2).
	IsolatedProcesses bool
	// OwnFilters lets processes confine themselves with seccomp filters, socket filters and Landlock.
	// The kernel compiles such filters into memory that no limit of the sandbox bounds, within one
	// budget for the whole host (net.core.bpf_jit_limit). It writes each access that Landlock denies to
	// the host's audit log.
	OwnFilters bool
	// Netlink lets processes open netlink sockets (netlink(7)). Messages queued in them take kernel
	// memory that no limit of the sandbox bounds.
	Netlink bool

	Files uint64 // open files of each process, at least 16 (RLIMIT_NOFILE, setrlimit(2))
	// HardLimits lower the limits of each process, soft and hard, by names such as RLIMIT_STACK: an OCI
	// runtime without CAP_SYS_RESOURCE cannot set a limit above its own hard limit (setrlimit(2)). The
	// price of an RLIMIT_CORE of 0: if kernel.core_pattern is a pipe, a crash in the sandbox starts the
	// host's core dump handler (core(5)), which only a limit of 1 prevents.
	HardLimits map[string]uint64
	Limits     Limits

	arch string // a GOARCH name, of the system call filter; "" means this program's
}

// Limits bound a sandbox as a whole: Cgroup with Memory, Pids and CPUs, or WithoutCgroup with
// Processes and Data. A 0 is an error, never "unlimited".
type Limits struct {
	// Cgroup is the path of the sandbox's control group within the hierarchies. The group denies
	// access to every device except the default devices, which the OCI runtime always adds
	// (config-linux.md, "Default Devices").
	Cgroup string
	Memory int64   // bytes, without swap; at least 6 MiB, which runc itself needs
	Pids   int64   // processes and threads (pids.max in cgroup-v2.rst)
	CPUs   float64 // cores, of the time in each 100 ms; at least 0.01, the kernel's least quota
	// WithoutSwap leaves out the bound on swap, for kernels that do not account for swap.
	WithoutSwap bool
	// WithoutCPUs states that the host cannot limit CPU time. CPUs is then 0.
	WithoutCPUs bool

	// WithoutCgroup states that the kernel cannot limit the sandbox as a whole, so that a process outside
	// has to watch its memory use. That process sees only mapped memory, so there is no other memory:
	// memfd_create(2) fails with ENOSYS, and the kernel removes a System V segment with the last
	// process attached to it (kernel.shm_rmid_forced in proc(5)).
	WithoutCgroup bool
	// Processes bounds the processes and threads of the sandbox's user (RLIMIT_NPROC). The kernel
	// counts them per user namespace and user id (setrlimit(2)).
	Processes uint64
	// Data bounds the private writable mappings of each process, whether touched or not (RLIMIT_DATA,
	// setrlimit(2)). It is at least 256 MiB, without which runc does not start.
	Data uint64
}

// A Tmpfs is an empty file system in memory that every user of the sandbox may write to (mode 1777).
// Setuid programs and device nodes have no effect on it; programs can be executed. Its contents count
// towards the memory limit.
type Tmpfs struct {
	Dest   string // as a Bind's
	Bytes  int64  // at least 4 KiB; rounded up to whole KiB
	Inodes int64  // at least 2
}

// A Bind makes a host file or directory visible, without mounts below it. Setuid programs and device
// nodes have no effect.
type Bind struct {
	Source   string // on the host
	Dest     string // inside; not "/", and not in /proc, /sys or /dev, except /dev/shm
	Writable bool
}
