package containerd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
)

// streams are the standard input, output and error of a process; those that are nil are
// /dev/null, see [Sandbox.null].
type streams struct {
	in       io.Reader
	out, err *runtime.Capture
	ended    chan struct{} // closed when nobody reads from in any more
}

func newStreams(p runtime.Process) *streams {
	return &streams{in: p.Stdin, out: runtime.NewCapture(p.OutputBytes, p.Stdout), err: runtime.NewCapture(p.OutputBytes, p.Stderr), ended: make(chan struct{})}
}

// null opens the sandbox's own /dev/null, for those of a process's standard streams that lead
// nowhere. The host's would be a device file that the sandbox shares with the host and all others:
// it could lock and watch it, and set its times, and with the ids of the host even its mode. The
// result is nil if there are no such streams, and where the OCI runtime opens the sandbox's own by
// itself, or the sandbox has none of its own.
func (s *Sandbox) null(std *streams) (*os.File, error) {
	var dev int
	var err error
	switch pid := s.idlePid(); {
	case std.in != nil && std.out != nil:
		return nil, nil
	case pid != 0:
		dev, err = unix.Open(fmt.Sprintf("/proc/%d/root/dev", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	case s.ids.own != nil: // a mount without a place has no path of the host's
		dev, err = unix.OpenTree(unix.AT_FDCWD, s.root.Devices(), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
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
