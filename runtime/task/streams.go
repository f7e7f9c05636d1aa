package task

import (
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
)

// drainTimeout bounds the wait for the rest of the output. keptTimeout bounds it if processes are kept, since a
// kept process may hold the pipe open.
const (
	drainTimeout = 10 * time.Second
	keptTimeout  = 500 * time.Millisecond
)

// Streams are the standard input, output and error of a process. Those that are nil lead nowhere,
// as /dev/null does.
type Streams struct {
	In       io.Reader
	Out, Err *runtime.Capture

	pipes *pipes // to the process, once there is one
}

// NewStreams returns the streams of a process.
func NewStreams(p runtime.Process) *Streams {
	return &Streams{In: p.Stdin, Out: runtime.NewCapture(p.OutputBytes, p.Stdout), Err: runtime.NewCapture(p.OutputBytes, p.Stderr)}
}

// Drain waits until all output has been read, which may be after the exit, but not for ever: an agent can leave
// the pipe open in a message queued in a UNIX socket that no process can reach. The kernel looks for such
// sockets when a socket is closed (net/unix/garbage.c). With kept, suspended processes hold the pipe: what they
// write later is read, so that they can go on, and not passed on.
func (s *Streams) Drain(kept bool) {
	within := drainTimeout
	if kept {
		within = keptTimeout
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.pipes.copies.Wait()
	}()
	for begun := time.Now(); time.Since(begun) < within; {
		select {
		case <-done:
			return
		case <-time.After(50 * time.Millisecond):
			collectSockets()
		}
	}
	if kept {
		s.Out.Detach()
		s.Err.Detach()
		return
	}
	s.pipes.close() // what has been read so far has to do
}

// collectSockets makes the kernel look for sockets that only refer to each other.
func collectSockets() {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return // out of descriptors; Drain tries again
	}
	_, _ = unix.Close(pair[0]), unix.Close(pair[1])
}
