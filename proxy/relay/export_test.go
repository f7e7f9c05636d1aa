package relay

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay/request"
)

// The functions below let fuzzers and benchmarks run parts of the relay without a
// connection.

// IsKeyHeader is isKeyHeader.
func IsKeyHeader(name string) bool { return isKeyHeader(name) }

// Routes returns the routes of a provider for the model "m", as "METHOD path parameter...".
func Routes(p Provider) (all []string) {
	for _, r := range routes(p, "m") {
		all = append(all, strings.Join(append([]string{r.method, r.path}, r.query...), " "))
	}
	return all
}

// Inspect checks the body of a POST to path for the model "m".
func Inspect(p Provider, path string, body []byte) (out []byte, found request.Checked, err error) {
	for _, r := range routes(p, "m") {
		if r.path == path && r.body != nil {
			found, err = r.body.Check(body, request.Options{Model: "m", InPath: r.model != "", Stream: r.stream})
			return bytes.Join(found.Body, nil), found, err
		}
	}
	panic("no such path")
}

// Meter counts an answer that comes in the given pieces.
func Meter(path string, p Provider, stream bool, pieces ...[]byte) (u proxy.Usage, whole bool, cause Cause) {
	for _, r := range routes(p, "m") {
		if r.path == path {
			m := newMeter(r.dialect, stream, nil)
			for _, piece := range pieces {
				m.write(piece)
			}
			u = m.close(bounds{400, 1000}, false)
			return u, m.whole, m.cause
		}
	}
	panic("no such path")
}

// Events returns the data of the events of a stream that comes in pieces.
func Events(pieces ...[]byte) (all []string) {
	r := eventReader{event: func(data []byte) { all = append(all, string(data)) }}
	for _, p := range pieces {
		r.write(p)
	}
	r.close()
	return all
}

var secrets sync.Map // by key

// secretOf returns the secret of a key. Like a relay, it makes the secret only once.
func secretOf(key string) *secret {
	s, ok := secrets.Load(key)
	if !ok {
		s, _ = secrets.LoadOrStore(key, newSecret(NewKey(key), 8))
	}
	return s.(*secret)
}

// Scrub writes pieces through a scrubber of the key.
func Scrub(key string, out io.Writer, pieces ...[]byte) error {
	s := &scrubber{secret: secretOf(key), out: out}
	for _, p := range pieces {
		if _, err := s.Write(p); err != nil {
			return err
		}
	}
	return s.flush()
}

// Hide writes pieces through a hider.
func Hide(out io.Writer, pieces ...[]byte) error {
	h := hider{out: &scrubber{secret: newSecret(Key{}, 8), out: out}}
	for _, p := range pieces {
		if _, err := h.Write(p); err != nil {
			return err
		}
	}
	return h.flush()
}

// Pending returns how many bytes a scrubber delays after a piece.
func Pending(key string, piece []byte) int {
	s := &scrubber{secret: secretOf(key), out: io.Discard}
	_, _ = s.Write(piece)
	return len(s.pending)
}
