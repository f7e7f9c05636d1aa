package proxy

import (
	"io"
	"net/http"
)

// handleConnect decides on a CONNECT. It hijacks the connection in any case.
func (f *forwarder) handleConnect(w http.ResponseWriter, r *http.Request, c *client) {
	a := f.newAccess(KindConnect)
	allowed := a.decideConnect(r).Allowed
	_, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // impossible: only HTTP/1 is served
	}
	defer func() { _ = c.Close() }() // net/http no longer does, not even after a panic

	early := make([]byte, rw.Reader.Buffered()) // what net/http read beyond the request
	_, _ = io.ReadFull(rw.Reader, early)
	c.early = append(early, c.early...)
	if allowed {
		a.connect(c)
		return
	}
	a.end(0, 0)
	c.reject(a.last.raw())
}

// decideConnect decides on the request target as sent, and ignores the Host header. A CONNECT with a
// body is malformed.
func (a *access) decideConnect(r *http.Request) decision {
	host := r.URL.Hostname()
	_, bad := normalise(host)
	switch {
	case bad == reasonIPLiteral:
	case r.RequestURI != r.URL.Host || r.URL.User != nil:
		return a.refuse(reasonAuthority, "")
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return a.refuse(reasonMalformed, "")
	}
	return a.decide(request{Kind: KindConnect, Host: host, Port: r.URL.Port()})
}

// connect connects to the host, and lets only TLS for this host through.
func (a *access) connect(c *client) {
	up := a.dial()
	if up == nil {
		c.reject(a.last.raw())
		return
	}
	defer func() { _ = up.Close() }()
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		a.end(0, 0)
		return
	}
	first, why := c.readHello(a.last.Host)
	if why.Word != "" {
		a.refuseHello(c, first, why)
		return
	}
	a.tunnel(c, up, first)
}

// refuseHello ends a tunnel before any byte has left.
func (a *access) refuseHello(c *client, first []byte, why reason) {
	switch {
	case a.p.ctx.Err() != nil:
		a.cut(reasonShutdown)
	case len(first) > 0 || why == reasonHelloTimeout:
		a.refuse(why, "")
	} // otherwise the client closed the connection without sending anything
	a.end(0, 0)
	if len(first) > 0 && first[0] == recordHandshake {
		// A fatal access_denied (RFC 8446, 6.2), which clients report.
		c.reject([]byte{recordAlert, 3, 3, 0, 2, 2, 49})
		return
	}
	c.reject(nil)
}
