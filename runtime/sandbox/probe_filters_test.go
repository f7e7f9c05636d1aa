package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filterAttempts give the kernel only one small program each, since thousands of them could
// harm the host that runs the tests.
func filterAttempts() []attempt {
	accept := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff_0000} // the whole packet; as a seccomp filter SECCOMP_RET_ALLOW
	program := &unix.SockFprog{Len: 1, Filter: &accept}
	attach := func(level, option uintptr) func() error {
		return func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			if err != nil {
				return errors.Join(errSetup, err)
			}
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
				return errors.Join(errSetup, err)
			}
			if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
				return errors.Join(errSetup, err)
			}
			return call(unix.SYS_SETSOCKOPT, uintptr(fd), level, option, uintptr(unsafe.Pointer(program)), unsafe.Sizeof(*program))
		}
	}
	option := func(level, option int) func() error {
		return func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			if err != nil {
				return errors.Join(errSetup, err)
			}
			return unix.SetsockoptInt(fd, level, option, 1)
		}
	}
	own := func(try func() error) func() error {
		return func() error {
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				return errors.Join(errSetup, err)
			}
			return try()
		}
	}
	const filter, strict = 2, 1 // SECCOMP_MODE_FILTER, SECCOMP_MODE_STRICT
	pointer := uintptr(unsafe.Pointer(program))
	return []attempt{
		{name: "socket filter", try: attach(unix.SOL_SOCKET, unix.SO_ATTACH_FILTER), want: perm(), control: true},
		{name: "socket filter with high bits", try: attach(1<<32|unix.SOL_SOCKET, 1<<33|unix.SO_ATTACH_FILTER), want: perm(), control: true},
		{name: "reuseport filter", try: attach(unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF), want: perm(), control: true},
		{name: "seccomp filter", try: own(func() error { return call(unix.SYS_SECCOMP, 1, 0, pointer) }), want: perm(), control: true},
		{name: "seccomp filter with a listener", try: own(func() error { return call(unix.SYS_SECCOMP, 1, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, pointer) }), want: perm(), control: true},
		{name: "seccomp filter by prctl", try: own(func() error { return call(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, filter, pointer) }), want: perm(), control: true},
		{name: "seccomp filter by prctl with high bits", try: own(func() error { return call(unix.SYS_PRCTL, 1<<32|unix.PR_SET_SECCOMP, filter, pointer) }), want: perm(), control: true},
		{name: "huge page", try: func() error {
			return call(unix.SYS_MMAP, 0, 2<<20, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB, ^uintptr(0), 0)
		}, want: []error{unix.ENOMEM}},
		{name: "file of huge pages", try: func() error {
			_, err := unix.MemfdCreate("huge", unix.MFD_HUGETLB)
			return err
		}, want: []error{unix.ENOMEM, unix.ENOSYS}},
		{name: "segment of huge pages", try: func() error { _, err := unix.SysvShmGet(7, 2<<20, 0o1000|0o4000|0o600); return err }, want: []error{unix.ENOMEM}},
		{name: "slots of asynchronous input and output", try: func() error {
			var context uint64
			return call(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&context)))
		}, want: []error{unix.ENOSYS}, control: true},
		{name: "more terminals than a sandbox may have", try: func() error {
			for range 300 {
				if _, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0); err != nil {
					return err
				}
			}
			return nil
		}, want: []error{unix.ENOSPC}, control: true},
		{name: "key of a TCP connection", try: func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				return errors.Join(errSetup, err)
			}
			// struct tcp_md5sig of linux/tcp.h: the address 10.0.0.0, and a key of 16 bytes.
			signature := make([]byte, 216)
			signature[0], signature[4], signature[130] = unix.AF_INET, 10, 16
			return call(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_MD5SIG, uintptr(unsafe.Pointer(&signature[0])), uintptr(len(signature)))
		}, want: perm(), control: true},
		{name: "time stamps, which change the kernel's code", try: option(unix.SOL_SOCKET, unix.SO_TIMESTAMP), want: perm(), control: true},
		{name: "UDP encapsulation, which does, too", try: option(unix.IPPROTO_UDP, 104), want: perm(), control: true},
		{name: "flow label of the host", try: func() error {
			fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
			if err != nil {
				return errors.Join(errSetup, err)
			}
			request := struct {
				to            [16]byte
				label         uint32
				action, share uint8
				flags         uint16
				rest          [8]byte
			}{to: [16]byte{15: 1}, action: 0, share: 1, flags: 1}
			return call(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_IPV6, 32, uintptr(unsafe.Pointer(&request)), unsafe.Sizeof(request))
		}, want: perm(), control: true},
	}
}

// tellingAttempts read what could reveal something about the host or other sandboxes.
func tellingAttempts() []attempt {
	var all []attempt
	for _, name := range []string{
		"/proc/locks", "/proc/diskstats", "/proc/partitions", "/proc/swaps", "/proc/zoneinfo", "/proc/buddyinfo", "/proc/softirqs",
		"/proc/vmallocinfo", "/proc/slabinfo", "/proc/pagetypeinfo", "/proc/config.gz", "/proc/interrupts", "/proc/cmdline",
		"/proc/modules", "/proc/kallsyms", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sys/kernel/random/boot_id",
		"/proc/sys/kernel/pty/nr", "/proc/sys/fs/file-nr", "/proc/sys/fs/inode-nr", "/proc/sys/fs/inode-state", "/proc/sys/fs/dentry-state",
		"/proc/sys/fs/aio-nr", "/proc/sys/fs/quota/lookups", "/proc/cgroups", "/proc/schedstat", "/proc/vmstat", "/proc/crypto", "/proc/iomem", "/proc/ioports",
		"/proc/devices", "/proc/misc", "/proc/mdstat", "/proc/mtrr", "/proc/bus/pci/devices", "/proc/irq/default_smp_affinity",
	} {
		all = append(all, attempt{name: "read " + name, try: func() error {
			text, err := os.ReadFile(name)
			if err != nil || len(text) == 0 {
				return errors.Join(errNone, err)
			}
			return nil
		}, want: []error{errNone}, control: name == "/proc/cmdline" || name == "/proc/kallsyms"})
	}
	return append(all,
		attempt{name: "names of the host in the mount table", try: func() error {
			text, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil {
				return errors.Join(errSetup, err)
			}
			for name := range strings.FieldsSeq(os.Getenv("PROBE_DIRECTORIES")) {
				for line := range strings.Lines(string(text)) {
					if strings.Contains(line, name) {
						fmt.Println(line)
						return nil
					}
				}
			}
			return errNone
		}, want: []error{errNone}},
		attempt{name: "names of the host in the standard streams", try: func() error {
			for fd := range 3 {
				name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
				if err != nil {
					return errors.Join(errSetup, err)
				}
				if name != "/null" && name != "/dev/null" && !strings.HasPrefix(name, "pipe:[") {
					fmt.Println(name)
					return nil
				}
			}
			return errNone
		}, want: []error{errNone}},
		attempt{name: "list /proc/fs", try: func() error {
			entries, err := os.ReadDir("/proc/fs")
			if err != nil || len(entries) == 0 {
				return errors.Join(errNone, err)
			}
			return nil
		}, want: []error{errNone}},
		attempt{name: "lock a file of another sandbox", try: lockShared("/etc/hosts"), want: []error{errNone}},
		attempt{name: "lock a program that another sandbox has, too", try: lockShared("/programs/probe"), want: []error{errNone}},
		attempt{name: "watch another sandbox execute a program", try: watchShared, want: []error{errNone}},
	)
}

// lockShared tries to lock a file that the neighbour has locked under the same name.
func lockShared(name string) func() error {
	return func() error {
		f, err := os.Open(name)
		if err != nil {
			return errors.Join(errSetup, err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return nil // the neighbour holds the lock, so that it is the same file
		}
		return errNone
	}
}

// watchShared waits for inotify events of what the neighbour does all the time.
func watchShared() error {
	fd, err := unix.InotifyInit1(0)
	if err == nil {
		_, err = unix.InotifyAddWatch(fd, "/programs/probe", unix.IN_OPEN|unix.IN_ACCESS|unix.IN_CLOSE)
	}
	if err != nil {
		return errors.Join(errSetup, err)
	}
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
	if err != nil {
		return errors.Join(errSetup, err)
	}
	if ready > 0 {
		return nil
	}
	return errNone
}
