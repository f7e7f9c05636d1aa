package shim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/thread"
)

// stdio are the standard streams of a process; those that are nil are the host's /dev/null. They
// are the caller's files themselves: nothing is copied, except from a sealed standard output.
type stdio struct{ in, out, err *os.File }

// StreamName returns the name by which the server opens a file of this process, such as an end of
// a pipe, as a standard stream: its path in /proc/PID/fd, and what must be there, because a
// descriptor that this process closes can become another file's.
func StreamName(f *os.File) (name string, err error) {
	err = proc.WithDescriptor(f, func(fd int) error {
		path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
		is, err := os.Readlink(path)
		name = path + " " + is
		return err
	})
	return name, err
}

// openStream opens a file that [StreamName] has named. Another file in its place is not opened,
// which could have an effect.
func openStream(name string, mode int) (*os.File, error) {
	path, want, _ := strings.Cut(name, " ")
	found, err := open(path, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }()
	self := fmt.Sprintf("/proc/self/fd/%d", found.Fd())
	if is, err := os.Readlink(self); err != nil || is != want {
		return nil, errors.Join(fmt.Errorf("standard stream %s: is %q", name, is), err)
	}
	return open(self, mode)
}

// open does what os.OpenFile does, but leaves a pipe blocking, since the sandbox shares the mode.
func open(path string, mode int) (*os.File, error) {
	for {
		fd, err := unix.Open(path, mode|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case err != unix.EINTR:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// openStdio opens a caller's files. With an owner other than 0, pipes become this user's, who may
// then open them anew as /dev/stdout.
func (t *task) openStdio(p *process) (s stdio, _ error) {
	for _, f := range []struct {
		file **os.File
		name string
		mode int
	}{{&s.in, p.stdin, os.O_RDONLY}, {&s.out, p.stdout, os.O_WRONLY}, {&s.err, p.stderr, os.O_WRONLY}} {
		if f.name == "" {
			continue
		}
		file, err := openStream(f.name, f.mode)
		switch {
		case err != nil:
		case f.file == &s.out && t.outputNetwork != "":
			file, err = seal(file, t.outputNetwork)
		case t.owner != 0 && strings.Contains(f.name, " pipe:"):
			err = file.Chown(int(t.owner), int(t.owner))
		}
		*f.file = file
		if err != nil {
			s.close()
			return stdio{}, err
		}
	}
	return s, nil
}

// seal returns a socket from which everything is copied to a pipe, which seal closes in the end. A process can open
// another process's pipe anew in /proc, but not its socket (ENXIO). The socket shows the interfaces of its network
// namespace (netdevice(7)), and is therefore in the sandbox's, whose path is network.
func seal(pipe *os.File, network string) (*os.File, error) {
	var ends [2]int
	err := thread.Run(func() error {
		namespace, err := open(network, unix.O_RDONLY)
		if err != nil {
			return err
		}
		defer func() { _ = namespace.Close() }()
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter %s: %w", network, err)
		}
		ends, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, pipe.Close())
	}
	ours := os.NewFile(uintptr(ends[0]), "standard output")
	go func() { // until all processes with the other end have ended, or sbench has closed the pipe
		_, _ = io.Copy(pipe, ours)
		_, _ = pipe.Close(), ours.Close()
	}()
	return os.NewFile(uintptr(ends[1]), "standard output"), nil
}

func (s stdio) close() {
	for _, f := range []*os.File{s.in, s.out, s.err} {
		if f != nil {
			_ = f.Close()
		}
	}
}
