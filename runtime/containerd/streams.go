package containerd

import (
	"context"
	"io"
	"sync"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
)

// streams are a process's three, bounded and drained.
type streams struct {
	in       io.Reader
	out, err *runtime.Capture
	eof      chan struct{} // closed when in has been read to its end
	ended    chan struct{} // closed when nobody reads from in any more
}

func newStreams(p runtime.Process) *streams {
	s := &streams{out: runtime.NewCapture(p.OutputBytes, p.Stdout), err: runtime.NewCapture(p.OutputBytes, p.Stderr), ended: make(chan struct{})}
	if p.Stdin != nil {
		s.eof = make(chan struct{})
		s.in = &eofReader{r: p.Stdin, eof: s.eof}
	}
	return s
}

func (s *streams) creator(dir string) cio.Creator {
	return cio.NewCreator(cio.WithStreams(s.in, s.out, s.err), cio.WithFIFODir(dir))
}

// drain waits until all output has been read: it is not complete at the exit.
// Every process of the sandbox is dead, so what still holds a pipe open is the
// pipe itself, in flight over a socket that nobody can reach any more: an agent
// can arrange that, and it must not make an error of its attempt. The kernel
// finds such sockets when a socket is closed (unix(7), garbage collection).
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
	pipes.Cancel() // what came so far is what there is
}

// collectSockets makes the kernel look for sockets that only refer to each
// other.
func collectSockets() {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return // out of descriptors: the next round, or the end of the wait
	}
	_, _ = unix.Close(pair[0]), unix.Close(pair[1])
}

// eofReader tells once when its source is at its end.
type eofReader struct {
	r    io.Reader
	eof  chan struct{}
	once sync.Once
}

func (e *eofReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err != nil {
		e.once.Do(func() { close(e.eof) })
	}
	return n, err
}

// closeInput passes the end of the input on: the shim holds its side open
// until it is told.
func (b *Box) closeInput(s *streams, p client.Process) {
	if s.eof == nil {
		return
	}
	go func() {
		select {
		case <-s.eof:
		case <-s.ended:
			return
		}
		ctx, cancel := b.run.c.cleanup(context.Background())
		defer cancel()
		_ = p.CloseIO(ctx, client.WithStdinCloser) // the process may be gone
	}()
}
