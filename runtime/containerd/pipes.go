package containerd

import (
	"errors"
	"io"
	"os"
	"sync"

	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/securebench/sbench/runtime/shim"
)

// pipes are the standard streams of a process that sbench's own shim starts. Unlike FIFOs, they
// have no name that the process could read in /proc/self/fd, and lie in no file system of the
// host's that it could measure or flush through them (fstatfs(2), syncfs(2)). [cio.IO] says what
// the methods do; Close need not wait.
type pipes struct {
	config cio.Config
	ours   []*os.File // the ends that sbench reads or writes
	theirs []*os.File // the others, until the shim has opened them
	copies sync.WaitGroup
}

// newPipes makes the pipes of those streams that are wanted, and starts to copy. The others are
// null, which it closes, even if it fails; if null is nil, they are the host's /dev/null.
func newPipes(std *streams, null *os.File) (*pipes, error) {
	p := &pipes{}
	var errs []error
	if null != nil {
		name, err := shim.StreamName(null)
		p.config.Stdin, p.config.Stdout, p.config.Stderr = name, name, name
		p.theirs, errs = append(p.theirs, null), append(errs, err)
	}
	open := func(input bool, name *string) (ours *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		ours, theirs := r, w
		if input {
			ours, theirs = w, r
		}
		p.ours, p.theirs = append(p.ours, ours), append(p.theirs, theirs)
		*name, err = shim.StreamName(theirs)
		errs = append(errs, err)
		return ours
	}
	var in, out, outErr *os.File
	if std.in != nil {
		in = open(true, &p.config.Stdin)
	}
	if std.out != nil {
		out, outErr = open(false, &p.config.Stdout), open(false, &p.config.Stderr)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if in != nil {
		go func() { // not waited for: the source may never end
			_, _ = io.Copy(in, std.in) // fails when the process does not read on
			_ = in.Close()
		}()
	}
	if out != nil {
		p.copies.Go(func() { _, _ = io.Copy(std.out, out) }) // fails when canceled
		p.copies.Go(func() { _, _ = io.Copy(std.err, outErr) })
	}
	return p, nil
}

// opened closes the process's ends, which the shim has opened or will not open any more.
func (p *pipes) opened() {
	for _, f := range p.theirs {
		_ = f.Close()
	}
}

func (p *pipes) Config() cio.Config { return p.config }

func (p *pipes) Cancel() {
	for _, f := range p.ours {
		_ = f.Close()
	}
}

func (p *pipes) Wait() { p.copies.Wait() }

func (p *pipes) Close() error {
	p.opened()
	p.Cancel()
	return nil
}
