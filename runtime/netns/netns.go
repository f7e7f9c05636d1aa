// Package netns makes network namespaces that hold nothing but a loopback
// interface, and refers to them by file descriptor, so that there is nothing on
// any file system to leak.
package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Namespace is an empty network namespace. It lives until it is closed and
// the last process in it has ended.
type Namespace struct{ file *os.File }

// New makes a namespace with lo up. It needs CAP_SYS_ADMIN in the current user
// namespace.
func New() (*Namespace, error) {
	type result struct {
		file *os.File
		err  error
	}
	done := make(chan result, 1)
	onOtherThread(func() {
		file, err := enter()
		done <- result{file, err}
	})
	r := <-done
	if r.err != nil {
		return nil, fmt.Errorf("network namespace: %w", r.err)
	}
	return &Namespace{r.file}, nil
}

// onOtherThread runs f on a thread that ends with it and is not the first of
// the process: that one never ends, and its namespaces are what others, and
// /proc/self, see as the process's.
func onOtherThread(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked where f runs
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		done := make(chan struct{})
		go func() { // while the first thread is held here
			defer close(done)
			runtime.LockOSThread()
			f()
		}()
		<-done
		runtime.UnlockOSThread()
	}()
}

func enter() (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("unshare: %w", err)
	}
	file, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	if err != nil {
		return nil, err
	}
	if err := loopbackUp(); err != nil {
		return nil, fmt.Errorf("bring lo up: %w", errors.Join(err, file.Close()))
	}
	return file, nil
}

// loopbackUp sets IFF_UP on lo (netdevice(7)); a fresh namespace has it down.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var req struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(req.name[:], "lo")
	req.flags = unix.IFF_UP | unix.IFF_RUNNING
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return errno
	}
	return nil
}

// Path names the namespace for a process that shares this one's /proc. It is
// good while n is open and this process lives.
func (n *Namespace) Path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd())
}

// Close drops this process's hold on the namespace.
func (n *Namespace) Close() error { return n.file.Close() }
