package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// clientKey is the context key of a request's *client.
type clientKey struct{}

// A client is a connection from the sandbox. If net/http answers an invalid request by itself, the
// client logs the request and sends a refusal instead of the answer.
type client struct {
	net.Conn
	tcp          *net.TCPConn // the same connection, for direct copying
	p            *Proxy
	redirectedTo *destination // of a redirected connection; otherwise nil
	early        []byte       // already read; Read returns it first

	handled  atomic.Bool // a handler has the request, or its refusal is logged
	unparsed atomic.Bool // something was read that is not yet a request
	late     atomic.Bool // the last read for a request took too long
	closing  sync.Once
	closed   chan struct{}
	forget   func() bool // keeps Proxy.Close from closing the connection
}

// newClient makes a client of a connection. Above the limit, it closes the connection and
// returns nil.
func (p *Proxy) newClient(conn net.Conn, kind Kind) *client {
	tcp := conn.(*net.TCPConn)
	if BoundBuffers(tcp) != nil {
		_ = conn.Close()
		return nil
	}
	p.counts.connections.Add(1)
	c := &client{Conn: conn, tcp: tcp, p: p, closed: make(chan struct{}), forget: context.AfterFunc(p.ctx, func() { _ = tcp.Close() })}
	if p.counts.open.Add(1) > int64(p.limits.Connections) {
		p.newAccess(kind).deny(reasonConnections, strconv.Itoa(p.limits.Connections)+" connections")
		_ = c.Close()
		return nil
	}
	return c
}

func (c *client) Read(b []byte) (int, error) {
	var n int
	var err error
	if len(c.early) > 0 {
		n = copy(b, c.early)
		c.early = c.early[n:]
	} else {
		n, err = c.tcp.Read(b)
	}
	if !c.handled.Load() {
		c.unparsed.CompareAndSwap(false, n > 0)
		c.late.Store(errors.Is(err, os.ErrDeadlineExceeded))
	}
	return n, err
}

// Write implements net.Conn. It fails if the client does not read in time.
func (c *client) Write(b []byte) (int, error) {
	if err := c.tcp.SetWriteDeadline(time.Now().Add(max(c.p.limits.Idle, 30*time.Second))); err != nil {
		return 0, err
	}
	if c.handled.Swap(true) {
		return c.tcp.Write(b)
	}
	// An answer that net/http writes by itself comes in one Write, and ends the connection.
	why := c.malformedReason()
	if bytes.HasPrefix(b, []byte("HTTP/1.1 431 ")) {
		why = reasonHeaderTooLarge
	}
	c.last(c.malformed(why).raw())
	return len(b), nil
}

// malformed logs an invalid request and returns the refusal.
func (c *client) malformed(why reason) decision {
	a := c.p.newAccess(KindMalformed)
	if c.redirectedTo != nil {
		a.entry.Host, a.entry.Port = c.redirectedTo.name, int(c.redirectedTo.port)
	}
	return a.deny(why, "")
}

// CloseWrite is used by net/http.
func (c *client) CloseWrite() error { return c.tcp.CloseWrite() }

func (c *client) Close() error {
	err := net.ErrClosed
	c.closing.Do(func() {
		c.forget()
		c.p.counts.open.Add(-1)
		err = c.tcp.Close()
		close(c.closed)
	})
	return err
}

// reject sends a last answer and closes.
func (c *client) reject(answer []byte) {
	c.last(answer)
	_ = c.Close()
}

// last sends a last answer and gives the client time to read it. Closing at once would reset the connection if
// the client still sends.
func (c *client) last(answer []byte) {
	_ = c.tcp.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.tcp.Write(answer); err == nil && c.tcp.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.tcp, 8<<20)
	}
}

// logUnfinished logs a connection that ended in the middle of a request's head.
func (c *client) logUnfinished() {
	if c.handled.Load() || !c.unparsed.Load() {
		return
	}
	c.malformed(c.malformedReason())
}

// malformedReason returns why the unparsed bytes are no request.
func (c *client) malformedReason() reason {
	if c.late.Load() {
		return reasonHeaderTimeout
	}
	return reasonMalformed
}
