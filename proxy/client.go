package proxy

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// clientKey is for the *client of a request in its context.
type clientKey struct{}

// A client is a connection from the sandbox. It sees what net/http answers by
// itself, to what it does not take for a request, and answers that in our words.
type client struct {
	net.Conn
	tcp    *net.TCPConn // the same: copied from and to without detours
	p      *Proxy
	mapped *mapping // of a redirected connection
	early  []byte   // was read before, and comes first

	handled atomic.Bool  // a handler has the request
	heard   atomic.Int64 // bytes of what is no request yet
	head    []byte       // of those, the first, for [client.twoLengths]
	since   atomic.Int64 // when the current request could begin, in nanoseconds
	logged  atomic.Bool
	counted bool // Close waits for it
	closing sync.Once
}

// newClient takes a connection on, or closes it and returns nil.
func (p *Proxy) newClient(conn net.Conn, kind Kind) *client {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		_ = conn.Close()
		return nil
	}
	p.counts.connections.Add(1)
	c := &client{Conn: conn, tcp: tcp, p: p}
	c.since.Store(time.Now().UnixNano())
	if p.counts.open.Add(1) > int64(p.limits.Connections) {
		a := p.attempt(kind)
		a.refuse(ReasonConnections, strconv.Itoa(p.limits.Connections)+" connections")
		a.end(0, 0)
		_ = c.Close()
		return nil
	}
	if !p.track(c) {
		_ = c.Close()
		return nil
	}
	return c
}

// Read implements net.Conn.
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
		c.heard.Add(int64(n))
		c.head = append(c.head, b[:min(n, c.p.limits.HeaderBytes+8192-len(c.head))]...)
	}
	return n, err
}

// Write implements net.Conn. Somebody who does not read is cut.
func (c *client) Write(b []byte) (int, error) {
	if err := c.tcp.SetWriteDeadline(time.Now().Add(c.p.limits.writeTime())); err != nil {
		return 0, err
	}
	if c.handled.Load() {
		return c.tcp.Write(b)
	}
	// What net/http says by itself is a whole answer, and the last one.
	reason := c.complaint()
	if bytes.HasPrefix(b, []byte("HTTP/1.1 431 ")) {
		reason = ReasonHeaderTooLarge
	}
	if c.logged.Swap(true) {
		return len(b), nil
	}
	if _, err := c.tcp.Write(c.malformed(reason).raw()); err != nil {
		return 0, err
	}
	return len(b), nil
}

// twoLengths says whether a request has a length and chunks, which is a message
// with two meanings (RFC 9112, 6.3). net/http drops the length unsaid, so the head
// is looked at as it came. One that came with the request before it was not seen,
// and is taken for such a message if it has chunks.
func (c *client) twoLengths(r *http.Request) bool {
	if len(r.TransferEncoding) == 0 {
		return false
	}
	head := bytes.TrimLeft(c.head, "\r\n")
	begin := []byte(r.Method + " " + r.RequestURI)
	// net/http may have read one byte while the request before it was served.
	if !bytes.HasPrefix(head, begin) && !bytes.HasPrefix(head, begin[1:]) {
		return true
	}
	for line := range bytes.Lines(head) {
		name, _, _ := bytes.Cut(line, []byte{':'})
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			return false
		}
		if bytes.EqualFold(name, []byte("Content-Length")) {
			return true
		}
	}
	return true
}

// writeTime is how long a write may take.
func (l Limits) writeTime() time.Duration { return max(l.Idle, 30*time.Second) }

// malformed logs what was no request.
func (c *client) malformed(reason Reason) Decision {
	a := c.p.attempt(KindMalformed)
	if c.mapped != nil {
		a.entry.Host, a.entry.Port = c.mapped.name, int(c.mapped.port)
	}
	d := a.refuse(reason, "")
	a.end(0, 0)
	return d
}

// CloseWrite is used by net/http.
func (c *client) CloseWrite() error { return c.tcp.CloseWrite() }

// Close implements net.Conn.
func (c *client) Close() error {
	err := net.ErrClosed
	c.closing.Do(func() {
		c.p.untrack(c)
		c.p.counts.open.Add(-1)
		err = c.tcp.Close()
	})
	return err
}

// reject answers for the last time and closes, after the client had a chance to
// read it: closing while it still sends would reset the connection.
func (c *client) reject(answer []byte) {
	defer func() { _ = c.Close() }()
	_ = c.tcp.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.tcp.Write(answer); err != nil || c.tcp.CloseWrite() != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c.tcp, 64<<10)
}

// connState follows the server's connections.
func (p *Proxy) connState(conn net.Conn, state http.ConnState) {
	c := conn.(*client)
	switch state {
	case http.StateNew:
		c.counted = p.begin()
	case http.StateIdle: // between two requests
		c.handled.Store(false)
		c.heard.Store(0)
		c.head = nil
		c.since.Store(time.Now().UnixNano())
	case http.StateClosed:
		c.vanish()
		fallthrough
	case http.StateHijacked:
		if c.counted {
			p.work.Done()
		}
	}
}

// vanish logs what ended before it became a request.
func (c *client) vanish() {
	if c.handled.Load() || c.heard.Load() == 0 || c.logged.Load() {
		return
	}
	c.malformed(c.complaint())
}

// complaint is about what did not become a request.
func (c *client) complaint() Reason {
	if time.Since(time.Unix(0, c.since.Load())) >= c.p.limits.HeaderTime {
		return ReasonHeaderTimeout
	}
	return ReasonMalformed
}
