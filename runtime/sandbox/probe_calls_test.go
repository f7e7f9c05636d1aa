package sandbox_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/userns"
)

// allCalls, given instead of an attempt's name, makes the probe try all single calls.
const allCalls = "calls"

// Placeholders for arguments whose value is known only in the probe.
const (
	udp = 1<<40 + iota // a socket
	udp6
	tcp
	tcp6
	terminal
	buffer // 4 KiB of zeros
)

// A singleCall is one system call, which must fail in a sandbox. Calls that would disturb
// later ones in the same process are attempts of their own.
type singleCall struct {
	name    string
	args    []uintptr // the first is the call's number
	want    unix.Errno
	control who
}

// who says which user gets a different answer outside a sandbox, which shows that the call
// proves something.
type who int

const (
	nobody who = iota // or trying it would leave a trace on the host
	anyRoot
	hostRoot
)

func socketCalls() []singleCall {
	const v4, v6, stream, datagram, raw = unix.AF_INET, unix.AF_INET6, unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW
	var all []singleCall
	for _, s := range []struct {
		name                   string
		family, kind, protocol uintptr
		want                   unix.Errno // zero is EPERM
		control                who
	}{
		{"raw socket", v4, raw, unix.IPPROTO_ICMP, 0, hostRoot},
		{"raw IPv6 socket", v6, raw, unix.IPPROTO_ICMPV6, 0, hostRoot},
		{"raw socket with flags", v4, raw | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, unix.IPPROTO_RAW, 0, hostRoot},
		{"MPTCP socket", v4, stream, unix.IPPROTO_MPTCP, unix.EPROTONOSUPPORT, nobody},
		{"MPTCP IPv6 socket", v6, stream | unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP, unix.EPROTONOSUPPORT, nobody},
		{"UDP-Lite socket", v4, datagram, unix.IPPROTO_UDPLITE, 0, nobody},
		{"UDP-Lite IPv6 socket", v6, datagram, unix.IPPROTO_UDPLITE, 0, nobody},
		{"SCTP socket", v4, stream, unix.IPPROTO_SCTP, 0, nobody},
		{"SCTP packet socket", v4, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP, 0, nobody},
		{"DCCP socket", v4, unix.SOCK_DCCP, unix.IPPROTO_DCCP, 0, nobody},
		{"L2TP socket", v4, datagram, unix.IPPROTO_L2TP, 0, nobody},
		{"SMC socket by protocol", v4, stream, 256, 0, nobody},
		{"socket of an unknown protocol", v4, stream, 99, 0, nobody},
		{"socket of a protocol with high bits", v4, stream, 1<<32 | unix.IPPROTO_TCP, 0, anyRoot},
		{"netlink route socket", unix.AF_NETLINK, raw, unix.NETLINK_ROUTE, unix.ENOSYS, anyRoot},
		{"netlink event socket", unix.AF_NETLINK, datagram, unix.NETLINK_KOBJECT_UEVENT, unix.ENOSYS, anyRoot},
		{"netlink audit socket", unix.AF_NETLINK, raw, unix.NETLINK_AUDIT, unix.EPROTONOSUPPORT, nobody},
		{"netlink diagnosis socket", unix.AF_NETLINK, raw, unix.NETLINK_SOCK_DIAG, unix.ENOSYS, anyRoot},
		{"netlink firewall socket", unix.AF_NETLINK, raw, unix.NETLINK_NETFILTER, unix.ENOSYS, nobody},
		{"generic netlink socket", unix.AF_NETLINK, raw, unix.NETLINK_GENERIC, unix.ENOSYS, anyRoot},
		{"netlink socket with high bits", 1<<32 | unix.AF_NETLINK, raw, 0, 0, anyRoot},
		{"socket family with high bits", 1<<32 | unix.AF_VSOCK, stream, 0, 0, nobody},
		{"socket family 255", 255, stream, 0, 0, nobody},
	} {
		all = append(all, singleCall{s.name, []uintptr{unix.SYS_SOCKET, s.family, s.kind, s.protocol}, cmp.Or(s.want, unix.EPERM), s.control})
	}
	for name, family := range map[string]uintptr{
		"packet": unix.AF_PACKET, "vsock": unix.AF_VSOCK, "algorithm": unix.AF_ALG, "key": unix.AF_KEY, "XDP": unix.AF_XDP,
		"Bluetooth": unix.AF_BLUETOOTH, "TIPC": unix.AF_TIPC, "RDS": unix.AF_RDS, "CAN": unix.AF_CAN, "SMC": unix.AF_SMC,
		"AX.25": unix.AF_AX25, "IPX": unix.AF_IPX, "AppleTalk": unix.AF_APPLETALK, "NET/ROM": unix.AF_NETROM, "ATM PVC": unix.AF_ATMPVC,
		"ATM SVC": unix.AF_ATMSVC, "X.25": unix.AF_X25, "ROSE": unix.AF_ROSE, "DECnet": unix.AF_DECnet, "LLC": unix.AF_LLC,
		"InfiniBand": unix.AF_IB, "MPLS": unix.AF_MPLS, "IUCV": unix.AF_IUCV, "RxRPC": unix.AF_RXRPC, "ISDN": unix.AF_ISDN,
		"Phonet": unix.AF_PHONET, "IEEE 802.15.4": unix.AF_IEEE802154, "CAIF": unix.AF_CAIF, "NFC": unix.AF_NFC, "KCM": unix.AF_KCM,
		"Qualcomm": unix.AF_QIPCRTR, "PPP": unix.AF_PPPOX, "MCTP": 45,
	} {
		all = append(all,
			singleCall{name + " socket", []uintptr{unix.SYS_SOCKET, family, raw, 0}, unix.EPERM, nobody},
			singleCall{name + " datagram socket", []uintptr{unix.SYS_SOCKET, family, datagram, 0}, unix.EPERM, nobody})
	}
	return append(all, singleCall{"pair of INET sockets", []uintptr{unix.SYS_SOCKETPAIR, v4, stream, 0, buffer}, unix.EPERM, anyRoot})
}

func optionCalls() []singleCall {
	var all []singleCall
	for _, o := range []struct {
		name                  string
		socket, level, option uintptr
	}{
		{"socket program", udp, unix.SOL_SOCKET, unix.SO_ATTACH_BPF},
		{"reuseport program", udp, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF},
		{"key of a TCP connection with a prefix", tcp, unix.IPPROTO_TCP, unix.TCP_MD5SIG_EXT},
		{"authentication key of a TCP connection", tcp, unix.IPPROTO_TCP, 38},
		{"upper layer of a TCP connection", tcp, unix.IPPROTO_TCP, unix.TCP_ULP},
		{"life of a connection without a process", tcp, unix.IPPROTO_TCP, unix.TCP_LINGER2},
		{"life of an IPv6 connection without a process", tcp6, unix.IPPROTO_TCP, unix.TCP_LINGER2},
		{"least TTL", udp, unix.IPPROTO_IP, unix.IP_MINTTL},
		{"least number of hops", udp6, unix.IPPROTO_IPV6, unix.IPV6_MINHOPCOUNT},
		{"reserved memory", tcp, unix.SOL_SOCKET, unix.SO_RESERVE_MEM},
		{"membership of a group", udp, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP},
		{"membership of a group, one source", udp, unix.IPPROTO_IP, unix.IP_ADD_SOURCE_MEMBERSHIP},
		{"membership of a group by interface", udp, unix.IPPROTO_IP, unix.MCAST_JOIN_GROUP},
		{"membership of a group by interface, one source", udp, unix.IPPROTO_IP, unix.MCAST_JOIN_SOURCE_GROUP},
		{"list of sources of a group", udp, unix.IPPROTO_IP, unix.IP_MSFILTER},
		{"long list of sources of a group", udp, unix.IPPROTO_IP, unix.MCAST_MSFILTER},
		{"membership of an IPv6 group", udp6, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP},
		{"membership of an anycast group", udp6, unix.IPPROTO_IPV6, unix.IPV6_JOIN_ANYCAST},
		{"membership of an IPv6 group by interface", udp6, unix.IPPROTO_IPV6, unix.MCAST_JOIN_GROUP},
		{"membership of an IPv6 group, one source", udp6, unix.IPPROTO_IPV6, unix.MCAST_JOIN_SOURCE_GROUP},
		{"list of sources of an IPv6 group", udp6, unix.IPPROTO_IPV6, unix.MCAST_MSFILTER},
	} {
		// Without the filter the zeros are refused with another error.
		all = append(all, singleCall{o.name, []uintptr{unix.SYS_SETSOCKOPT, o.socket, o.level, o.option, buffer, 4}, unix.EPERM, anyRoot})
	}
	for name, request := range map[string]uintptr{
		"list bridges": 0x8940, "set bridges": 0x8941, "make a bridge": 0x89a0, "remove a bridge": 0x89a1, "a VLAN": 0x8982, "set a VLAN": 0x8983,
		"VLAN with high bits": 1<<32 | 0x8982,
	} {
		all = append(all, singleCall{name, []uintptr{unix.SYS_IOCTL, udp, request, buffer}, unix.EPERM, nobody}) // the kernel would load a module
	}
	return append(all,
		singleCall{"map what a connection received", []uintptr{unix.SYS_GETSOCKOPT, tcp, unix.IPPROTO_TCP, unix.TCP_ZEROCOPY_RECEIVE, buffer, buffer}, unix.EPERM, anyRoot},
		singleCall{"splice", []uintptr{unix.SYS_SPLICE, tcp, 0, udp, 0, 0, 0}, unix.EINVAL, nobody}, // the same without the filter
		singleCall{"line discipline of a terminal", []uintptr{unix.SYS_IOCTL, terminal, unix.TIOCSETD, buffer}, unix.EPERM, anyRoot},
		singleCall{"name a mapping", []uintptr{unix.SYS_PRCTL, unix.PR_SET_VMA, 0, buffer, 4096, 0}, unix.EINVAL, nobody},
		singleCall{"merge equal pages", []uintptr{unix.SYS_PRCTL, unix.PR_SET_MEMORY_MERGE, 1, 0, 0, 0}, unix.EINVAL, nobody},
		singleCall{"merge equal pages of a mapping", []uintptr{unix.SYS_MADVISE, buffer, 4096, unix.MADV_MERGEABLE}, unix.EINVAL, nobody},
		singleCall{"strict seccomp", []uintptr{unix.SYS_SECCOMP, 0, 1}, unix.EPERM, anyRoot},
		singleCall{"clone3", []uintptr{unix.SYS_CLONE3, 0, 0}, unix.ENOSYS, anyRoot},
		singleCall{"landlock", []uintptr{unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1}, unix.ENOSYS, nobody},
		singleCall{"disable address randomisation", []uintptr{unix.SYS_PERSONALITY, 0x0040000}, unix.EPERM, anyRoot},
		singleCall{"map without a lower bound", []uintptr{unix.SYS_PERSONALITY, 0x0100000}, unix.EPERM, anyRoot})
}

// kernelCalls are calls that a sandbox may not make with any arguments. The arguments are
// zeros, with which most of them do nothing where they are allowed.
func kernelCalls() []singleCall {
	var all []singleCall
	for name, number := range map[string]uintptr{
		"load a module": unix.SYS_INIT_MODULE, "load a module by file": unix.SYS_FINIT_MODULE, "remove a module": unix.SYS_DELETE_MODULE,
		"bpf with nothing": unix.SYS_BPF, "perf events of nothing": unix.SYS_PERF_EVENT_OPEN, "userfaultfd": unix.SYS_USERFAULTFD,
		"memfd_secret": unix.SYS_MEMFD_SECRET, "kexec": unix.SYS_KEXEC_LOAD, "kexec by file": unix.SYS_KEXEC_FILE_LOAD, "accounting": unix.SYS_ACCT,
		"quota": unix.SYS_QUOTACTL, "quota by file": unix.SYS_QUOTACTL_FD, "swap": unix.SYS_SWAPON, "no swap": unix.SYS_SWAPOFF,
		"reboot": unix.SYS_REBOOT, "hang up the terminal": unix.SYS_VHANGUP, "adjust the clock": unix.SYS_ADJTIMEX,
		"adjust a clock": unix.SYS_CLOCK_ADJTIME, "set the time of day": unix.SYS_SETTIMEOFDAY,
		"read another's memory": unix.SYS_PROCESS_VM_READV, "write another's memory": unix.SYS_PROCESS_VM_WRITEV,
		"advise about another's memory": unix.SYS_PROCESS_MADVISE, "release another's memory": unix.SYS_PROCESS_MRELEASE,
		"move another's pages": unix.SYS_MOVE_PAGES, "move pages to other nodes": unix.SYS_MIGRATE_PAGES, "bind pages to nodes": unix.SYS_MBIND,
		"bind memory to nodes": unix.SYS_SET_MEMPOLICY, "nodes of memory": unix.SYS_GET_MEMPOLICY, "home node": unix.SYS_SET_MEMPOLICY_HOME_NODE,
		"steal a descriptor": unix.SYS_PIDFD_GETFD, "compare kernel pointers": unix.SYS_KCMP, "fanotify": unix.SYS_FANOTIFY_INIT,
		"mark for fanotify": unix.SYS_FANOTIFY_MARK, "io_uring with nothing": unix.SYS_IO_URING_SETUP, "enter io_uring": unix.SYS_IO_URING_ENTER,
		"register with io_uring": unix.SYS_IO_URING_REGISTER, "submit asynchronous requests": unix.SYS_IO_SUBMIT,
		"await asynchronous requests": unix.SYS_IO_GETEVENTS, "cancel asynchronous requests": unix.SYS_IO_CANCEL,
		"end asynchronous requests": unix.SYS_IO_DESTROY, "handle of a file": unix.SYS_NAME_TO_HANDLE_AT, "open by handle": unix.SYS_OPEN_BY_HANDLE_AT,
		"pages to a pipe": unix.SYS_VMSPLICE, "remap pages": unix.SYS_REMAP_FILE_PAGES, "directory cookie": unix.SYS_LOOKUP_DCOOKIE,
		"kernel log": unix.SYS_SYSLOG, "keyctl with nothing": unix.SYS_KEYCTL, "add a key of nothing": unix.SYS_ADD_KEY,
		"request a key of nothing": unix.SYS_REQUEST_KEY, "set the host name to nothing": unix.SYS_SETHOSTNAME, "set the domain name": unix.SYS_SETDOMAINNAME,
		"mount nothing": unix.SYS_MOUNT, "unmount nothing": unix.SYS_UMOUNT2, "pivot_root": unix.SYS_PIVOT_ROOT, "open a file system": unix.SYS_FSOPEN,
		"configure a file system": unix.SYS_FSCONFIG, "mount a file system": unix.SYS_FSMOUNT, "pick a file system": unix.SYS_FSPICK,
		"open a tree": unix.SYS_OPEN_TREE, "move a mount": unix.SYS_MOVE_MOUNT, "attributes of mounts": unix.SYS_MOUNT_SETATTR,
		"state of a mount": unix.SYS_STATMOUNT, "list mounts": unix.SYS_LISTMOUNT, "join a namespace": unix.SYS_SETNS,
		"state of security modules": unix.SYS_LSM_GET_SELF_ATTR, "list security modules": unix.SYS_LSM_LIST_MODULES,
		"a call that does not exist": 1000,
	} {
		all = append(all, singleCall{name, []uintptr{number, 0, 0, 0, 0, 0, 0}, unix.EPERM, nobody})
	}
	return all
}

func singleCalls() []singleCall {
	return append(append(socketCalls(), optionCalls()...), kernelCalls()...)
}

// tryCalls makes each call, and prints its name and its error number.
func tryCalls() error {
	zeros, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	known := map[uintptr]uintptr{buffer: uintptr(unsafe.Pointer(&zeros[0]))}
	for name, kind := range map[uintptr][2]int{
		udp: {unix.AF_INET, unix.SOCK_DGRAM}, udp6: {unix.AF_INET6, unix.SOCK_DGRAM}, tcp: {unix.AF_INET, unix.SOCK_STREAM}, tcp6: {unix.AF_INET6, unix.SOCK_STREAM},
	} {
		fd, err := unix.Socket(kind[0], kind[1], 0)
		if err != nil {
			return err
		}
		known[name] = uintptr(fd)
	}
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	known[terminal] = uintptr(fd)
	outside := os.Getenv("PROBE_CONTROL")
	for _, c := range singleCalls() {
		if outside != "" && (c.control == nobody || c.control == hostRoot && outside != "host") {
			continue
		}
		var a [7]uintptr
		for i, arg := range c.args {
			if v, ok := known[arg]; ok {
				arg = v
			}
			a[i] = arg
		}
		_, _, errno := unix.Syscall6(a[0], a[1], a[2], a[3], a[4], a[5], a[6])
		fmt.Printf("%s\t%d\n", c.name, int(errno))
	}
	return nil
}

// answers reads what tryCalls printed.
func answers(t *testing.T, text string) map[string]unix.Errno {
	t.Helper()
	got := map[string]unix.Errno{}
	for line := range strings.Lines(text) {
		name, number, ok := strings.Cut(strings.TrimSpace(line), "\t")
		n, err := strconv.Atoi(number)
		if !ok || err != nil {
			t.Fatalf("the probe printed %q", line)
		}
		got[name] = unix.Errno(n)
	}
	return got
}

// TestProbeCalls makes the single calls one after the other in one process, as root and as an
// ordinary user. Those with a control are also made on the host, where the answer must differ.
func TestProbeCalls(t *testing.T) {
	containerdtest.OnHostKernel(t)
	if n := len(singleCalls()) + len(attempts()); n < 200 {
		t.Errorf("only %d attempts", n)
	}
	w := newWorld(t)
	for _, user := range []string{"0:0", "1000:1000"} {
		cfg := w.config()
		cfg.User = user
		exit := w.runOnce(t, cfg, runtime.Process{Args: []string{"/programs/probe"}, Env: []string{probeVariable + "=" + allCalls}})
		if !exit.Success() {
			t.Fatalf("as %s: %v: %s", user, exit, exit.Stderr.String())
		}
		got := answers(t, exit.Stdout.String())
		for _, c := range singleCalls() {
			errno, ok := got[c.name]
			if newer := errno == unix.ENOSYS && c.want == unix.EPERM; !ok || errno != c.want && !newer { // runc's answer to calls newer than all those in a filter
				t.Errorf("as %s: %s: %d, want %s", user, c.name, int(errno), unix.ErrnoName(c.want))
			}
		}
	}
	cmd := exec.Command(filepath.Join(w.programs, "probe"))
	cmd.Env = []string{probeVariable + "=" + allCalls, "PROBE_CONTROL=host"}
	if userns.Inside() {
		cmd.Env[1] = "PROBE_CONTROL=user namespace"
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(errors.Join(err, fmt.Errorf("%s", out)))
	}
	outside := answers(t, string(out))
	if len(outside) < 20 {
		t.Errorf("only %d controls", len(outside))
	}
	for _, c := range singleCalls() {
		if errno, ok := outside[c.name]; ok && errno == c.want {
			t.Errorf("on the host %s answers %s, too, so that it proves nothing", c.name, unix.ErrnoName(errno))
		}
	}
}
