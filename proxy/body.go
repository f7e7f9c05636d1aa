package proxy

import (
	"io"
	"net/http"
	"strings"
)

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
