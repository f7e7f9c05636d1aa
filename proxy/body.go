package proxy

import (
	"io"
	"net/http"
	"strconv"
	"strings"
)

// upBody counts the bytes of a request body that are sent. If the body is chunked, the
// transport sends each Read as one chunk.
type upBody struct {
	io.ReadCloser
	x       *exchange
	chunked bool
}

func (b *upBody) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	x := b.x
	if n == 0 {
		return 0, err
	}
	x.touch()
	x.mu.Lock()
	x.body += int64(n)
	over := x.body > x.p.limits.BodyBytes
	x.mu.Unlock()
	if over {
		x.stop(ReasonBody)
		return 0, errCut
	}
	sent := int64(n)
	if b.chunked {
		sent += int64(len(strconv.FormatInt(sent, 16)) + len("\r\n\r\n"))
	}
	if !x.take(&x.up, x.p.up, x.p.limits.TunnelUp, sent, ReasonUp) {
		return 0, errCut
	}
	return n, err
}

// downBody counts the bytes of an answer body.
type downBody struct {
	io.ReadCloser
	x *exchange
}

func (b *downBody) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	if n > 0 {
		b.x.touch()
		if !b.x.take(&b.x.down, b.x.p.down, b.x.p.limits.TunnelDown, int64(n), ReasonDown) {
			return 0, errCut
		}
	}
	if err != nil && err != io.EOF {
		b.x.broken.Store(true)
	}
	return n, err
}

// cleanHeader removes the hop-by-hop fields (RFC 9110, 7.6.1).
func cleanHeader(h http.Header) {
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Proxy-Authentication-Info",
		"Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
	} {
		h.Del(name)
	}
}

// requestHead returns the bytes on the wire of a request's head and of a chunked body's last
// chunk.
func requestHead(r *http.Request) int64 {
	n := int64(len(r.Method)+len(r.URL.RequestURI())+len(r.Host)) + headBytes(r.Header)
	n += int64(len("  HTTP/1.1\r\nHost: \r\nConnection: close\r\n\r\n"))
	if r.ContentLength < 0 { // otherwise Content-Length is in r.Header
		n += int64(len("Transfer-Encoding: chunked\r\n") + len("0\r\n\r\n"))
	}
	return n
}

func headBytes(h http.Header) int64 {
	n := 0
	for name, values := range h {
		for _, value := range values {
			n += len(name) + len(value) + 4
		}
	}
	return int64(n)
}
