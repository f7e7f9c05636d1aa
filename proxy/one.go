package proxy

import "net"

// one is a listener; see [One].
type one chan net.Conn

// One returns a listener that accepts c, and then ends. Close closes c unless it was accepted.
func One(c net.Conn) net.Listener {
	l := make(one, 1)
	l <- c
	close(l)
	return l
}

// Accept implements net.Listener.
func (l one) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l one) Close() error {
	if c, ok := <-l; ok {
		return c.Close()
	}
	return nil
}

// Addr implements net.Listener. The address is empty.
func (l one) Addr() net.Addr { return &net.TCPAddr{} }
