package containerd

import (
	"io"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
)

// streams are the standard input, output and error of a process; those that are nil are
// /dev/null.
type streams struct {
	in       io.Reader
	out, err *runtime.Capture
	ended    chan struct{} // closed when nobody reads from in any more
}

func newStreams(p runtime.Process) *streams {
	return &streams{in: p.Stdin, out: runtime.NewCapture(p.OutputBytes, p.Stdout), err: runtime.NewCapture(p.OutputBytes, p.Stderr), ended: make(chan struct{})}
}

// drain waits until all output has been read, which may be after the exit. Every process of
// the sandbox is dead by then, so a pipe that is still open can only be in a message queued
// in a UNIX socket that no process can reach. An agent can arrange that, and must not make
// its attempt an error that way. The kernel looks for such sockets when a socket is closed
// (net/unix/garbage.c).
func (s *streams) drain(pipes cio.IO) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pipes.Wait()
	}()
	for begun := time.Now(); time.Since(begun) < drainTimeout; {
		select {
		case <-done:
			return
		case <-time.After(50 * time.Millisecond):
			collectSockets()
		}
	}
	pipes.Cancel() // what has been read so far has to do
}

// collectSockets makes the kernel look for sockets that only refer to each other.
func collectSockets() {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return // out of descriptors; drain tries again
	}
	_, _ = unix.Close(pair[0]), unix.Close(pair[1])
}
