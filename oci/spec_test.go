package oci_test

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/oci"
)

var update = flag.Bool("update", false, "write the golden files anew")

// strict returns what an agent's sandbox has, without its mounts, changed for amd64.
func strict(changes ...func(*oci.Config)) oci.Config {
	c := oci.Config{
		Rootfs: "/run/sbench/sandbox/rootfs", Args: []string{"sh", "-c", "true"}, Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}, Cwd: "/workspace",
		Network: "/proc/7/fd/9", Files: 4096, OOMScoreAdj: 500,
		Limits: oci.Limits{Cgroup: "/sbench-run/sandbox", Memory: 1 << 30, Pids: 256, CPUs: 1.5},
	}
	for _, change := range changes {
		change(&c)
	}
	return c.For("amd64")
}

func spec(t *testing.T, c oci.Config) *specs.Spec {
	t.Helper()
	s, err := oci.New(c)
	must.Do(t, err)
	return s
}

// withoutCgroup changes the limits to those of a host without control groups.
func withoutCgroup(c *oci.Config) {
	c.Limits = oci.Limits{WithoutCgroup: true, Processes: 256, Data: 1 << 30}
}

// TestGolden: agent-amd64.json has a whole specification, and the other files what a change of its
// configuration makes different.
func TestGolden(t *testing.T) {
	agent := func(c *oci.Config) {
		c.SharedMemory, c.Tmpfs = 64<<20, []oci.Tmpfs{{Dest: "/tmp", Bytes: 256 << 20, Inodes: 65536}}
		c.Binds = []oci.Bind{{Source: "/run/sbench/sandbox/workspace", Dest: "/workspace", Writable: true}, {Source: "/run/sbench/hosts", Dest: "/etc/hosts"}}
	}
	whole := spec(t, strict(agent))
	compare(t, "seccomp-amd64.txt", lines(t, *whole.Linux.Seccomp))
	compare(t, "agent-amd64.json", text(t, plain(whole)))
	ids := []specs.LinuxIDMapping{{HostID: 1 << 30, Size: 65536}}
	for name, config := range map[string]oci.Config{
		"agent-arm64":        strict(agent, func(c *oci.Config) { c.User = specs.User{UID: 1000, GID: 1000, AdditionalGids: []uint32{4, 20}} }).For("arm64"),
		"verifier-chroot":    strict(agent, func(c *oci.Config) { c.Capabilities = []string{"CAP_SYS_CHROOT"} }),
		"verifier-sealed":    strict(agent, func(c *oci.Config) { c.IsolatedProcesses = true }),
		"no-swap-accounting": strict(agent, func(c *oci.Config) { c.Limits.WithoutSwap = true }),
		"own-ids": strict(agent, func(c *oci.Config) {
			c.Devices, c.UserNamespace, c.Mappings = "/run/sbench/sandbox/dev", "/proc/7/fd/10", ids
		}),
		"own-kernel": strict(agent, func(c *oci.Config) { c.OwnKernel, c.Mappings, c.IsolatedProcesses = true, ids, true }),
		"without-cgroup": strict(agent, withoutCgroup, func(c *oci.Config) {
			c.UserNamespace, c.Mappings = "/proc/7/fd/8", []specs.LinuxIDMapping{{Size: 1}, {ContainerID: 1, HostID: 1, Size: 65536}}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, name+".json", text(t, changed(tree(t, plain(whole)), tree(t, plain(spec(t, config))))))
		})
	}
}

// plain returns a specification without its filter.
func plain(s *specs.Spec) specs.Spec {
	linux := *s.Linux
	linux.Seccomp = nil
	without := *s
	without.Linux = &linux
	return without
}

// tree returns a value as JSON has it.
func tree(t *testing.T, v any) (all any) {
	t.Helper()
	must.Do(t, json.Unmarshal([]byte(text(t, v)), &all))
	return all
}

func text(t *testing.T, v any) string {
	t.Helper()
	indented, err := json.MarshalIndent(v, "", "\t")
	must.Do(t, err)
	return string(indented) + "\n"
}

// changed returns what is different in the second of two trees: objects without what they share, and null
// for what it lacks.
func changed(from, to any) any {
	a, isObject := from.(map[string]any)
	b, both := to.(map[string]any)
	if !isObject || !both {
		return to
	}
	all := map[string]any{}
	for key := range a {
		if !cmp.Equal(a[key], b[key]) {
			all[key] = changed(a[key], b[key])
		}
	}
	for key, value := range b {
		if _, ok := a[key]; !ok {
			all[key] = value
		}
	}
	return all
}

// lines returns a line for what a filter does by default, and for each rule.
func lines(t *testing.T, filter specs.LinuxSeccomp) string {
	t.Helper()
	rules := filter.Syscalls
	filter.Syscalls = nil
	all := []any{filter}
	for _, r := range rules {
		all = append(all, r)
	}
	var text strings.Builder
	for _, v := range all {
		line := must.JSON(t, v)
		text.Write(append(line, '\n'))
	}
	return text.String()
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if *update {
		must.Do(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want := must.Read(t, golden)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("spec differs from %s, which make golden writes:\n%s", golden, diff)
	}
}

func TestRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*oci.Config)
		want   string
	}{
		{"empty command", func(c *oci.Config) { c.Args = []string{""} }, "the command is empty"},
		{"no arguments", func(c *oci.Config) { c.Args = nil }, "the command is empty"},
		{"NUL in arguments", func(c *oci.Config) { c.Args = []string{"a", "b\x00c"} }, "number 1 contains a NUL byte"},
		{"environment without equals", func(c *oci.Config) { c.Env = []string{"SECRET"} }, "is not NAME=value"},
		{"environment without name", func(c *oci.Config) { c.Env = []string{"=x"} }, "is not NAME=value"},
		{"relative cwd", func(c *oci.Config) { c.Cwd = "work" }, "not a clean absolute path"},
		{"unclean cwd", func(c *oci.Config) { c.Cwd = "/a/../b" }, "not a clean absolute path"},
		{"relative root", func(c *oci.Config) { c.Rootfs = "rootfs" }, "rootfs"},
		{"relative network namespace", func(c *oci.Config) { c.Network = "net" }, "not a clean absolute path"},
		{"user namespace of no ids", func(c *oci.Config) { c.UserNamespace, c.Mappings = "/proc/7/fd/8", make([]specs.LinuxIDMapping, 1) }, "a mapping has size 0"},
		{"ids and no user namespace", func(c *oci.Config) { c.Mappings = []specs.LinuxIDMapping{{Size: 1}} }, "mappings without a user namespace"},
		{"relative user namespace", func(c *oci.Config) { c.UserNamespace = "user" }, "not a clean absolute path"},
		{"own kernel in a user namespace", func(c *oci.Config) { c.OwnKernel, c.UserNamespace = true, "/proc/7/fd/8" }, "given to a kernel of the sandbox's own"},
		{"relative devices", func(c *oci.Config) { c.Devices = "dev" }, "not a clean absolute path"},
		{"unclean read-only path", func(c *oci.Config) { c.ReadOnly = []string{"/a/../b"} }, "not a clean absolute path"},
		{"no memory", func(c *oci.Config) { c.Limits.Memory = 0 }, "memory limit of 0 bytes is not between"},
		{"negative memory", func(c *oci.Config) { c.Limits.Memory = -1 }, "memory limit of -1 bytes is not between"},
		{"memory that is none", func(c *oci.Config) { c.Limits.Memory = 1<<63 - 4096 }, "is not between"},
		{"no pids", func(c *oci.Config) { c.Limits.Pids = 0 }, "not positive"},
		{"unlimited pids", func(c *oci.Config) { c.Limits.Pids = -1 }, "not positive"},
		{"no CPUs", func(c *oci.Config) { c.Limits.CPUs = 0 }, "CPU limit of 0 cores"},
		{"CPUs that are no number", func(c *oci.Config) { c.Limits.CPUs = math.NaN() }, "CPU limit of NaN cores"},
		{"CPUs and none", func(c *oci.Config) { c.Limits.WithoutCPUs = true }, "WithoutCPUs together with"},
		{"root cgroup", func(c *oci.Config) { c.Limits.Cgroup = "/" }, "below the root"},
		{"limits and no cgroup", func(c *oci.Config) { c.Limits.WithoutCgroup = true }, "WithoutCgroup together with"},
		{"no limits at all", func(c *oci.Config) { c.Limits = oci.Limits{} }, "memory limit of 0 bytes"},
		{"little data", func(c *oci.Config) { withoutCgroup(c); c.Limits.Data = 1 << 20 }, "RLIMIT_DATA: 1048576 is below 268435456"},
		{"few files", func(c *oci.Config) { c.Files = 3 }, "RLIMIT_NOFILE: 3 is below 16"},
		{"negative OOM score", func(c *oci.Config) { c.OOMScoreAdj = -1 }, "not between 0 and 1000"},
		{"unsized tmpfs", func(c *oci.Config) { c.Tmpfs = []oci.Tmpfs{{Dest: "/tmp"}} }, "no usable size"},
		{"tmpfs over proc", func(c *oci.Config) { c.Tmpfs = []oci.Tmpfs{{Dest: "/proc/sys", Bytes: 1 << 20, Inodes: 10}} }, "lies in /proc"},
		{"bind over dev", func(c *oci.Config) { c.Binds = []oci.Bind{{Source: "/dev/kvm", Dest: "/dev/kvm"}} }, "lies in /dev"},
		{"bind into sys", func(c *oci.Config) { c.Binds = []oci.Bind{{Source: "/sys", Dest: "/sys"}} }, "lies in /sys"},
		{"bind over root", func(c *oci.Config) { c.Binds = []oci.Bind{{Source: "/x", Dest: "/"}} }, "below the root"},
		{"bind unclean", func(c *oci.Config) { c.Binds = []oci.Bind{{Source: "/x", Dest: "/a/../proc"}} }, "not a clean absolute path"},
		{"bind relative source", func(c *oci.Config) { c.Binds = []oci.Bind{{Source: "x", Dest: "/x"}} }, "bind source"},
		{"two binds", func(c *oci.Config) { c.Binds = []oci.Bind{{Source: "/x", Dest: "/y"}, {Source: "/z", Dest: "/y"}} }, "given twice"},
		{"capability", func(c *oci.Config) { c.Capabilities = []string{"CAP_SYS_ADMIN"} }, "cannot be given"},
		{"capability without a user namespace", func(c *oci.Config) { c.Capabilities = []string{"CAP_CHOWN"} }, "needs a user namespace"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := oci.New(strict(tt.change))
			if err == nil || s != nil {
				t.Fatalf("accepted: %v", s)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not say %q", err, tt.want)
			}
		})
	}
	if s, err := oci.New(strict().For("riscv64")); err == nil {
		t.Errorf("an unknown architecture is accepted: %v", s)
	}
}

// TestRlimits: a specification has every limit of a process, so that none is inherited, and none above
// what the OCI runtime can set.
func TestRlimits(t *testing.T) {
	most := map[string]uint64{"RLIMIT_CORE": 0, "RLIMIT_STACK": 1 << 20, "RLIMIT_NOFILE": 1024, "RLIMIT_NPROC": 100, "RLIMIT_MEMLOCK": 1 << 40}
	free, bound := spec(t, strict(withoutCgroup)), spec(t, strict(withoutCgroup, func(c *oci.Config) { c.HardLimits = most }))
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
	s := spec(t, strict(func(c *oci.Config) { c.OwnKernel = true }))
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
	s := spec(t, strict())
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

func FuzzMountDestination(f *testing.F) {
	for _, s := range []string{"/workspace", "/", "/proc/../dev", "/dev/shm", "//proc", "/proc", "a", "/a\x00b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, dest string) {
		s, err := oci.New(strict(func(c *oci.Config) { c.Binds = []oci.Bind{{Source: "/src", Dest: dest}} }))
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
	s := spec(t, strict())
	own := spec(t, strict(func(c *oci.Config) { c.OwnFilters = true }))
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
	s := spec(t, strict())
	const flags = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	for _, o := range []struct {
		name, call, want string
		change           func(*oci.Config)
	}{
		{"chroot", "chroot", "allow", func(c *oci.Config) { c.Capabilities = []string{"CAP_SYS_CHROOT"} }},
		{"no chroot", "chroot", "EPERM", func(*oci.Config) {}},
		{"processes", "ptrace", "allow", func(*oci.Config) {}},
		{"sealed processes", "ptrace", "EPERM", func(c *oci.Config) { c.IsolatedProcesses = true }},
		{"without a cgroup", "memfd_create", "ENOSYS", withoutCgroup},
	} {
		s := spec(t, strict(o.change).For("arm64"))
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
		{"pretend", "sync", nil},
		{"pretend", "syncfs", []uint64{3}},
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
