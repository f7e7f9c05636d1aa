// Package thread runs functions on operating system threads of their own. Such a function
// can change what the kernel keeps per thread but Go expects to be the same in the whole
// process: namespaces, working directory and credentials.
package thread

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run calls f on a thread that ends with f, which may therefore change the thread in any
// way, and returns f's error. It is never the first thread of the process: that thread cannot end,
// and /proc/self and other processes take its properties for the properties of the whole process.
// f must not start goroutines that depend on the thread.
func Run(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // if f runs here, never unlocked: the thread then ends with the goroutine
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return
		}
		inner := make(chan error, 1)
		go func() { // the outer goroutine occupies the first thread, so this is another one
			runtime.LockOSThread()
			inner <- f()
		}()
		done <- <-inner
		runtime.UnlockOSThread()
	}()
	return <-done
}

// Become makes id the effective user and group of only this thread, also for access to files, and keeps its
// capabilities. It uses raw system calls, since the functions of package syscall change all threads.
func Become(id uint32) error {
	const same = ^uintptr(0)
	for _, number := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
		if _, _, errno := unix.RawSyscall(number, same, uintptr(id), same); errno != 0 {
			return fmt.Errorf("become id %d: %w", id, errno)
		}
	}
	return raiseCapabilities()
}

// raiseCapabilities makes all permitted capabilities of this thread effective again, after a
// change of its user id from 0 has cleared some or all of them (capabilities(7), "Effect of
// user ID changes on capabilities").
func raiseCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for i := range data {
		data[i].Effective = data[i].Permitted
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("raise capabilities: %w", err)
	}
	return nil
}
