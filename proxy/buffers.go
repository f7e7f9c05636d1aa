package proxy

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sizes of the kernel's buffers for a connection that this process holds for a sandbox, in bytes. The kernel
// allows itself twice as much (socket(7)), and charges it to no sandbox. Without a size, it would let the buffers
// of each connection grow to several MiB. A larger buffer for what hosts send makes distant hosts faster:
// what one round trip can bring is in it.
const (
	smallBuffer = 64 << 10
	hostReceive = 208 << 10 // the usual net.core.rmem_max
	// ClientBytes and HostBytes are the most memory that the kernel uses for a connection from a sandbox and to a host.
	ClientBytes = 2 * 2 * smallBuffer
	HostBytes   = 2 * (smallBuffer + hostReceive)
	// A tunnel has both, and what the kernel moves between them.
	connectionBytes = ClientBytes + HostBytes + 2*hostReceive
)

// SandboxBytes returns the most memory that a proxy with these limits and the kernel hold for one sandbox.
func (l EgressLimits) SandboxBytes() int64 {
	return int64(l.withDefaults(DefaultLimits()).Connections) * connectionBytes
}

// boundBuffers sets the sizes of a socket's buffers.
func boundBuffers(c syscall.RawConn, receive int) error {
	var err error
	controlErr := c.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receive); err == nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, smallBuffer)
		}
	})
	if controlErr != nil {
		return controlErr
	}
	return os.NewSyscallError("setsockopt", err)
}

// BoundHost sets the sizes of the kernel's buffers for a connection to a host. It is a net.Dialer's Control.
func BoundHost(_, _ string, c syscall.RawConn) error { return boundBuffers(c, hostReceive) }

// BoundClient sets the sizes of the kernel's buffers for a connection from a sandbox.
func BoundClient(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return boundBuffers(raw, smallBuffer)
}
