package containerd

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/securebench/sbench/runtime"
)

// streams are a process's three, bounded and drained.
type streams struct {
	in       io.Reader
	out, err *runtime.Capture
	eof      chan struct{} // closed when in has been read to its end
}

func newStreams(p runtime.Process) *streams {
	s := &streams{out: runtime.NewCapture(p.OutputBytes, p.Stdout), err: runtime.NewCapture(p.OutputBytes, p.Stderr)}
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
func (s *streams) drain(pipes cio.IO) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pipes.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-time.After(drainTimeout):
		pipes.Cancel()
		return errors.New("output is still open after the last process ended")
	}
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
		<-s.eof
		ctx, cancel := b.run.c.cleanup(context.Background())
		defer cancel()
		_ = p.CloseIO(ctx, client.WithStdinCloser) // the process may be gone
	}()
}
