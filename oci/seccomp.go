package oci

import (
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Errno values are the same on amd64 and arm64 (errno(3)).
const (
	errnoPERM           = 1
	errnoNOMEM          = 12
	errnoINVAL          = 22
	errnoNOSYS          = 38
	errnoPROTONOSUPPORT = 93
)

// cloneNamespaces are the CLONE_NEW* bits of clone(2), of which a sandbox may
// use none: NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
const cloneNamespaces = 0x7e02_0000

// WithSeccomp filters system calls for arch (a GOARCH name) and no other
// architecture: the 32-bit entry points would reach socketcall(2), whose
// arguments a filter cannot see. New applies it for the host's own when it is
// not given. It comes after [WithCapabilities].
//
// The profile is an allow-list. What it does not name fails with EPERM and is
// never a kill, which would look like the task's own fault. clone3(2) fails
// with ENOSYS, so that C libraries fall back to clone(2), whose flags can be
// filtered; so do others that programs can do without.
func WithSeccomp(arch string) Option {
	return func(s *specs.Spec) error {
		native, ok := map[string]specs.Arch{"amd64": specs.ArchX86_64, "arm64": specs.ArchAARCH64}[arch]
		if !ok {
			return fmt.Errorf("seccomp: no profile for architecture %q", arch)
		}
		perm := uint(errnoPERM)
		allowed := allowedSyscalls()
		if s.Annotations[sealedProcesses] != "" {
			allowed = slices.DeleteFunc(allowed, func(name string) bool { return name == "ptrace" })
		}
		hugePages := hugePageRules()
		absent := []string{"clone3", "io_setup"} // programs do without
		if s.Annotations[withoutCgroup] != "" {
			absent = append(absent, "memfd_create")
			hugePages = slices.DeleteFunc(hugePages, func(r specs.LinuxSyscall) bool { return r.Names[0] == "memfd_create" })
		}
		rules := []specs.LinuxSyscall{
			{Names: allowed, Action: specs.ActAllow},
			allow("clone", specs.LinuxSeccompArg{Index: 0, Op: specs.OpMaskedEqual, Value: cloneNamespaces}),
			answer(errnoNOSYS, absent),
		}
		own := s.Annotations[ownFilters] != ""
		rules = append(rules, filterRules(own)...)
		rules = append(rules, optionRules(own)...)
		rules = append(rules, socketRules(s.Annotations[netlinkAllowed] != "")...)
		rules = append(rules, ioctlRules()...)
		rules = append(rules, mergeRules()...)
		rules = append(rules, coreRules()...)
		rules = append(rules, hugePages...)
		rules = append(rules, personalityRules()...)
		rules = append(rules, mknodRules()...)
		rules = append(rules, fcntlRules()...)
		if slices.Contains(s.Process.Capabilities.Bounding, "CAP_SYS_CHROOT") {
			rules = append(rules, specs.LinuxSyscall{Names: []string{"chroot"}, Action: specs.ActAllow})
		}
		s.Linux.Seccomp = &specs.LinuxSeccomp{
			DefaultAction: specs.ActErrno, DefaultErrnoRet: &perm,
			Architectures: []specs.Arch{native},
			Syscalls:      rules,
		}
		return nil
	}
}

// socketRules admit UNIX, and of INET and INET6 what the kernel has built in: TCP, UDP and
// echo requests. A socket of another protocol (UDP-Lite, SCTP, SMC) makes the kernel load a
// module, and none of them counts its memory as TCP does, MPTCP before Linux 6.2 neither. AF_VSOCK
// above all must stay out: network namespaces do not contain it. AF_NETLINK is as if the kernel
// had none, for which C libraries and Node.js are prepared: what waits in its sockets is
// memory that the kernel counts to nobody, some hundred kilobytes a socket. Pairs exist for
// UNIX alone.
func socketRules(netlink bool) []specs.LinuxSyscall {
	const (
		afUnix, afInet, afInet6, afNetlink     = 1, 2, 10, 16 // socket(2)
		stream, datagram                       = 1, 2
		flags                                  = 0o2004000 // SOCK_CLOEXEC, SOCK_NONBLOCK
		icmp, tcp, udp, icmp6, multipath   int = 1, 6, 17, 58, 262
	)
	rules := []specs.LinuxSyscall{argument("socketpair", 0, afUnix), argument("socket", 0, afUnix)}
	if netlink {
		rules = append(rules, argument("socket", 0, afNetlink))
	} else {
		rules = append(rules, answer(errnoNOSYS, []string{"socket"}, equal(0, afNetlink)))
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
		rules = append(rules, answer(errnoPROTONOSUPPORT, []string{"socket"}, of(stream, multipath)...)) // as programs expect of old kernels
	}
	return rules
}

// filterRules keep a sandbox from giving the kernel programs to translate: seccomp filters,
// and the socket filters of [optionRules]. The memory of the translation is the whole host's,
// within one limit (net.core.bpf_jit_limit), and counted to nobody; and thousands of them freed
// at a time blocked Linux 6.18 for ever.
//
// Of prctl(2), it is as if the kernel lacked names of mappings, which are counted to nobody,
// and the merging of equal pages, by which sandboxes could read one another.
//
// The kernel takes the low 32 bits of these arguments, so the rules compare no others.
func filterRules(own bool) []specs.LinuxSyscall {
	const setSeccomp, setMemoryMerge, setVMA, setPtracer = 22, 67, 0x53564d41, 0x59616d61
	denied := []uint32{setMemoryMerge}
	operations := []uint32{0, 1} // SECCOMP_GET_ACTION_AVAIL and SECCOMP_GET_NOTIF_SIZES remain
	if own {
		operations = nil
	} else {
		denied = append(denied, setSeccomp)
	}
	var rules []specs.LinuxSyscall
	for _, option := range append(below(128, denied...), only(setPtracer)) {
		rules = append(rules, allow("prctl", option.of(0)))
	}
	for _, option := range []uint32{setMemoryMerge, setVMA} {
		rules = append(rules, answer(errnoINVAL, []string{"prctl"}, only(option).of(0)))
	}
	for _, operation := range below(4, operations...) {
		rules = append(rules, allow("seccomp", operation.of(0)))
	}
	return rules
}

// optionRules admit the options of sockets but for filters and for what holds memory or
// numbers of the whole host.
func optionRules(own bool) []specs.LinuxSyscall {
	const solIP, solSocket, solTCP, solIPv6 = 0, 1, 6, 41
	denied := map[uint32][]uint32{
		// Memberships of groups, and lists of sources, counted to nobody: IP_MSFILTER,
		// IP_*_SOURCE, IP_ADD_MEMBERSHIP, MCAST_*.
		solIP: {35, 37, 38, 39, 41, 42, 43, 44, 46, 48},
		// TCP_LINGER2: how long a connection outlives its process. TCP_ULP: a state of 1 KiB that
		// is counted to nobody. TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY, TCP_AO_DEL_KEY,
		// TCP_AO_INFO: keys for connections between routers, a thousand to a socket, the same.
		solTCP: {8, 31, 14, 32, 38, 39, 40},
		// IPV6_JOIN_GROUP, IPV6_JOIN_ANYCAST, MCAST_*; IPV6_FLOWLABEL_MGR: labels are one number
		// for the host.
		solIPv6:   {20, 27, 42, 43, 44, 46, 48, 32},
		solSocket: nil,
	}
	if !own {
		denied[solSocket] = []uint32{26, 50, 51, 52} // SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF and _EBPF
	}
	levels := slices.Sorted(maps.Keys(denied))
	var rules []specs.LinuxSyscall
	for _, level := range below(512, levels...) {
		rules = append(rules, allow("setsockopt", level.of(1)))
	}
	for _, level := range levels {
		for _, option := range below(128, denied[level]...) {
			rules = append(rules, allow("setsockopt", only(level).of(1), option.of(2)))
		}
	}
	return rules
}

// ioctlRules admit all requests but those for which the kernel loads modules whoever asks: line
// disciplines of terminals (TIOCSETD), bridges (SIOCGIFBR, SIOCSIFBR, SIOCBRADDBR, SIOCBRDELBR)
// and VLANs (SIOCGIFVLAN, SIOCSIFVLAN).
func ioctlRules() []specs.LinuxSyscall {
	var rules []specs.LinuxSyscall
	for _, request := range but(0x5423, 0x8940, 0x8941, 0x8982, 0x8983, 0x89a0, 0x89a1) {
		rules = append(rules, allow("ioctl", request.of(1)))
	}
	return rules
}

// mergeRules admit madvise(2) as of a kernel that merges no equal pages (MADV_MERGEABLE);
// see [filterRules].
func mergeRules() []specs.LinuxSyscall {
	const mergeable = 12
	rules := []specs.LinuxSyscall{answer(errnoINVAL, []string{"madvise"}, only(mergeable).of(2))}
	for _, advice := range below(128, mergeable) {
		rules = append(rules, allow("madvise", advice.of(2)))
	}
	return rules
}

// coreRules let programs believe that they changed the bound on core files, which many set to
// nothing: see noCores for what that would do.
func coreRules() []specs.LinuxSyscall {
	const core = 4
	rules := []specs.LinuxSyscall{
		answer(0, []string{"setrlimit"}, only(core).of(0)),
		allow("prlimit64", only(core).of(1), equal(2, 0)), // reads
		answer(0, []string{"prlimit64"}, only(core).of(1), specs.LinuxSeccompArg{Index: 2, Op: specs.OpNotEqual}),
	}
	for _, resource := range below(16, core) {
		rules = append(rules, allow("setrlimit", resource.of(0)), allow("prlimit64", resource.of(1)))
	}
	return rules
}

// A block is the 32-bit numbers that have value under mask.
type block struct{ mask, value uint32 }

func only(number uint32) block { return block{0xffff_ffff, number} }

func (b block) of(argument uint) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: argument, Op: specs.OpMaskedEqual, Value: uint64(b.mask), ValueTwo: uint64(b.value)}
}

// below covers the numbers below limit, a power of two, but those named, by the fewest
// blocks.
func below(limit uint32, not ...uint32) []block {
	return halve(block{^(limit - 1), 0}, limit>>1, not)
}

// but covers all 32-bit numbers except those named.
func but(not ...uint32) []block { return halve(block{}, 1<<31, not) }

// halve splits a block, from a bit downwards, into those that hold none of the numbers.
func halve(b block, bit uint32, not []uint32) []block {
	if !slices.ContainsFunc(not, func(n uint32) bool { return n&b.mask == b.value }) {
		return []block{b}
	}
	if bit == 0 {
		return nil
	}
	return append(halve(block{b.mask | bit, b.value}, bit>>1, not), halve(block{b.mask | bit, b.value | bit}, bit>>1, not)...)
}

// hugePageRules admit memory but for pages of the host's huge page pool, which is one
// for all and no part of a sandbox's memory (hugetlbpage.rst). There it is as if the
// pool were empty.
func hugePageRules() []specs.LinuxSyscall {
	var rules []specs.LinuxSyscall
	for _, call := range []struct {
		name  string
		flags uint
		huge  uint64
	}{
		{"mmap", 3, 0x40000},     // MAP_HUGETLB, mmap(2)
		{"memfd_create", 1, 0x4}, // MFD_HUGETLB, memfd_create(2)
		{"shmget", 2, 0o4000},    // SHM_HUGETLB, shmget(2)
	} {
		flag := specs.LinuxSeccompArg{Index: call.flags, Op: specs.OpMaskedEqual, Value: call.huge}
		set := flag
		set.ValueTwo = call.huge
		rules = append(rules, allow(call.name, flag), answer(errnoNOMEM, []string{call.name}, set))
	}
	return rules
}

// personalityRules admit the query and the two Linux personalities, with and
// without the 32-bit uname; ADDR_NO_RANDOMIZE and the like stay out.
func personalityRules() []specs.LinuxSyscall {
	var rules []specs.LinuxSyscall
	for _, persona := range []uint64{0x0, 0x8, 0x20000, 0x20008, 0xffffffff} { // personality(2)
		rules = append(rules, argument("personality", 0, persona))
	}
	return rules
}

// mknodRules admit regular files, pipes and sockets; never a device.
func mknodRules() []specs.LinuxSyscall {
	const typeMask = 0o170000 // inode(7), S_IFMT
	var rules []specs.LinuxSyscall
	for _, kind := range []uint64{0, 0o100000, 0o010000, 0o140000} { // zero means a regular file, mknod(2)
		for name, index := range map[string]uint{"mknod": 1, "mknodat": 2} {
			rules = append(rules, allow(name, specs.LinuxSeccompArg{Index: index, Op: specs.OpMaskedEqual, Value: typeMask, ValueTwo: kind}))
		}
	}
	slices.SortStableFunc(rules, func(a, b specs.LinuxSyscall) int { return len(a.Names[0]) - len(b.Names[0]) })
	return rules
}

// fcntlRules admit all commands but those on leases and on changes of folders
// (F_SETLEASE, F_GETLEASE and F_NOTIFY of fcntl(2)): with a lease on a file that
// others share, read-only for all, one sandbox's root can hold up the others, and
// the host, for as long as /proc/sys/fs/lease-break-time.
func fcntlRules() []specs.LinuxSyscall {
	var rules []specs.LinuxSyscall
	for _, r := range []struct{ mask, value uint64 }{
		{0xffff_fc00, 0},     // below F_LINUX_SPECIFIC_BASE, 1024
		{0xffff_fffe, 0x406}, // F_DUPFD_CLOEXEC, F_SETPIPE_SZ
		{0xffff_fff8, 0x408}, // F_GETPIPE_SZ, seals, hints
	} {
		rules = append(rules, allow("fcntl", specs.LinuxSeccompArg{Index: 1, Op: specs.OpMaskedEqual, Value: r.mask, ValueTwo: r.value}))
	}
	return rules
}

func argument(name string, index uint, value uint64) specs.LinuxSyscall {
	return allow(name, equal(index, value))
}

func equal(index uint, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Op: specs.OpEqualTo, Value: value}
}

func allow(name string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: args}
}

func answer(errno uint, names []string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: names, Action: specs.ActErrno, ErrnoRet: &errno, Args: args}
}
