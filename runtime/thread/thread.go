// Package thread runs functions on operating system threads of their own, for
// what the kernel keeps per thread and Go per process: namespaces, working
// directory, credentials.
package thread

import (
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
