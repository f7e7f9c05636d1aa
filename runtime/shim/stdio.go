package shim

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// stdio are the standard streams of a process; those that are nil are /dev/null. They are
// the caller's FIFOs themselves: nothing is copied.
type stdio struct{ in, out, err *os.File }

// openStdio opens the FIFOs of a caller that opens the other ends. With an owner other than
// 0, they become this user's, who may then open them anew as /dev/stdout.
func openStdio(ctx context.Context, in, out, err string, owner uint32) (s stdio, _ error) {
	for _, f := range []struct {
		file **os.File
		path string
		mode int
	}{{&s.in, in, os.O_RDONLY}, {&s.out, out, os.O_WRONLY}, {&s.err, err, os.O_WRONLY}} {
		if f.path == "" {
			continue
		}
		file, err := openFIFO(ctx, f.path, f.mode)
		if err == nil && owner != 0 {
			err = file.Chown(int(owner), int(owner))
		}
		*f.file = file
		if err != nil {
			s.close()
			return stdio{}, err
		}
	}
	return s, nil
}

func (s stdio) close() {
	for _, f := range []*os.File{s.in, s.out, s.err} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// openFIFO waits until the other end is opened or ctx is done.
func openFIFO(ctx context.Context, path string, mode int) (*os.File, error) {
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		return nil, fmt.Errorf("standard stream %s: no FIFO", path)
	}
	// An end that is open for both directions never waits, and ends the wait of the other, which
	// may not have begun yet.
	returned := make(chan struct{})
	defer close(returned)
	stop := context.AfterFunc(ctx, func() {
		if fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			<-returned
			_ = unix.Close(fd)
		}
	})
	var fd int
	var err error
	for {
		// os.OpenFile would make the stream non-blocking, for the sandbox as well.
		if fd, err = unix.Open(path, mode|unix.O_CLOEXEC, 0); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	if !stop() {
		return nil, errors.Join(fmt.Errorf("standard stream %s: nobody opened the other end: %w", path, context.Cause(ctx)), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), path), nil
}
