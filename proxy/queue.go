package proxy

import (
	"context"
	"net"
)

// A Queue is a listener for connections from elsewhere. It ends with the context of [NewQueue]. Close
// does not end it.
type Queue struct {
	conns chan net.Conn
	ctx   context.Context
}

// NewQueue returns a queue that ends with ctx.
func NewQueue(ctx context.Context) *Queue { return &Queue{make(chan net.Conn), ctx} }

// Put waits until Accept returns c. It closes c if the queue ends first.
func (q *Queue) Put(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.ctx.Done():
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (q *Queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It does nothing.
func (q *Queue) Close() error { return nil }

// Addr implements net.Listener. The address is empty.
func (q *Queue) Addr() net.Addr { return &net.TCPAddr{} }
