package containerd_test

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filterAttempts give the kernel one small program each: what thousands of them do to a
// host must not be tried on one that is needed.
func filterAttempts() []attempt {
	accept := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff_0000} // all of a packet; SECCOMP_RET_ALLOW
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
		{name: "socket program", try: attach(unix.SOL_SOCKET, unix.SO_ATTACH_BPF), want: perm()},
		{name: "reuseport program", try: attach(unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF), want: perm()},
		{name: "seccomp filter", try: own(func() error { return call(unix.SYS_SECCOMP, 1, 0, pointer) }), want: perm(), control: true},
		{name: "seccomp filter with a listener", try: own(func() error { return call(unix.SYS_SECCOMP, 1, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, pointer) }), want: perm(), control: true},
		{name: "seccomp filter by prctl", try: own(func() error { return call(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, filter, pointer) }), want: perm(), control: true},
		{name: "seccomp filter by prctl with high bits", try: own(func() error { return call(unix.SYS_PRCTL, 1<<32|unix.PR_SET_SECCOMP, filter, pointer) }), want: perm(), control: true},
		{name: "strict seccomp", try: func() error { return call(unix.SYS_SECCOMP, strict-1, 0, 0) }, want: perm()},
	}
}
