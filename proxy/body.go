package proxy

import (
	"io"
	"net/http"
	"strings"
)

// upBody limits the size of a request's body.
type upBody struct {
	io.ReadCloser
	x    *transfer
	read int64 // bytes
}

func (b *upBody) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	if n > 0 {
		b.x.touch()
	}
	if b.read += int64(n); b.read > b.x.p.limits.BodyBytes {
		b.x.stop(reasonBody)
		return 0, errCut
	}
	return n, err
}

// downBody is the body of an answer. It records whether the body is incomplete.
type downBody struct {
	io.ReadCloser
	x *transfer
}

func (b *downBody) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
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
