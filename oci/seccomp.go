package oci

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Errno values are the same on amd64 and arm64 (errno(3)).
const (
	errnoPERM  = 1
	errnoNOSYS = 38
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
		perm, nosys := uint(errnoPERM), uint(errnoNOSYS)
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
			{Names: []string{"clone"}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{
				{Index: 0, Op: specs.OpMaskedEqual, Value: cloneNamespaces, ValueTwo: 0},
			}},
			{Names: absent, Action: specs.ActErrno, ErrnoRet: &nosys},
		}
		if s.Annotations[ownFilters] != "" {
			rules = append(rules, specs.LinuxSyscall{Names: []string{"prctl", "seccomp", "setsockopt"}, Action: specs.ActAllow})
		} else {
			rules = append(rules, filterRules()...)
		}
		rules = append(rules, socketRules(s.Annotations[netlinkAllowed] != "")...)
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

// socketRules admit UNIX, INET and INET6. AF_VSOCK above all must stay out: network
// namespaces do not contain it. AF_NETLINK is as if the kernel had none, for which C
// libraries and Node.js are prepared: what waits in its sockets is memory that the kernel
// counts to nobody, some hundred kilobytes a socket. Pairs exist for UNIX alone.
func socketRules(netlink bool) []specs.LinuxSyscall {
	const afUnix, afInet, afInet6, afNetlink = 1, 2, 10, 16 // socket(2)
	rules := []specs.LinuxSyscall{argument("socketpair", 0, afUnix)}
	families := []uint64{afUnix, afInet, afInet6}
	if netlink {
		families = append(families, afNetlink)
	} else {
		nosys := uint(errnoNOSYS)
		none := argument("socket", 0, afNetlink)
		none.Action, none.ErrnoRet = specs.ActErrno, &nosys
		rules = append(rules, none)
	}
	for _, family := range families {
		rules = append(rules, argument("socket", 0, family))
	}
	return rules
}

// filterRules keep a sandbox from giving the kernel programs to translate: socket
// filters (socket(7), SO_ATTACH_FILTER and its kin) and seccomp filters. The memory of
// the translation is the whole host's, within one limit (net.core.bpf_jit_limit), and
// counted to nobody; and thousands of them freed at a time blocked Linux 6.18 for ever. The
// same call has other options that hold memory or numbers of the whole host.
//
// The kernel takes the low 32 bits of these arguments, so the rules compare no others.
func filterRules() []specs.LinuxSyscall {
	const solSocket = 1
	prctl := append(below(128, 22), only(0x53564d41), only(0x59616d61)) // not PR_SET_SECCOMP; PR_SET_VMA, PR_SET_PTRACER
	var rules []specs.LinuxSyscall
	allow := func(name string, args ...specs.LinuxSeccompArg) {
		rules = append(rules, specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: args})
	}
	for _, option := range prctl {
		allow("prctl", option.of(0))
	}
	for _, operation := range below(4, 0, 1) { // SECCOMP_GET_ACTION_AVAIL, SECCOMP_GET_NOTIF_SIZES
		allow("seccomp", operation.of(0))
	}
	const solTCP, solIPv6 = 6, 41
	for _, level := range below(512, solSocket, solTCP, solIPv6) {
		allow("setsockopt", level.of(1))
	}
	for _, l := range []struct {
		level   uint32
		options []block
	}{
		{solSocket, below(128, 26, 50, 51, 52)}, // SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF and _EBPF
		// TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY, TCP_AO_DEL_KEY, TCP_AO_INFO: keys for
		// connections between routers, a thousand to a socket, counted to nobody.
		{solTCP, below(128, 14, 32, 38, 39, 40)},
		{solIPv6, below(128, 32)}, // IPV6_FLOWLABEL_MGR: labels are one number for the host
	} {
		for _, option := range l.options {
			allow("setsockopt", only(l.level).of(1), option.of(2))
		}
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
	var blocks []block
	var split func(b block, bit uint32)
	split = func(b block, bit uint32) {
		switch {
		case !slices.ContainsFunc(not, func(n uint32) bool { return n&b.mask == b.value }):
			blocks = append(blocks, b)
		case bit != 0:
			split(block{b.mask | bit, b.value}, bit>>1)
			split(block{b.mask | bit, b.value | bit}, bit>>1)
		}
	}
	split(block{^(limit - 1), 0}, limit>>1)
	return blocks
}

// hugePageRules admit memory but for pages of the host's huge page pool, which is one
// for all and no part of a sandbox's memory (hugetlbpage.rst). There it is as if the
// pool were empty.
func hugePageRules() []specs.LinuxSyscall {
	const errnoNOMEM = 12
	noMemory := uint(errnoNOMEM)
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
		rules = append(rules,
			specs.LinuxSyscall{Names: []string{call.name}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{flag}},
			specs.LinuxSyscall{Names: []string{call.name}, Action: specs.ActErrno, ErrnoRet: &noMemory, Args: []specs.LinuxSeccompArg{set}})
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
			rules = append(rules, specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{
				{Index: index, Op: specs.OpMaskedEqual, Value: typeMask, ValueTwo: kind},
			}})
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
		rules = append(rules, specs.LinuxSyscall{Names: []string{"fcntl"}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{
			{Index: 1, Op: specs.OpMaskedEqual, Value: r.mask, ValueTwo: r.value},
		}})
	}
	return rules
}

func argument(name string, index uint, value uint64) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{
		{Index: index, Op: specs.OpEqualTo, Value: value},
	}}
}
