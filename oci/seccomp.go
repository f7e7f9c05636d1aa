package oci

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// The values of errno are the same on amd64 and arm64 (errno(3)).
const (
	errnoPERM           = 1
	errnoNOMEM          = 12
	errnoINVAL          = 22
	errnoNOSYS          = 38
	errnoPROTONOSUPPORT = 93
)

// Flags of clone(2) that a sandbox must not use. With CLONE_PTRACE or CLONE_PARENT, a process of the
// host could become the tracer or the parent of a new process in the sandbox. The sandbox's PID
// namespace could then not end before that host process had reaped the new process.
const (
	cloneNamespaces = 0x7e02_0000 // CLONE_NEW*: NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
	clonePtrace     = 0x2000
	cloneParent     = 0x8000
)

// filter returns the system call filter (seccomp(2)), for amd64 or arm64. Any other architecture is an
// error.
//
// The filter is an allow-list. It never kills the process, because that would look like the task's
// fault. Calls that are not on the list:
//
//	clone3(2)            ENOSYS: C libraries fall back to clone(2), where a filter sees the flags
//	a few more           ENOSYS: programs can do without them
//	other architectures  closed: their 32-bit entry points reach socketcall(2), where a filter does
//	                     not see the arguments
//	all other calls      EPERM
func (c Config) filter() (*specs.LinuxSeccomp, error) {
	arch := cmp.Or(c.arch, runtime.GOARCH)
	native, ok := map[string]specs.Arch{"amd64": specs.ArchX86_64, "arm64": specs.ArchAARCH64}[arch]
	if !ok {
		return nil, fmt.Errorf("seccomp: no profile for architecture %q", arch)
	}
	perm := uint(errnoPERM)
	allowed, hugePages := allowedSyscalls(), hugePageRules()
	if c.IsolatedProcesses {
		allowed = slices.DeleteFunc(allowed, func(name string) bool { return name == "ptrace" })
	}
	absent := []string{"clone3", "io_setup"} // programs can do without them
	if landlock := strings.Fields("landlock_add_rule landlock_create_ruleset landlock_restrict_self"); c.OwnFilters {
		allowed = append(allowed, landlock...)
	} else {
		absent = append(absent, landlock...) // each denial would be a line in the host's audit log
	}
	if c.OwnKernel { // gVisor has the names of POSIX queues, which nothing bounds, without the queues
		allowed = slices.DeleteFunc(allowed, func(name string) bool { return strings.HasPrefix(name, "mq_") })
	}
	if c.Limits.WithoutCgroup {
		absent = append(absent, "memfd_create")
		hugePages = slices.DeleteFunc(hugePages, func(r specs.LinuxSyscall) bool { return r.Names[0] == "memfd_create" })
	}
	rules := slices.Concat(
		[]specs.LinuxSyscall{
			{Names: allowed, Action: specs.ActAllow},
			allow("clone", block{cloneNamespaces | clonePtrace | cloneParent, 0}.match(0)),
			answer(errnoNOSYS, absent),
			answer(errnoINVAL, []string{"splice"}), // as for files that do not support it; see getOptionRules
			// A priority over the host's own writes, and the writing of what all of the host has changed.
			answer(0, []string{"ioprio_set", "sync", "syncfs"}),
		},
		filterRules(c.OwnFilters), optionRules(c.OwnFilters, c.OwnKernel), getOptionRules(), socketRules(c.Netlink), ioctlRules(), adviceRules(), coreRules(),
		hugePages, personalityRules(), mknodRules(), fcntlRules(),
	)
	if slices.Contains(c.Capabilities, "CAP_SYS_CHROOT") {
		rules = append(rules, allow("chroot"))
	}
	if c.OwnKernel {
		rules = forOwnKernel(rules)
	}
	return &specs.LinuxSeccomp{
		DefaultAction: specs.ActErrno, DefaultErrnoRet: &perm,
		Architectures: []specs.Arch{native},
		Syscalls:      rules,
	}, nil
}

// forOwnKernel returns the rules for Config.OwnKernel, which the sandbox's kernel (gVisor's runsc) applies. It knows no
// other error than EPERM, so calls with other errors are left to it. Most conditions on arguments are left out: they
// protect the host's kernel, which the calls do not reach, and runsc takes a millisecond for each.
func forOwnKernel(rules []specs.LinuxSyscall) []specs.LinuxSyscall {
	kept := []string{"clone", "mknod", "mknodat", "setsockopt", "socket", "socketpair"} // the sockets are the host's
	unconditional := specs.LinuxSyscall{Action: specs.ActAllow}
	var conditional []specs.LinuxSyscall
	for _, r := range rules {
		if r.Action == specs.ActErrno && *r.ErrnoRet != errnoPERM {
			r.Action, r.ErrnoRet = specs.ActAllow, nil
		}
		if len(r.Args) > 0 && slices.Contains(kept, r.Names[0]) {
			conditional = append(conditional, r)
		} else {
			unconditional.Names = append(unconditional.Names, r.Names...)
		}
	}
	slices.Sort(unconditional.Names)
	unconditional.Names = slices.Compact(unconditional.Names)
	return append([]specs.LinuxSyscall{unconditional}, conditional...)
}

// socketRules admit UNIX sockets, and INET and INET6 sockets of the protocols built into the
// kernel: TCP, UDP and ICMP echo. They admit socket pairs for UNIX only. The reasons against others:
//
//	UDP-Lite, SCTP, SMC  the kernel loads a module, and does not account for memory as with TCP
//	MPTCP                the same for memory, before Linux 6.2
//	AF_VSOCK             network namespaces do not contain it
//	AF_NETLINK           queued messages take kernel memory that is charged to no cgroup, some
//	                     hundred kilobytes per socket
//
// AF_NETLINK fails as on a kernel without netlink, for which C libraries and Node.js are prepared.
// Its audit protocol fails as on a kernel without audit, since useradd(8) tolerates only that.
func socketRules(netlink bool) []specs.LinuxSyscall {
	const (
		afUnix, afInet, afInet6, afNetlink     = 1, 2, 10, 16 // socket(2)
		stream, datagram                       = 1, 2
		flags                                  = 0o2004000 // SOCK_CLOEXEC, SOCK_NONBLOCK
		audit                                  = 9         // netlink(7)
		icmp, tcp, udp, icmp6, multipath   int = 1, 6, 17, 58, 262
	)
	rules := []specs.LinuxSyscall{allow("socketpair", equal(0, afUnix)), allow("socket", equal(0, afUnix))}
	if netlink {
		rules = append(rules, allow("socket", equal(0, afNetlink)))
	} else {
		rules = append(rules,
			answer(errnoNOSYS, []string{"socket"}, equal(0, afNetlink), specs.LinuxSeccompArg{Index: 2, Op: specs.OpNotEqual, Value: audit}),
			answer(errnoPROTONOSUPPORT, []string{"socket"}, equal(0, afNetlink), equal(2, audit)))
	}
	for _, family := range []uint64{afInet, afInet6} {
		echo := icmp
		if family == afInet6 {
			echo = icmp6
		}
		of := func(kind uint64, protocol int) []specs.LinuxSeccompArg {
			return []specs.LinuxSeccompArg{equal(0, family), {Index: 1, Op: specs.OpMaskedEqual, Value: ^uint64(flags), ValueTwo: kind}, equal(2, uint64(protocol))}
		}
		for _, protocol := range []int{0, tcp} {
			rules = append(rules, allow("socket", of(stream, protocol)...))
		}
		for _, protocol := range []int{0, udp, echo} {
			rules = append(rules, allow("socket", of(datagram, protocol)...))
		}
		rules = append(rules, answer(errnoPROTONOSUPPORT, []string{"socket"}, of(stream, multipath)...)) // as on a kernel without MPTCP
	}
	return rules
}

// filterRules keep a sandbox from giving the kernel programs to compile: seccomp filters
// here, and socket filters in [optionRules]. The compiled code takes memory from one budget
// for the whole host (net.core.bpf_jit_limit) and is charged to no cgroup. Freeing
// thousands of filters at once also blocked Linux 6.18 forever.
//
// Three operations of prctl(2) fail as on a kernel without them:
//
//	PR_SET_VMA           names of mappings are charged to no cgroup
//	PR_SET_MEMORY_MERGE  merging equal pages lets a sandbox find out what another has in memory
//	PR_SCHED_CORE        core scheduling keeps other hardware threads of a core idle
//	                     (core-scheduling.rst)
//
// The kernel uses the low 32 bits of these arguments, so the rules compare only these bits.
func filterRules(ownFilters bool) []specs.LinuxSyscall {
	const setSeccomp, schedCore, setMemoryMerge, setVMA, setPtracer = 22, 62, 67, 0x53564d41, 0x59616d61
	denied := []uint32{schedCore, setMemoryMerge}
	operations := []uint32{0, 1} // SECCOMP_SET_MODE_STRICT and SECCOMP_SET_MODE_FILTER
	if ownFilters {
		operations = nil
	} else {
		denied = append(denied, setSeccomp)
	}
	rules := append(allowIn("prctl", 0, below(128, denied...)), allow("prctl", only(setPtracer).match(0)))
	for _, option := range []uint32{schedCore, setMemoryMerge, setVMA} {
		rules = append(rules, answer(errnoINVAL, []string{"prctl"}, only(option).match(0)))
	}
	return append(rules, allowIn("seccomp", 0, below(4, operations...))...)
}

// optionRules admit all socket options except filters, options that use up memory or flow labels of the
// whole host, and options that make the kernel change its code, which interrupts every processor: the
// first socket with a time stamp, UDP encapsulation, a least TTL or a delay does so (static-keys.rst).
//
// IP_RECVERR and IPV6_RECVERR succeed without effect, since C libraries' resolvers need them: a socket
// would store each datagram that is too long to be sent, charged to no cgroup.
func optionRules(ownFilters, ownKernel bool) []specs.LinuxSyscall {
	const solIP, solSocket, solTCP, solUDP, solIPv6 = 0, 1, 6, 17, 41
	const ipRecvErr, ipv6RecvErr = 11, 25
	denied := map[uint32][]uint32{
		// Group memberships and source lists, charged to no cgroup: IP_MSFILTER,
		// IP_*_SOURCE, IP_ADD_MEMBERSHIP, MCAST_*. IP_RECVERR, IP_MINTTL.
		solIP: {35, 37, 38, 39, 41, 42, 43, 44, 46, 48, ipRecvErr, 21},
		// TCP_TX_DELAY: a static key. TCP_LINGER2: how long a connection outlives its process. TCP_ULP: 1 KiB of state
		// that is charged to no cgroup. TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY,
		// TCP_AO_DEL_KEY, TCP_AO_INFO: keys for connections between routers, a thousand per
		// socket, also charged to no cgroup.
		solTCP: {37, 8, 31, 14, 32, 38, 39, 40},
		// IPV6_JOIN_GROUP, IPV6_JOIN_ANYCAST, MCAST_*, as above. IPV6_FLOWLABEL_MGR: the whole
		// host shares one pool of flow labels. IPV6_RECVERR, IPV6_MINHOPCOUNT.
		solIPv6: {20, 27, 42, 43, 44, 46, 48, 32, ipv6RecvErr, 73},
		solUDP:  {100, 104}, // UDP_ENCAP, UDP_GRO
		// SO_TIMESTAMP*, old and new. SO_RESERVE_MEM: memory of all the host's TCP sockets.
		solSocket: {29, 35, 37, 63, 64, 65, 73},
	}
	if !ownFilters {
		denied[solSocket] = append(denied[solSocket], 26, 50, 51, 52) // SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF and _EBPF
	}
	if ownKernel { // of these, gVisor hands on IP_ADD_MEMBERSHIP, TCP_LINGER2, SO_TIMESTAMP, and IP_RECVERR
		denied = map[uint32][]uint32{solIP: {35}, solTCP: {8}, solSocket: {29}}
	}
	levels := slices.Sorted(maps.Keys(denied))
	rules := append(allowIn("setsockopt", 1, below(512, levels...)),
		answer(0, []string{"setsockopt"}, only(solIP).match(1), only(ipRecvErr).match(2)),
		answer(0, []string{"setsockopt"}, only(solIPv6).match(1), only(ipv6RecvErr).match(2)))
	for _, level := range levels {
		rules = append(rules, allowIn("setsockopt", 2, below(128, denied[level]...), only(level).match(1))...)
	}
	return rules
}

// getOptionRules admit all options but TCP_ZEROCOPY_RECEIVE, which maps received data into memory.
// These pages are charged to no cgroup, and no longer to the connection. The same is true for pages
// that splice(2) moves into a pipe, so the filter denies splice, and programs read and write instead.
func getOptionRules() []specs.LinuxSyscall {
	const solTCP, zerocopyReceive = 6, 35
	return append(allowIn("getsockopt", 1, below(512, solTCP)),
		allowIn("getsockopt", 2, below(128, zerocopyReceive), only(solTCP).match(1))...)
}

// ioctlRules admit all requests except requests that make the kernel load modules for any
// caller: terminal line disciplines (TIOCSETD), bridges (SIOCGIFBR, SIOCSIFBR, SIOCBRADDBR,
// SIOCBRDELBR), VLANs (SIOCGIFVLAN, SIOCSIFVLAN) and frame relay (SIOCADDDLCI, SIOCDELDLCI). They
// compare type and number, the low 16 bits (ioctl(2)): each rule takes libseccomp time in each sandbox.
//
// The time of a socket's last datagram (SIOCGSTAMP, SIOCGSTAMPNS, old and new) is denied, too: the first
// question makes the kernel change its code, as time stamps do in [optionRules].
func ioctlRules() []specs.LinuxSyscall {
	return allowIn("ioctl", 1, halve(block{}, 1<<15, []uint32{0x5423, 0x8940, 0x8941, 0x8980, 0x8981, 0x8982, 0x8983, 0x89a0, 0x89a1, 0x8906, 0x8907}))
}

// adviceRules admit madvise(2), as on a kernel that cannot merge equal pages (see [filterRules]), and
// posix_fadvise(2). Advice to drop file pages has no effect: sandboxes share the host's page cache, and
// could so signal to each other.
func adviceRules() []specs.LinuxSyscall {
	const mergeable, cold, pageOut, dontNeed = 12, 20, 21, 4
	return slices.Concat([]specs.LinuxSyscall{
		answer(errnoINVAL, []string{"madvise"}, only(mergeable).match(2)),
		answer(0, []string{"madvise"}, only(cold).match(2)),
		answer(0, []string{"madvise"}, only(pageOut).match(2)),
		answer(0, []string{"fadvise64"}, only(dontNeed).match(3)),
	}, allowIn("madvise", 2, below(128, mergeable, cold, pageOut)), allowIn("fadvise64", 3, below(8, dontNeed)))
}

// coreRules make changes of the limit on core files succeed without effect, since many programs set
// it to 0. See [noCores] for the reason.
func coreRules() []specs.LinuxSyscall {
	const core = 4
	return slices.Concat([]specs.LinuxSyscall{
		answer(0, []string{"setrlimit"}, only(core).match(0)),
		allow("prlimit64", only(core).match(1), equal(2, 0)), // reads
		answer(0, []string{"prlimit64"}, only(core).match(1), specs.LinuxSeccompArg{Index: 2, Op: specs.OpNotEqual}),
	}, allowIn("setrlimit", 0, below(16, core)), allowIn("prlimit64", 1, below(16, core)))
}

// A block is the set of 32-bit numbers n for which n & mask == value.
type block struct{ mask, value uint32 }

func only(number uint32) block { return block{0xffff_ffff, number} }

func (b block) match(argument uint) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: argument, Op: specs.OpMaskedEqual, Value: uint64(b.mask), ValueTwo: uint64(b.value)}
}

// below covers the numbers below limit, a power of two, except the numbers in not, with the fewest
// blocks.
func below(limit uint32, not ...uint32) []block {
	return halve(block{^(limit - 1), 0}, limit>>1, not)
}

// halve splits a block, from bit downwards, into blocks without the numbers in not.
func halve(b block, bit uint32, not []uint32) []block {
	if !slices.ContainsFunc(not, func(n uint32) bool { return n&b.mask == b.value }) {
		return []block{b}
	}
	if bit == 0 {
		return nil
	}
	return append(halve(block{b.mask | bit, b.value}, bit>>1, not), halve(block{b.mask | bit, b.value | bit}, bit>>1, not)...)
}

// hugePageRules admit all memory except huge pages from the pool. The whole host shares the pool, and
// its pages do not count as the sandbox's memory (hugetlbpage.rst). Requests for such pages fail as
// with an empty pool.
func hugePageRules() []specs.LinuxSyscall {
	var rules []specs.LinuxSyscall
	for _, call := range []struct {
		name  string
		flags uint
		huge  uint32
	}{
		{"mmap", 3, 0x40000},     // MAP_HUGETLB, mmap(2)
		{"memfd_create", 1, 0x4}, // MFD_HUGETLB, memfd_create(2)
		{"shmget", 2, 0o4000},    // SHM_HUGETLB, shmget(2)
	} {
		unset, set := block{call.huge, 0}, block{call.huge, call.huge}
		rules = append(rules, allow(call.name, unset.match(call.flags)), answer(errnoNOMEM, []string{call.name}, set.match(call.flags)))
	}
	return rules
}

// personalityRules admit querying the personality, and setting PER_LINUX or PER_LINUX32 with or
// without UNAME26, but not ADDR_NO_RANDOMIZE and the like.
func personalityRules() []specs.LinuxSyscall {
	var rules []specs.LinuxSyscall
	for _, persona := range []uint64{0x0, 0x8, 0x20000, 0x20008, 0xffffffff} { // personality(2)
		rules = append(rules, allow("personality", equal(0, persona)))
	}
	return rules
}

// mknodRules admit regular files, pipes and sockets, but no devices.
func mknodRules() []specs.LinuxSyscall {
	const kind = 0o170000 // inode(7), S_IFMT
	// Zero means a regular file, mknod(2).
	harmless := []block{{kind, 0}, {kind, 0o100000}, {kind, 0o010000}, {kind, 0o140000}}
	return append(allowIn("mknod", 1, harmless), allowIn("mknodat", 2, harmless)...)
}

// fcntlRules admit all commands below 0x410 except F_SETLEASE, F_GETLEASE and F_NOTIFY (fcntl(2)). With
// a lease on a file that sandboxes share read-only, root in one of them could block the others and the
// host.
func fcntlRules() []specs.LinuxSyscall {
	return allowIn("fcntl", 1, []block{
		{0xffff_fc00, 0},     // below F_LINUX_SPECIFIC_BASE, 1024
		{0xffff_ffff, 0x403}, // F_DUPFD_QUERY
		{0xffff_fffc, 0x404}, // F_CREATED_QUERY, F_DUPFD_CLOEXEC, F_SETPIPE_SZ
		{0xffff_fff8, 0x408}, // F_GETPIPE_SZ, seals, hints
	})
}

func equal(index uint, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Op: specs.OpEqualTo, Value: value}
}

func allow(name string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: args}
}

// allowIn admits a call if the given argument is in one of the blocks and matches all of also.
func allowIn(name string, argument uint, blocks []block, also ...specs.LinuxSeccompArg) []specs.LinuxSyscall {
	var rules []specs.LinuxSyscall
	for _, b := range blocks {
		rules = append(rules, allow(name, append(slices.Clone(also), b.match(argument))...))
	}
	return rules
}

func answer(errno uint, names []string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: names, Action: specs.ActErrno, ErrnoRet: &errno, Args: args}
}
