package proxy

import (
	"cmp"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// socketBuffer is the size of the kernel's buffers, one for sending and one for receiving, of a socket that this
	// process holds for a sandbox, in bytes. The kernel allows itself twice as much (socket(7)), and charges it to no
	// sandbox. Without a size, it would let the buffers of each connection grow to several MiB. A sender with a
	// smaller buffer is woken more often. What one round trip can bring from a distant host is in the buffer for receiving.
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

// BoundBuffers sets the sizes of the kernel's buffers for a connection from a sandbox, or for the connections that a listener
// accepts from then on. The handshake fixes a connection's window by the sizes of its listener. What is no socket,
// such as [OneConn] and a pipe within this process, has no buffers.
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
