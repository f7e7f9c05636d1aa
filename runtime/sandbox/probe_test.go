package sandbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/containerdtest"
)

// probeVariable turns the test binary into the probe: it then makes the attempt that the
// variable names, inside a sandbox, and its exit code is the outcome.
const probeVariable = "SBENCH_PROBE"

// Exit codes of the probe.
const (
	escaped = 40 // the attempt succeeded
	refused = 41 // it failed, as it must
	broken  = 42 // there is no such attempt
)

func TestMain(m *testing.M) {
	if name := os.Getenv(probeVariable); name != "" {
		os.Exit(probe(name))
	}
	containerdtest.Enter()
	os.Exit(m.Run())
}

func probe(name string) int {
	runtime.LockOSThread()
	if name == allCalls {
		if err := tryCalls(); err != nil {
			fmt.Println(err)
			return broken
		}
		return 0
	}
	for _, a := range attempts() {
		if a.name != name {
			continue
		}
		err := a.try()
		if err == nil {
			fmt.Println("succeeded")
			return escaped
		}
		fmt.Println(err)
		return refused
	}
	fmt.Printf("no attempt is called %q\n", name)
	return broken
}

// An attempt is something that must fail in a sandbox. try returns nil if it succeeded.
type attempt struct {
	name string
	try  func() error
	// want are the errors that mean refusal; any other means that the probe is wrong.
	want []error
	// control means that root on the host can do it, and that the test checks this, to find
	// attempts that always fail. It is only for attempts that leave no trace.
	control bool
	// hostRoot means that the control needs the host's root, not that of a user namespace.
	hostRoot bool
}

func attempts() []attempt {
	all := slices.Concat(privilegeAttempts(), fileAttempts(), namespaceAttempts(), kernelAttempts(), filterAttempts(), tellingAttempts(), networkAttempts())
	return append(all, limitAttempts()...)
}

func call(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	r, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return errno
	}
	if number == unix.SYS_SOCKET || number == unix.SYS_IO_URING_SETUP || number == unix.SYS_BPF || number == unix.SYS_PERF_EVENT_OPEN || number == unix.SYS_USERFAULTFD {
		_ = unix.Close(int(r))
	}
	return nil
}

func perm() []error { return []error{unix.EPERM} }

func privilegeAttempts() []attempt {
	return []attempt{
		{name: "hold a capability", try: holdCapability, want: []error{errNone}, control: true},
		{name: "raise an ambient capability", try: func() error {
			return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_NET_ADMIN, 0, 0)
		}, want: perm()},
		{name: "setuid program", try: runSetuid, want: []error{errNone}},
		{name: "unset no new privileges", try: func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) }, want: []error{unix.EINVAL}},
		{name: "become another user", try: func() error { return syscall.Setresuid(12345, 12345, 12345) }, want: perm()},
		{name: "give a file away", try: func() error {
			if err := os.WriteFile("/tmp/mine", nil, 0o644); err != nil {
				return errors.Join(errSetup, err)
			}
			return unix.Chown("/tmp/mine", 12345, 12345)
		}, want: perm()},
		{name: "ptrace the first process of another", try: func() error { return unix.PtraceAttach(2) }, want: []error{unix.ESRCH, unix.EPERM}},
		{name: "lower the OOM score", try: func() error { return os.WriteFile("/proc/self/oom_score_adj", []byte("-500"), 0) }, want: []error{unix.EACCES, unix.EPERM}},
		{name: "raise a resource limit", try: func() error {
			return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20})
		}, want: perm()},
		{name: "have the host's handler of core files", try: func() error {
			var now unix.Rlimit
			err := errors.Join(unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}), unix.Prlimit(0, unix.RLIMIT_CORE, &unix.Rlimit{}, nil), unix.Getrlimit(unix.RLIMIT_CORE, &now))
			if err != nil {
				return errors.Join(errSetup, err)
			}
			if now != (unix.Rlimit{Cur: 1, Max: 1}) { // see noCores in oci/spec.go
				return nil
			}
			return errNone
		}, want: []error{errNone}, control: true},
	}
}

var (
	errNone  = errors.New("nothing gained")
	errSetup = errors.New("the probe could not even try")
)

func holdCapability() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return errors.Join(errSetup, err)
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if strings.HasPrefix(name, "Cap") && strings.Trim(value, "0") != "" {
			return nil
		}
	}
	return errNone
}

// runSetuid executes a setuid program that is owned by root.
func runSetuid() error {
	out, err := exec.Command("/work/setuid-probe", "-u").CombinedOutput() // see copySetuid
	if strings.TrimSpace(string(out)) == "0" {
		return nil
	}
	return fmt.Errorf("%w: ran as %q, %v", errNone, out, err)
}

func fileAttempts() []attempt {
	write := func(name string) func() error {
		return func() error {
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		}
	}
	ro := []error{unix.EROFS}
	// Of the host's root, which a sandbox's is not where it has ids of its own.
	hosts := []error{unix.EROFS, unix.EACCES}
	gone := []error{unix.EROFS, unix.ENOENT, unix.EACCES}
	return []attempt{
		{name: "a lease on a file", try: func() error {
			f, err := os.Open("/etc/hosts")
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
			return err
		}, want: []error{unix.EPERM}},
		{name: "be told of changes of a directory", try: func() error {
			f, err := os.Open("/etc")
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			_, err = unix.FcntlInt(f.Fd(), 0x402, 4) // F_NOTIFY, DN_CREATE
			return err
		}, want: []error{unix.EPERM}},
		{name: "write to the root", try: write("/new"), want: ro},
		{name: "write to etc", try: write("/etc/passwd"), want: ro},
		{name: "write to hosts", try: write("/etc/hosts"), want: ro},
		{name: "write core_pattern", try: write("/proc/sys/kernel/core_pattern"), want: hosts},
		{name: "write sysrq", try: write("/proc/sysrq-trigger"), want: gone},
		{name: "write sys", try: write("/sys/kernel/uevent_helper"), want: gone},
		{name: "write cgroup", try: write("/sys/fs/cgroup/memory/memory.limit_in_bytes"), want: gone},
		{name: "read kcore", try: readSome("/proc/kcore"), want: []error{errNone, unix.ENOENT, unix.EPERM, unix.EACCES}},
		{name: "read host memory", try: readSome("/dev/mem"), want: []error{unix.ENOENT}},
		{name: "read a host disk", try: readSome("/dev/vda"), want: []error{unix.ENOENT}},
		{name: "make a device", try: func() error { return unix.Mknod("/tmp/disk", unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0))) }, want: perm()},
		{name: "make a character device", try: func() error { return unix.Mknod("/dev/mem2", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1))) }, want: perm()},
		{name: "mount without nosuid or nodev", try: looseMount, want: []error{errNone}, control: true},
		{name: "unexpected device", try: unexpectedDevice, want: []error{errNone}, control: true},
	}
}

func readSome(name string) func() error {
	return func() error {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if n, _ := f.Read(make([]byte, 16)); n > 0 {
			return nil
		}
		return errNone
	}
}

// looseMount checks the flags of every mount in the sandbox. Only /dev and mounts that hold
// a device may lack nodev, and the root must be read-only.
func looseMount() error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return errors.Join(errSetup, err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		point, flags := fields[4], strings.Split(fields[5], ",")
		device := point == "/dev" || strings.HasPrefix(point, "/dev/") && point != "/dev/shm"
		// The OCI runtime masks a path with /dev/null or with an empty read-only tmpfs.
		masked := strings.HasPrefix(point, "/proc/") && (fields[3] == "/null" || slices.Contains(flags, "ro"))
		// In a user namespace, where devices cannot be made, the runtime binds the host's.
		bound := device && fields[3] == "/"+filepath.Base(point) && slices.Contains(strings.Fields("null zero full tty random urandom"), filepath.Base(point))
		switch {
		case !slices.Contains(flags, "nosuid") && !masked && !bound,
			!slices.Contains(flags, "nodev") && !device && !masked,
			point == "/" && !slices.Contains(flags, "ro"):
			fmt.Println(line)
			return nil
		}
	}
	return errNone
}

func unexpectedDevice() error {
	expected := strings.Fields("console core fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero")
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return errors.Join(errSetup, err)
	}
	for _, e := range entries {
		if !slices.Contains(expected, e.Name()) {
			fmt.Println(e.Name())
			return nil
		}
	}
	return errNone
}

func namespaceAttempts() []attempt {
	text := func(s string) uintptr { return uintptr(unsafe.Pointer(&append([]byte(s), 0)[0])) }
	unshare := func(flags int) func() error { return func() error { return unix.Unshare(flags) } }
	clone := func(flags uintptr) func() error {
		return func() error {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = []string{probeVariable + "=none"}
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
			var exit *exec.ExitError
			if err := cmd.Run(); errors.As(err, &exit) || err == nil {
				return nil // it ran
			} else {
				return err
			}
		}
	}
	return []attempt{
		{name: "unshare user", try: unshare(unix.CLONE_NEWUSER), want: perm()},
		{name: "unshare mount", try: unshare(unix.CLONE_NEWNS), want: perm(), control: true},
		{name: "unshare network", try: unshare(unix.CLONE_NEWNET), want: perm(), control: true},
		{name: "unshare pid", try: unshare(unix.CLONE_NEWPID), want: perm()},
		{name: "unshare ipc", try: unshare(unix.CLONE_NEWIPC), want: perm(), control: true},
		{name: "unshare cgroup", try: unshare(unix.CLONE_NEWCGROUP), want: perm(), control: true},
		{name: "unshare time", try: unshare(unix.CLONE_NEWTIME), want: perm()},
		{name: "clone a user namespace", try: clone(unix.CLONE_NEWUSER), want: perm(), control: true},
		{name: "clone a mount namespace", try: clone(unix.CLONE_NEWNS), want: perm(), control: true},
		{name: "setns", try: func() error {
			fd, err := unix.Open("/proc/1/ns/mnt", unix.O_RDONLY, 0)
			if err != nil {
				return errors.Join(errSetup, err)
			}
			return unix.Setns(fd, 0)
		}, want: perm()},
		{name: "mount tmpfs", try: func() error { return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "") }, want: perm()},
		{name: "mount proc", try: func() error { return unix.Mount("proc", "/tmp", "proc", 0, "") }, want: perm()},
		{name: "mount sysfs", try: func() error { return unix.Mount("sysfs", "/tmp", "sysfs", 0, "") }, want: perm()},
		{name: "mount cgroup", try: func() error { return unix.Mount("cgroup", "/tmp", "cgroup", 0, "memory") }, want: perm()},
		{name: "remount root writable", try: func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") }, want: perm()},
		{name: "unmount", try: func() error { return unix.Unmount("/proc/sys", unix.MNT_DETACH) }, want: perm()},
		{name: "fsopen", try: func() error { return call(unix.SYS_FSOPEN, text("tmpfs"), 0) }, want: perm()},
		{name: "open_tree", try: func() error { return call(unix.SYS_OPEN_TREE, 0, text("/"), 1) }, want: perm()},
		{name: "move_mount", try: func() error { return call(unix.SYS_MOVE_MOUNT, 0, text("/tmp"), 0, text("/"), 0) }, want: perm()},
		{name: "pivot_root", try: func() error { return unix.PivotRoot("/tmp", "/tmp") }, want: perm()},
		{name: "chroot", try: func() error { return unix.Chroot("/") }, want: perm(), control: true},
		{name: "set the host name", try: func() error { return unix.Sethostname([]byte("x")) }, want: perm()},
	}
}

func kernelAttempts() []attempt {
	return []attempt{
		{name: "bpf", try: func() error {
			// A one-entry array map: type 2, key 4, value 4, entries 1.
			spec := []uint32{2, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
			return call(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&spec[0])), uintptr(len(spec)*4))
		}, want: perm(), control: true, hostRoot: true},
		{name: "perf_event_open", try: func() error {
			a := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
			return call(unix.SYS_PERF_EVENT_OPEN, uintptr(unsafe.Pointer(&a)), 0, ^uintptr(0), ^uintptr(0), 0)
		}, want: perm(), control: true, hostRoot: true},
		{name: "keyctl", try: func() error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_PROCESS_KEYRING, true); return err }, want: perm(), control: true},
		{name: "add_key", try: func() error {
			_, err := unix.AddKey("user", "sbench-probe", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
			return err
		}, want: perm(), control: true},
		{name: "io_uring", try: func() error {
			var params [120]byte
			return call(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params[0])))
		}, want: perm(), control: true},
		{name: "userfaultfd of the user", try: func() error { return call(unix.SYS_USERFAULTFD, 0) }, want: perm(), control: true, hostRoot: true},
		{name: "read the kernel log", try: func() error { _, err := unix.Klogctl(3, make([]byte, 256)); return err }, want: perm(), control: true, hostRoot: true},
		{name: "set the clock", try: func() error { return unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: 1}) }, want: perm()},
	}
}

func networkAttempts() []attempt {
	dial := func(network, address string) func() error {
		return func() error {
			c, err := net.DialTimeout(network, address, 3*time.Second)
			if err != nil {
				return err
			}
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
			return c.Close()
		}
	}
	unreachable := []error{unix.ENETUNREACH, unix.EADDRNOTAVAIL}
	return []attempt{
		{name: "connect out", try: dial("tcp", "192.0.2.1:443"), want: unreachable},
		{name: "connect to the metadata address", try: dial("tcp", "169.254.169.254:80"), want: unreachable},
		{name: "connect out by IPv6", try: dial("tcp", "[2001:db8::1]:443"), want: unreachable},
		{name: "send a datagram", try: dial("udp", "192.0.2.1:53"), want: unreachable},
		{name: "another interface than lo", try: func() error {
			text, err := os.ReadFile("/proc/net/dev")
			fd, socketErr := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			if err := errors.Join(err, socketErr); err != nil {
				return errors.Join(errSetup, err)
			}
			for line := range strings.Lines(string(text)) {
				name, _, ok := strings.Cut(strings.TrimSpace(line), ":")
				if !ok || name == "lo" {
					continue
				}
				request, err := unix.NewIfreq(name)
				if err == nil {
					err = unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request)
				}
				if err != nil {
					return errors.Join(errSetup, err)
				}
				if request.Uint16()&unix.IFF_UP != 0 {
					return nil
				}
			}
			return errNone
		}, want: []error{errNone}},
		{name: "resolve a name", try: func() error { _, err := net.LookupHost("example.com"); return err }, want: []error{errLookup}},
		{name: "a host's abstract socket", try: dial("unix", os.Getenv("PROBE_ABSTRACT")), want: []error{unix.ECONNREFUSED}, control: true},
		{name: "a host's loopback port", try: dial("tcp", os.Getenv("PROBE_PORT")), want: []error{unix.ECONNREFUSED}, control: true},
		{name: "add an address", try: addAddress, want: perm()},
		{name: "see a marked process of another", try: seeMarked, want: []error{errNone}, control: true},
		{name: "see shared memory of another", try: func() error { _, err := os.Stat("/dev/shm/sbench-marked"); return err }, want: []error{unix.ENOENT}},
		{name: "attach System V memory of another", try: func() error { _, err := unix.SysvShmGet(0x5bec, 0, 0); return err }, want: []error{unix.ENOENT}},
	}
}

// errLookup stands for every error of name resolution.
var errLookup = &net.DNSError{}

// addAddress asks netlink for 198.51.100.1 on lo, RTM_NEWADDR of rtnetlink(7).
func addAddress() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return errors.Join(errSetup, err)
	}
	request, err := unix.NewIfreq("lo:1")
	if err == nil {
		err = request.SetInet4Addr([]byte{198, 51, 100, 1})
	}
	if err != nil {
		return errors.Join(errSetup, err)
	}
	return unix.IoctlIfreq(fd, unix.SIOCSIFADDR, request)
}

const processMark = "sbench-marked-process"

func seeMarked() error {
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return errors.Join(errSetup, err)
	}
	for _, name := range found {
		if strings.HasPrefix(name, "/proc/"+strconv.Itoa(os.Getpid())+"/") {
			continue
		}
		line, err := os.ReadFile(name)
		if err == nil && bytes.Contains(line, []byte(processMark)) {
			return nil
		}
	}
	return errNone
}

func limitAttempts() []attempt {
	fill := func(name string) func() error {
		return func() error {
			f, err := os.Create(name)
			if err != nil {
				return errors.Join(errSetup, err)
			}
			block := make([]byte, 1<<20)
			for range 4096 {
				if _, err := f.Write(block); err != nil {
					return err
				}
			}
			return nil
		}
	}
	files := func(dir string) func() error {
		return func() error {
			for i := range 1 << 20 {
				if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o755); err != nil {
					return err
				}
			}
			return nil
		}
	}
	full := []error{unix.ENOSPC}
	return []attempt{
		{name: "fill /tmp", try: fill("/tmp/fill"), want: full},
		{name: "fill /dev/shm", try: fill("/dev/shm/fill"), want: full},
		{name: "fill /run", try: fill("/run/fill"), want: full},
		{name: "fill /dev", try: fill("/dev/fill"), want: full},
		{name: "fill /work", try: fill("/work/fill"), want: full},
		{name: "fill / when writable", try: fill("/fill"), want: append(full, errSetup)},
		{name: "inodes of /tmp", try: files("/tmp"), want: full},
		{name: "inodes of /work", try: files("/work"), want: full},
		{name: "open files", try: func() error {
			for range 1 << 20 {
				if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
					return err
				}
			}
			return nil
		}, want: []error{unix.EMFILE}},
	}
}

// refusedBy reports whether what an attempt printed is one of the errors that mean refusal.
func (a attempt) refusedBy(words string) bool {
	return slices.ContainsFunc(a.want, func(e error) bool {
		if e == error(errLookup) {
			return strings.Contains(words, "lookup ")
		}
		return strings.Contains(words, e.Error())
	})
}
