package shim

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// stdio are the standard streams of a process; those that are nil are /dev/null. They are
// the caller's pipes themselves: nothing is copied.
type stdio struct{ in, out, err *os.File }

// PipeName returns the name by which the server opens an end of a pipe that this process has: its
// path in /proc/PID/fd, and what must be there, because a descriptor that this process closes can
// become another file's.
func PipeName(f *os.File) (string, error) {
	conn, err := f.SyscallConn() // not Fd, which would make it blocking
	if err != nil {
		return "", err
	}
	name := ""
	var st unix.Stat_t
	controlErr := conn.Control(func(fd uintptr) {
		name, err = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), unix.Fstat(int(fd), &st)
	})
	return fmt.Sprintf("%s pipe:[%d]", name, st.Ino), errors.Join(err, controlErr)
}

// openPipe opens the end of a pipe that [PipeName] has named. It does not wait.
func openPipe(name string, mode int) (*os.File, error) {
	path, want, _ := strings.Cut(name, " ")
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
	f := os.NewFile(uintptr(fd), name)
	if is, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil || is != want {
		return nil, errors.Join(fmt.Errorf("standard stream %s: is %q", name, is), err, f.Close())
	}
	return f, nil
}

// openStdio opens a caller's pipes. With an owner other than 0, they become this user's, who may
// then open them anew as /dev/stdout.
func openStdio(in, out, err string, owner uint32) (s stdio, _ error) {
	for _, f := range []struct {
		file **os.File
		name string
		mode int
	}{{&s.in, in, os.O_RDONLY}, {&s.out, out, os.O_WRONLY}, {&s.err, err, os.O_WRONLY}} {
		if f.name == "" {
			continue
		}
		file, err := openPipe(f.name, f.mode)
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
