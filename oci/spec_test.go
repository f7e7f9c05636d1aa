package oci_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/securebench/sbench/oci"
)

var update = flag.Bool("update", false, "write the golden files anew")

const rootfs = "/run/sbench/box/rootfs"

// strict is what an agent's sandbox gets, less its mounts.
func strict(extra ...oci.Option) []oci.Option {
	return append([]oci.Option{
		oci.WithArgs("sh", "-c", "true"),
		oci.WithEnv("PATH=/usr/bin:/bin", "LANG=C.UTF-8"),
		oci.WithCwd("/workspace"),
		oci.WithNetworkNamespace("/proc/7/fd/9"),
		oci.WithCgroup("/sbench-run/box"),
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
		{"agent-amd64", strict(oci.WithSeccomp("amd64"), oci.WithSharedMemory(64<<20), oci.WithTmpfs("/tmp", 256<<20, 65536),
			oci.WithBind("/run/sbench/box/workspace", "/workspace", true), oci.WithBind("/run/sbench/hosts", "/etc/hosts", false))},
		{"agent-arm64", strict(oci.WithSeccomp("arm64"), oci.WithUser(1000, 1000, 4, 20))},
		{"verifier-chroot-amd64", strict(oci.WithCapabilities("CAP_SYS_CHROOT"), oci.WithSeccomp("amd64"))},
		{"verifier-sealed-amd64", strict(oci.WithSealedProcesses(), oci.WithSeccomp("amd64"))},
		{"no-swap-accounting-amd64", strict(oci.WithSeccomp("amd64"), oci.WithoutSwapLimit())},
		{"own-ids-amd64", strict(oci.WithSeccomp("amd64"), oci.WithDevices("/run/sbench/box/dev"),
			oci.WithUserNamespace("/proc/7/fd/10", specs.LinuxIDMapping{HostID: 1 << 30, Size: 65536}))},
		{"without-cgroup-amd64", []oci.Option{oci.WithArgs("true"), oci.WithNetworkNamespace("/proc/7/fd/9"), oci.WithNoFile(1024),
			oci.WithNProc(256), oci.WithDataSize(1 << 30), oci.WithoutCgroup(), oci.WithSeccomp("amd64"),
			oci.WithUserNamespace("/proc/7/fd/8", specs.LinuxIDMapping{Size: 1}, specs.LinuxIDMapping{ContainerID: 1, HostID: 1, Size: 65536}), oci.WithAnnotation("org.securebench.degraded", "memory,pids")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := oci.New(rootfs, tt.opts...)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(s, "", "\t")
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", tt.name+".json")
			if *update {
				if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
				t.Errorf("spec differs from %s (run with -update after checking):\n%s", golden, diff)
			}
		})
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
		{"NUL in arguments", oci.WithArgs("a", "b\x00c"), "number 1 holds a NUL byte"},
		{"environment without equals", oci.WithEnv("SECRET"), "is not NAME=value"},
		{"environment without name", oci.WithEnv("=x"), "is not NAME=value"},
		{"relative cwd", oci.WithCwd("work"), "not a clean absolute path"},
		{"unclean cwd", oci.WithCwd("/a/../b"), "not a clean absolute path"},
		{"second network namespace", oci.WithNetworkNamespace("/proc/1/ns/net"), "given twice"},
		{"relative network namespace", oci.WithNetworkNamespace("net"), "not a clean absolute path"},
		{"user namespace of no ids", oci.WithUserNamespace("/proc/7/fd/8", specs.LinuxIDMapping{}), "a mapping of no ids"},
		{"relative user namespace", oci.WithUserNamespace("user", specs.LinuxIDMapping{Size: 1}), "not a clean absolute path"},
		{"relative devices", oci.WithDevices("dev"), "not a clean absolute path"},
		{"no memory", oci.WithMemoryLimit(0), "memory limit of 0 bytes is below"},
		{"negative memory", oci.WithMemoryLimit(-1), "memory limit of -1 bytes is below"},
		{"no pids", oci.WithPidsLimit(0), "not positive"},
		{"unlimited pids", oci.WithPidsLimit(-1), "not positive"},
		{"no CPUs", oci.WithCPUs(0), "CPU limit of 0 cores"},
		{"root cgroup", oci.WithCgroup("/"), "below the root"},
		{"limits and no cgroup", oci.WithoutCgroup(), "WithoutCgroup together with"},
		{"no limits after seccomp", func(s *specs.Spec) error {
			return errors.Join(oci.WithSeccomp("amd64")(s), oci.WithoutCgroup()(s))
		}, "WithoutCgroup after WithSeccomp"},
		{"little data", oci.WithDataSize(1 << 20), "below 256 MiB"},
		{"few files", oci.WithNoFile(3), "below 16"},
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
		{"no seccomp for", oci.WithSeccomp("riscv64"), "no profile for architecture"},
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

// TestNothingIsDefaulted: each limit that is left out is named, all at once.
func TestNothingIsDefaulted(t *testing.T) {
	_, err := oci.New("rootfs", oci.WithCgroup("/sbench/box"))
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

// TestSeccompWithinDefault: nothing is allowed that the ecosystem's default
// profile, computed for a process without capabilities, would refuse.
func TestSeccompWithinDefault(t *testing.T) {
	s, err := oci.New(rootfs, strict(oci.WithSeccomp("amd64"))...)
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
	s, err := oci.New(rootfs, strict(oci.WithSeccomp("amd64"))...)
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
		if slices.Contains(r.Names, "socket") && len(r.Args) != 1 {
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

// admits evaluates a specification's filter for a call, as the kernel does.
func admits(s *specs.Spec, name string, args ...uint64) bool {
	for _, r := range s.Linux.Seccomp.Syscalls {
		if r.Action != specs.ActAllow || !slices.Contains(r.Names, name) {
			continue
		}
		if !slices.ContainsFunc(r.Args, func(a specs.LinuxSeccompArg) bool {
			switch a.Op {
			case specs.OpMaskedEqual:
				return args[a.Index]&a.Value != a.ValueTwo
			case specs.OpEqualTo:
				return args[a.Index] != a.Value
			default:
				return true
			}
		}) {
			return true
		}
	}
	return false
}

// TestFilters: no argument that the kernel takes for the installation of a filter
// passes, whatever its upper half, and everything else does.
func TestFilters(t *testing.T) {
	s, err := oci.New(rootfs, strict(oci.WithSeccomp("amd64"))...)
	if err != nil {
		t.Fatal(err)
	}
	own, err := oci.New(rootfs, strict(oci.WithOwnFilters(), oci.WithSeccomp("amd64"))...)
	if err != nil {
		t.Fatal(err)
	}
	const garbage = 0x1234_5678_0000_0000
	denied := map[uint64][]uint64{1: {26, 50, 51, 52}, 6: {14, 32, 38, 39, 40}, 41: {32}}
	for _, upper := range []uint64{0, garbage} {
		for level := range uint64(300) {
			for option := range uint64(100) {
				want := !slices.Contains(denied[level], option)
				if got := admits(s, "setsockopt", 3, level|upper, option|upper); got != want {
					t.Fatalf("setsockopt level %d option %d upper %x: %v", level, option, upper, got)
				}
			}
		}
		for option := range uint64(128) {
			if got := admits(s, "prctl", option|upper); got != (option != 22) {
				t.Errorf("prctl %d upper %x: %v", option, upper, got)
			}
			if got := admits(s, "seccomp", option|upper); got != (option == 2 || option == 3) {
				t.Errorf("seccomp %d upper %x: %v", option, upper, got)
			}
		}
	}
	for _, option := range []uint64{0x59616d61, 0x53564d41} { // PR_SET_PTRACER, PR_SET_VMA
		if !admits(s, "prctl", option) {
			t.Errorf("prctl %x is refused", option)
		}
	}
	for name, args := range map[string][]uint64{"setsockopt": {3, 1, 26}, "prctl": {22}, "seccomp": {1}} {
		if !admits(own, name, args...) {
			t.Errorf("%s %v is refused although it is allowed", name, args)
		}
	}
}
