package task

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/shim"
)

// pipes are the standard streams of a process that sbench's own shim starts. Unlike FIFOs, they
// have no name that the process could read in /proc/self/fd, and lie in no file system of the
// host's that it could measure or flush through them (fstatfs(2), syncfs(2)).
type pipes struct {
	stdin, stdout, stderr string // the names of the process's ends, for the shim

	ours   []*os.File // the ends that sbench reads or writes
	theirs []*os.File // the process's ends, until the shim has opened them
	copies sync.WaitGroup
}

// newPipes makes the pipes of the streams that are wanted, and starts to copy. The other streams are
// null, which newPipes closes, even if it fails. If null is nil, they are the host's /dev/null.
func newPipes(std *Streams, null *os.File) (*pipes, error) {
	p := &pipes{}
	var errs []error
	if null != nil {
		name, err := shim.StreamName(null)
		p.stdin, p.stdout, p.stderr = name, name, name
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
	if std.In != nil {
		in = open(true, &p.stdin)
	}
	if std.Out != nil {
		out, outErr = open(false, &p.stdout), open(false, &p.stderr)
	}
	if err := errors.Join(errs...); err != nil {
		p.close()
		return nil, err
	}
	if in != nil {
		go func() { // not waited for: the source may never end
			_, _ = io.Copy(in, std.In) // fails when the process does not read on
			_ = in.Close()
		}()
	}
	if out != nil {
		p.copies.Go(func() { _, _ = io.Copy(std.Out, out) }) // fails when canceled
		p.copies.Go(func() { _, _ = io.Copy(std.Err, outErr) })
	}
	return p, nil
}

// opened closes the process's ends, which the shim has opened or will not open any more.
func (p *pipes) opened() {
	for _, f := range p.theirs {
		_ = f.Close()
	}
}

// close closes all ends, and so ends the copies.
func (p *pipes) close() {
	p.opened()
	for _, f := range p.ours {
		_ = f.Close()
	}
}

// openNull opens the sandbox's own /dev/null for the standard streams that lead nowhere: through the
// host's, a sandbox could lock, watch and change what all others use. The sandbox's /dev is found by
// the pid of its first process or, if that is 0, at the host path devices. The result is nil if no
// stream leads nowhere, and without a pid and devices: then the OCI runtime opens the sandbox's own.
func openNull(std *Streams, pid int, devices string) (*os.File, error) {
	var dev int
	var err error
	switch {
	case std.In != nil && std.Out != nil:
		return nil, nil
	case pid != 0:
		dev, err = unix.Open(fmt.Sprintf("/proc/%d/root/dev", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	case devices != "": // a mount without a place has no path of the host's
		dev, err = unix.OpenTree(unix.AT_FDCWD, devices, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox's /dev: %w", err)
	}
	defer func() { _ = unix.Close(dev) }()
	fd, err := unix.Openat2(dev, "null", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil, fmt.Errorf("sandbox's /dev/null: %w", err)
	}
	null := os.NewFile(uintptr(fd), "/dev/null")
	var st unix.Stat_t
	// The sandbox may have put anything in its place: a FIFO would be waited for.
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 3) {
		return nil, errors.Join(errors.New("sandbox's /dev/null is another file"), err, null.Close())
	}
	return null, nil
}
