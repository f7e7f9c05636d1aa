package oci_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/oci"
)

var update = flag.Bool("update", false, "write the golden files anew")

const rootfs = "/run/sbench/sandbox/rootfs"

// strict returns the options of an agent's sandbox, without its mounts.
func strict(extra ...oci.Option) []oci.Option {
	return append([]oci.Option{
		oci.WithArgs("sh", "-c", "true"),
		oci.WithEnv("PATH=/usr/bin:/bin", "LANG=C.UTF-8"),
		oci.WithCwd("/workspace"),
		oci.WithNetworkNamespace("/proc/7/fd/9"),
		oci.WithCgroup("/sbench-run/sandbox"),
		oci.WithMemoryLimit(1 << 30),
		oci.WithPidsLimit(256),
		oci.WithCPUs(1.5),
		oci.WithNoFile(4096),
		oci.WithOOMScoreAdj(500),
	}, extra...)
}

func TestGolden(t *testing.T) {
	tests := []struct {
		name string
		opts []oci.Option
	}{
		{"agent-amd64", strict(oci.WithArchitecture("amd64"), oci.WithSharedMemory(64<<20), oci.WithTmpfs("/tmp", 256<<20, 65536),
			oci.WithBind("/run/sbench/sandbox/workspace", "/workspace", true), oci.WithBind("/run/sbench/hosts", "/etc/hosts", false))},
		{"agent-arm64", strict(oci.WithArchitecture("arm64"), oci.WithUser(1000, 1000, 4, 20))},
		{"verifier-chroot-amd64", strict(oci.WithCapabilities("CAP_SYS_CHROOT"), oci.WithArchitecture("amd64"))},
		{"verifier-sealed-amd64", strict(oci.WithIsolatedProcesses(), oci.WithArchitecture("amd64"))},
		{"no-swap-accounting-amd64", strict(oci.WithArchitecture("amd64"), oci.WithoutSwapLimit())},
		{"own-ids-amd64", strict(oci.WithArchitecture("amd64"), oci.WithDevices("/run/sbench/sandbox/dev"),
			oci.WithUserNamespace("/proc/7/fd/10", specs.LinuxIDMapping{HostID: 1 << 30, Size: 65536}))},
		{"own-kernel-amd64", strict(oci.WithArchitecture("amd64"), oci.WithOwnKernel(specs.LinuxIDMapping{HostID: 1 << 30, Size: 65536}), oci.WithIsolatedProcesses())},
		{"without-cgroup-amd64", []oci.Option{oci.WithArgs("true"), oci.WithNetworkNamespace("/proc/7/fd/9"), oci.WithNoFile(1024),
			oci.WithNProc(256), oci.WithDataSize(1 << 30), oci.WithoutCgroup(), oci.WithArchitecture("amd64"),
			oci.WithUserNamespace("/proc/7/fd/8", specs.LinuxIDMapping{Size: 1}, specs.LinuxIDMapping{ContainerID: 1, HostID: 1, Size: 65536}), oci.WithAnnotation("org.securebench.degraded", "memory,pids")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := oci.New(rootfs, tt.opts...)
			if err != nil {
				t.Fatal(err)
			}
			filter := s.Linux.Seccomp
			s.Linux.Seccomp = nil
			got, err := json.MarshalIndent(s, "", "\t")
			if err != nil {
				t.Fatal(err)
			}
			compare(t, tt.name+".json", string(got)+"\n")
			if tt.name == "agent-amd64" {
				compare(t, "seccomp-amd64.txt", lines(t, filter))
			}
		})
	}
}

// lines returns one line for each rule of a filter.
func lines(t *testing.T, filter *specs.LinuxSeccomp) string {
	t.Helper()
	var text strings.Builder
	for _, r := range filter.Syscalls {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(line, '\n'))
	}
	return text.String()
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("spec differs from %s (run with -update after checking):\n%s", golden, diff)
	}
}

func TestRefused(t *testing.T) {
	tests := []struct {
		name string
		opt  oci.Option
		want string
	}{
		{"empty command", oci.WithArgs(""), "the command is empty"},
		{"no arguments", oci.WithArgs(), "the command is empty"},
		{"NUL in arguments", oci.WithArgs("a", "b\x00c"), "number 1 contains a NUL byte"},
		{"environment without equals", oci.WithEnv("SECRET"), "is not NAME=value"},
		{"environment without name", oci.WithEnv("=x"), "is not NAME=value"},
		{"relative cwd", oci.WithCwd("work"), "not a clean absolute path"},
		{"unclean cwd", oci.WithCwd("/a/../b"), "not a clean absolute path"},
		{"second network namespace", oci.WithNetworkNamespace("/proc/1/ns/net"), "given twice"},
		{"relative network namespace", oci.WithNetworkNamespace("net"), "not a clean absolute path"},
		{"user namespace of no ids", oci.WithUserNamespace("/proc/7/fd/8", specs.LinuxIDMapping{}), "a mapping has size 0"},
		{"relative user namespace", oci.WithUserNamespace("user", specs.LinuxIDMapping{Size: 1}), "not a clean absolute path"},
		{"own kernel with no ids", oci.WithOwnKernel(specs.LinuxIDMapping{}), "a mapping has size 0"},
		{"relative devices", oci.WithDevices("dev"), "not a clean absolute path"},
		{"no memory", oci.WithMemoryLimit(0), "memory limit of 0 bytes is not between"},
		{"negative memory", oci.WithMemoryLimit(-1), "memory limit of -1 bytes is not between"},
		{"memory that is none", oci.WithMemoryLimit(1<<63 - 4096), "is not between"},
		{"no pids", oci.WithPidsLimit(0), "not positive"},
		{"unlimited pids", oci.WithPidsLimit(-1), "not positive"},
		{"no CPUs", oci.WithCPUs(0), "CPU limit of 0 cores"},
		{"root cgroup", oci.WithCgroup("/"), "below the root"},
		{"limits and no cgroup", oci.WithoutCgroup(), "WithoutCgroup together with"},
		{"little data", oci.WithDataSize(1 << 20), "RLIMIT_DATA: 1048576 is below 268435456"},
		{"few files", oci.WithNoFile(3), "RLIMIT_NOFILE: 3 is below 16"},
		{"second file bound", oci.WithNoFile(100), "given twice"},
		{"negative OOM score", oci.WithOOMScoreAdj(-1), "not between 0 and 1000"},
		{"unsized tmpfs", oci.WithTmpfs("/tmp", 0, 0), "no usable size"},
		{"tmpfs over proc", oci.WithTmpfs("/proc/sys", 1<<20, 10), "lies in /proc"},
		{"bind over dev", oci.WithBind("/dev/kvm", "/dev/kvm", true), "lies in /dev"},
		{"bind into sys", oci.WithBind("/sys", "/sys", false), "lies in /sys"},
		{"bind over root", oci.WithBind("/x", "/", true), "below the root"},
		{"bind unclean", oci.WithBind("/x", "/a/../proc", true), "not a clean absolute path"},
		{"bind relative source", oci.WithBind("x", "/x", true), "bind source"},
		{"capability", oci.WithCapabilities("CAP_SYS_ADMIN"), "cannot be given"},
		{"no seccomp for", oci.WithArchitecture("riscv64"), "no profile for architecture"},
		{"annotation", oci.WithAnnotation("", "x"), "annotation without a key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := oci.New(rootfs, strict(tt.opt)...)
			if err == nil || s != nil {
				t.Fatalf("accepted: %v", s)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not say %q", err, tt.want)
			}
		})
	}
}

// TestOrder: the order of options that make and that change the filter or a limit does not matter.
func TestOrder(t *testing.T) {
	opts := []oci.Option{oci.WithoutSwapLimit(), oci.WithIsolatedProcesses(), oci.WithOwnFilters(), oci.WithNetlink(), oci.WithCapabilities("CAP_SYS_CHROOT")}
	first, err := oci.New(rootfs, append(slices.Clone(opts), strict(oci.WithArchitecture("arm64"))...)...)
	if err != nil {
		t.Fatal(err)
	}
	last, err := oci.New(rootfs, append(strict(oci.WithArchitecture("arm64")), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, last); diff != "" || first.Linux.Resources.Memory.Swap != nil {
		t.Errorf("the order of options matters:\n%s", diff)
	}
}

// TestNothingIsDefaulted: one error names every missing limit.
func TestNothingIsDefaulted(t *testing.T) {
	_, err := oci.New("rootfs", oci.WithCgroup("/sbench/sandbox"))
	if err == nil {
		t.Fatal("accepted a spec without limits")
	}
	for _, want := range []string{"rootfs", "WithArgs", "WithNetworkNamespace", "WithNoFile", "WithMemoryLimit", "WithPidsLimit", "WithCPUs"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not name %s:\n%v", want, err)
		}
	}
	if _, err := oci.New(rootfs, oci.WithArgs("true"), oci.WithNetworkNamespace("/n"), oci.WithNoFile(64)); err == nil {
		t.Error("no limits at all were taken for WithoutCgroup")
	}
}

// TestRlimits: a specification has every limit of a process, so that none is inherited, and none above
// what the OCI runtime can set.
func TestRlimits(t *testing.T) {
	most := map[string]uint64{"RLIMIT_CORE": 0, "RLIMIT_STACK": 1 << 20, "RLIMIT_NOFILE": 1024, "RLIMIT_NPROC": 100, "RLIMIT_MEMLOCK": 1 << 40}
	free, err := oci.New(rootfs, strict()...)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := oci.New(rootfs, strict(oci.WithHardLimits(most), oci.WithNProc(256))...)
	if err != nil {
		t.Fatal(err)
	}
	const kinds = 16 // RLIM_NLIMITS in the kernel's asm-generic/resource.h
	seen := map[string]bool{}
	for i, l := range bound.Process.Rlimits {
		seen[l.Type] = true
		want := free.Process.Rlimits[i]
		if limit, ok := most[l.Type]; ok {
			want.Soft, want.Hard = min(want.Soft, limit), min(want.Hard, limit)
		}
		if l != want {
			t.Errorf("%+v, want %+v", l, want)
		}
	}
	if len(seen) != kinds || len(bound.Process.Rlimits) != kinds {
		t.Errorf("%d limits of %d kinds, want %d", len(bound.Process.Rlimits), len(seen), kinds)
	}
}

// TestOwnKernel: the filter for a kernel of the sandbox's own gives no error but EPERM, and leaves the rest
// to that kernel.
func TestOwnKernel(t *testing.T) {
	s, err := oci.New(rootfs, strict(oci.WithArchitecture("amd64"), oci.WithOwnKernel())...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range s.Linux.Seccomp.Syscalls {
		if r.Action != specs.ActAllow && *r.ErrnoRet != uint(unix.EPERM) {
			t.Errorf("%v: error %d", r.Names, *r.ErrnoRet)
		}
	}
	for call, want := range map[string]bool{"clone3": true, "read": true, "mq_open": false, "unshare": false} {
		if got := admits(s, call); got != want {
			t.Errorf("%s: allowed %v", call, got)
		}
	}
	if hasCgroup := slices.ContainsFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.CgroupNamespace }); hasCgroup {
		t.Error("a cgroup namespace, which such a runtime does not make")
	}
}

// TestSeccompWithinDefault: the ecosystem's default profile, computed for a process without
// capabilities, also allows every call that the filter allows.
func TestSeccompWithinDefault(t *testing.T) {
	s, err := oci.New(rootfs, strict(oci.WithArchitecture("amd64"))...)
	if err != nil {
		t.Fatal(err)
	}
	def := map[string]bool{}
	for _, r := range seccomp.DefaultProfile(s).Syscalls {
		if r.Action == specs.ActAllow {
			for _, n := range r.Names {
				def[n] = true
			}
		}
	}
	for _, r := range s.Linux.Seccomp.Syscalls {
		if r.Action != specs.ActAllow {
			continue
		}
		for _, n := range r.Names {
			if !def[n] {
				t.Errorf("%s is allowed here and refused by the default profile", n)
			}
		}
	}
}

func TestSeccompRefuses(t *testing.T) {
	s, err := oci.New(rootfs, strict(oci.WithArchitecture("amd64"))...)
	if err != nil {
		t.Fatal(err)
	}
	sec := s.Linux.Seccomp
	if sec.DefaultAction != specs.ActErrno || !slices.Equal(sec.Architectures, []specs.Arch{specs.ArchX86_64}) {
		t.Fatalf("default %s for %v", sec.DefaultAction, sec.Architectures)
	}
	for _, name := range strings.Fields(`bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register keyctl add_key
		request_key unshare setns mount umount2 move_mount open_tree fsopen pivot_root chroot init_module finit_module kexec_load reboot
		open_by_handle_at quotactl acct swapon iopl ioperm process_vm_readv kcmp pidfd_getfd socketcall syslog`) {
		for _, r := range sec.Syscalls {
			if slices.Contains(r.Names, name) && r.Action == specs.ActAllow {
				t.Errorf("%s is allowed", name)
			}
		}
	}
	for _, r := range sec.Syscalls {
		if slices.Contains(r.Names, "socket") && len(r.Args) == 0 {
			t.Error("socket without a bound family")
		}
	}
}

func TestEveryMountIsNosuidNodev(t *testing.T) {
	s, err := oci.New(rootfs, strict(oci.WithSharedMemory(1<<20), oci.WithTmpfs("/tmp", 1<<20, 100), oci.WithBind("/a", "/a", true))...)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Mounts {
		if !slices.Contains(m.Options, "nosuid") {
			t.Errorf("%s lacks nosuid", m.Destination)
		}
		holdsDevices := m.Destination == "/dev" || m.Destination == "/dev/pts"
		if !slices.Contains(m.Options, "nodev") && !holdsDevices {
			t.Errorf("%s lacks nodev", m.Destination)
		}
	}
}

func FuzzMountDestination(f *testing.F) {
	for _, s := range []string{"/workspace", "/", "/proc/../dev", "/dev/shm", "//proc", "/proc", "a", "/a\x00b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, dest string) {
		s, err := oci.New(rootfs, strict(oci.WithBind("/src", dest, true))...)
		if err != nil {
			return
		}
		got := s.Mounts[len(s.Mounts)-1].Destination
		if got != filepath.Clean(dest) || got == "/" || strings.HasPrefix(got+"/", "/proc/") || strings.HasPrefix(got+"/", "/sys/") || strings.ContainsRune(got, 0) {
			t.Errorf("%q accepted as %q", dest, got)
		}
	})
}

// verdict evaluates a specification's filter for a call, as the kernel does: "allow", or the error
// that the caller gets.
func verdict(s *specs.Spec, name string, args ...uint64) string {
	for _, r := range s.Linux.Seccomp.Syscalls {
		if !slices.Contains(r.Names, name) || slices.ContainsFunc(r.Args, func(a specs.LinuxSeccompArg) bool {
			switch a.Op {
			case specs.OpMaskedEqual:
				return args[a.Index]&a.Value != a.ValueTwo
			case specs.OpEqualTo:
				return args[a.Index] != a.Value
			case specs.OpNotEqual:
				return args[a.Index] == a.Value
			default:
				return true
			}
		}) {
			continue
		}
		if r.Action == specs.ActAllow {
			return "allow"
		}
		if *r.ErrnoRet == 0 {
			return "pretend"
		}
		return unix.ErrnoName(unix.Errno(*r.ErrnoRet))
	}
	return unix.ErrnoName(unix.Errno(*s.Linux.Seccomp.DefaultErrnoRet))
}

func admits(s *specs.Spec, name string, args ...uint64) bool {
	return verdict(s, name, args...) == "allow"
}

// TestFilters: the filter denies every call that makes the kernel install a filter, whatever the upper
// half of its argument, and allows every other call.
func TestFilters(t *testing.T) {
	s, err := oci.New(rootfs, strict(oci.WithArchitecture("amd64"))...)
	if err != nil {
		t.Fatal(err)
	}
	own, err := oci.New(rootfs, strict(oci.WithOwnFilters(), oci.WithArchitecture("amd64"))...)
	if err != nil {
		t.Fatal(err)
	}
	const garbage = 0x1234_5678_0000_0000
	denied := map[uint64][]uint64{
		0: {11, 21, 35, 37, 38, 39, 41, 42, 43, 44, 46, 48}, 1: {26, 29, 35, 37, 50, 51, 52, 63, 64, 65, 73},
		6: {8, 14, 31, 32, 37, 38, 39, 40}, 17: {100, 104}, 41: {20, 25, 27, 32, 42, 43, 44, 46, 48, 73},
	}
	for _, upper := range []uint64{0, garbage} {
		for level := range uint64(300) {
			for option := range uint64(128) {
				want := !slices.Contains(denied[level], option)
				if got := admits(s, "setsockopt", 3, level|upper, option|upper); got != want {
					t.Fatalf("setsockopt level %d option %d upper %x: %v", level, option, upper, got)
				}
				if got := admits(s, "getsockopt", 3, level|upper, option|upper); got != (level != 6 || option != 35) {
					t.Fatalf("getsockopt level %d option %d upper %x: %v", level, option, upper, got)
				}
			}
		}
		for level, option := range map[uint64]uint64{0: 11, 41: 25} {
			if got := verdict(s, "setsockopt", 3, level|upper, option|upper); got != "pretend" {
				t.Errorf("setsockopt level %d option %d upper %x: %v", level, option, upper, got)
			}
		}
		for option := range uint64(128) {
			if got := admits(s, "prctl", option|upper); got != (option != 22 && option != 62 && option != 67) {
				t.Errorf("prctl %d upper %x: %v", option, upper, got)
			}
			if got := admits(s, "seccomp", option|upper); got != (option == 2 || option == 3) {
				t.Errorf("seccomp %d upper %x: %v", option, upper, got)
			}
		}
	}
	for name, args := range map[string][]uint64{"setsockopt": {3, 1, 26}, "prctl": {22}, "seccomp": {1}, "landlock_restrict_self": {3, 0}} {
		if !admits(own, name, args...) {
			t.Errorf("%s %v is refused although it is allowed", name, args)
		}
	}
	if admits(own, "setsockopt", 3, 6, 14) {
		t.Error("who may install filters may set keys of connections, too")
	}
}

// TestVerdicts checks the filter's answers to single calls.
func TestVerdicts(t *testing.T) {
	s, err := oci.New(rootfs, strict(oci.WithArchitecture("amd64"))...)
	if err != nil {
		t.Fatal(err)
	}
	const flags = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	for _, o := range []struct {
		name, call, want string
		opts             []oci.Option
	}{
		{"chroot", "chroot", "allow", strict(oci.WithCapabilities("CAP_SYS_CHROOT"))},
		{"no chroot", "chroot", "EPERM", strict()},
		{"processes", "ptrace", "allow", strict()},
		{"sealed processes", "ptrace", "EPERM", strict(oci.WithIsolatedProcesses())},
		{"without a cgroup", "memfd_create", "ENOSYS", []oci.Option{oci.WithArgs("true"), oci.WithNetworkNamespace("/n"), oci.WithNoFile(64), oci.WithoutCgroup()}},
	} {
		s, err := oci.New(rootfs, append(o.opts, oci.WithArchitecture("arm64"))...)
		if err != nil {
			t.Fatal(err)
		}
		if got := verdict(s, o.call, 0, 0); got != o.want || s.Linux.Seccomp.Architectures[0] != specs.ArchAARCH64 {
			t.Errorf("%s: %s, want %s, on %v", o.name, got, o.want, s.Linux.Seccomp.Architectures)
		}
	}
	tests := []struct {
		want, call string
		args       []uint64
	}{
		{"allow", "socket", []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET | flags, 0}},
		{"allow", "socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, 0}},
		{"allow", "socket", []uint64{unix.AF_INET6, unix.SOCK_STREAM | flags, unix.IPPROTO_TCP}},
		{"allow", "socket", []uint64{unix.AF_INET, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC, unix.IPPROTO_UDP}},
		{"allow", "socket", []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}},
		{"allow", "socket", []uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6}},
		{"EPROTONOSUPPORT", "socket", []uint64{unix.AF_INET, unix.SOCK_STREAM | flags, unix.IPPROTO_MPTCP}},
		{"EPROTONOSUPPORT", "socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}},
		{"ENOSYS", "socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}},
		{"EPROTONOSUPPORT", "socket", []uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}},
		{"EPERM", "socket", []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE}},
		{"EPERM", "socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}},
		{"EPERM", "socket", []uint64{unix.AF_INET, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP}},
		{"EPERM", "socket", []uint64{unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP}},
		{"EPERM", "socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, 256}}, // SMC
		{"EPERM", "socket", []uint64{unix.AF_INET, unix.SOCK_RAW, 0}},
		{"EPERM", "socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, 1<<32 | unix.IPPROTO_TCP}},
		{"EPERM", "socket", []uint64{unix.AF_SMC, unix.SOCK_STREAM, 0}},
		{"ENOSYS", "socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, 0}},
		{"EPERM", "ioctl", []uint64{0, unix.TIOCSETD}},
		{"EPERM", "ioctl", []uint64{0, 1<<40 | unix.TIOCSETD}},
		{"EPERM", "ioctl", []uint64{0, 0x8940}},
		{"EPERM", "ioctl", []uint64{0, 0x8983}},
		{"EPERM", "ioctl", []uint64{0, 0x89a1}},
		{"EPERM", "ioctl", []uint64{0, 0x8906}},     // SIOCGSTAMP
		{"EPERM", "ioctl", []uint64{0, 0x80108907}}, // SIOCGSTAMPNS_NEW
		{"allow", "ioctl", []uint64{0, 0x8905}},     // SIOCATMARK
		{"pretend", "ioprio_set", []uint64{1, 0, 2 << 13}},
		{"allow", "ioctl", []uint64{0, unix.TIOCGWINSZ}},
		{"allow", "ioctl", []uint64{0, unix.TIOCSETD - 1}},
		{"allow", "ioctl", []uint64{0, unix.FICLONE}},
		{"allow", "ioctl", []uint64{0, 0xffffffff}},
		{"EINVAL", "prctl", []uint64{unix.PR_SET_VMA, unix.PR_SET_VMA_ANON_NAME}},
		{"EINVAL", "prctl", []uint64{unix.PR_SET_MEMORY_MERGE, 1}},
		{"allow", "prctl", []uint64{unix.PR_SET_PTRACER}},
		{"EINVAL", "madvise", []uint64{0, 0, 1<<32 | unix.MADV_MERGEABLE}},
		{"allow", "madvise", []uint64{0, 0, unix.MADV_HUGEPAGE}},
		{"pretend", "setrlimit", []uint64{unix.RLIMIT_CORE, 8}},
		{"allow", "setrlimit", []uint64{unix.RLIMIT_NOFILE, 8}},
		{"pretend", "prlimit64", []uint64{0, 1<<32 | unix.RLIMIT_CORE, 8, 0}},
		{"allow", "prlimit64", []uint64{0, unix.RLIMIT_CORE, 0, 8}},
		{"allow", "prlimit64", []uint64{0, unix.RLIMIT_STACK, 8, 0}},
	}
	for _, tt := range tests {
		if got := verdict(s, tt.call, tt.args...); got != tt.want {
			t.Errorf("%s %x: %s, want %s", tt.call, tt.args, got, tt.want)
		}
	}
}
