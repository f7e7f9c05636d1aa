package providertest

import (
	"net"
	"sync"
	"syscall"
)

// Tired returns l, which has no memory for the first connection.
func Tired(l net.Listener) net.Listener { return &tired{Listener: l} }

type tired struct {
	net.Listener
	once sync.Once
}

// Accept implements net.Listener.
func (l *tired) Accept() (c net.Conn, err error) {
	l.once.Do(func() { err = syscall.ENOBUFS })
	if err != nil {
		return nil, err
	}
	return l.Listener.Accept()
}

// TiredPackets returns c, which has no memory for the first packet.
func TiredPackets(c net.PacketConn) net.PacketConn { return &tiredPackets{PacketConn: c} }

type tiredPackets struct {
	net.PacketConn
	once sync.Once
}

// ReadFrom implements net.PacketConn.
func (c *tiredPackets) ReadFrom(b []byte) (n int, from net.Addr, err error) {
	c.once.Do(func() { err = syscall.ENOMEM })
	if err != nil {
		return 0, nil, err
	}
	return c.PacketConn.ReadFrom(b)
}
