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
