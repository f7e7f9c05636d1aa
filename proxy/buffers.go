package proxy

import (
	"cmp"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// socketBuffer is the size in bytes of each of the two kernel buffers of a socket that this process holds for a
	// sandbox. The kernel takes twice as much, charges it to no sandbox, and would let a buffer without a size grow to
	// several MiB (socket(7)).
	socketBuffer = 208 << 10 // the usual net.core.rmem_max and wmem_max
	// SocketBytes is the most memory that the kernel uses for a socket.
	SocketBytes = 2 * 2 * socketBuffer
	// A connection has a socket on each side, and in each direction a buffer and what the kernel moves.
	connectionBytes = 2*SocketBytes + 2*socketBuffer + 2*copyBytes
)

// HeadCost is how much memory net/http and a copy take for each byte of a head that has many short fields.
const HeadCost = 32

// SandboxBytes returns the most memory that a proxy with these limits and the kernel hold for one
// sandbox. Of the zero EgressLimits, it is the memory of [DefaultLimits].
func (l EgressLimits) SandboxBytes() int64 {
	l = cmp.Or(l, DefaultLimits())
	return int64(l.Connections) * (connectionBytes + HeadCost*int64(l.HeaderBytes))
}

// setBuffers sets the sizes of a socket's buffers.
func setBuffers(c syscall.RawConn) error {
	var err error
	controlErr := c.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, socketBuffer); err == nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer)
		}
	})
	if controlErr != nil {
		return controlErr
	}
	return os.NewSyscallError("setsockopt", err)
}

// BoundHostBuffers sets the sizes of the kernel's buffers for a connection to a host. It is a net.Dialer's Control.
func BoundHostBuffers(_, _ string, c syscall.RawConn) error { return setBuffers(c) }

// SandboxListener returns a listener of connections from a sandbox. It calls [BoundBuffers] for l. Its Accept fails
// only once l is closed, and waits while the kernel has no descriptor or no memory for a connection.
func SandboxListener(l net.Listener) (net.Listener, error) {
	return patientListener{l}, BoundBuffers(l)
}

type patientListener struct{ net.Listener }

// Accept implements net.Listener.
func (l patientListener) Accept() (conn net.Conn, err error) {
	err = patiently(func() error {
		conn, err = l.Listener.Accept()
		return err
	})
	return conn, err
}

// patiently calls f again until it succeeds, or fails with net.ErrClosed.
func patiently(f func() error) error {
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second/10) {
		if err := f(); err == nil || errors.Is(err, net.ErrClosed) {
			return err
		}
		time.Sleep(wait)
	}
}

// BoundBuffers sets the sizes of the kernel's buffers for a connection from a sandbox, or for all that a listener
// accepts from then on. It does nothing for what is no socket, such as [OneConn].
func BoundBuffers(of any) error {
	socket, ok := of.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	return setBuffers(raw)
}
