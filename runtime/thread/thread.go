// Package thread runs functions on operating system threads of their own, for
// what the kernel keeps per thread and Go per process: namespaces, working
// directory, credentials.
package thread

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run calls f on a thread that ends with it, so that f may change the thread
// as it likes, and returns f's error. The thread is not the first of the
// process: that one never ends, and what it is, is what others, and /proc/self,
// take for the process. f must not start goroutines that rely on the thread.
func Run(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked where f runs
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return
		}
		inner := make(chan error, 1)
		go func() { // while the first thread is held here
			runtime.LockOSThread()
			inner <- f()
		}()
		done <- <-inner
		runtime.UnlockOSThread()
	}()
	return <-done
}

// RaiseCapabilities makes what is permitted effective again on this thread: a
// change of ids from 0 has dropped some or all of it (capabilities(7), "Effect of
// user ID changes").
func RaiseCapabilities() error {
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
