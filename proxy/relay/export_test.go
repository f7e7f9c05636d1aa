package relay

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay/request"
	"github.com/securebench/sbench/proxy/relay/stream"
)

// The functions below let fuzzers and benchmarks run parts of the relay without a
// connection.

// Inspect checks the body of a POST to path for the model "m".
func Inspect(p Provider, path string, body []byte) (out []byte, found request.Checked, err error) {
	for _, r := range routes(p, "m") {
		if r.path == path && r.body != nil {
			found, err = r.body.Check(body, request.Options{Model: "m", InPath: r.model != "", Stream: r.stream})
			return found.Body, found, err
		}
	}
	panic("no such path")
}

// Meter counts an answer that comes in the given pieces.
func Meter(path string, p Provider, streamed bool, pieces ...[]byte) (u proxy.Usage, whole bool, cause Cause) {
	for _, r := range routes(p, "m") {
		if r.path == path {
			m := newMeter(r.dialect, streamed, nil)
			for _, piece := range pieces {
				m.write(piece)
			}
			u = m.close(bounds{input: 400, output: 1000}, false)
			return u, m.whole, m.cause
		}
	}
	panic("no such path")
}

// Events returns the data of the events of a stream that comes in pieces.
func Events(pieces ...[]byte) (all []string) {
	r := stream.Events{Event: func(data []byte) { all = append(all, string(data)) }}
	for _, p := range pieces {
		r.Add(p)
	}
	r.Close()
	return all
}

// Scrub writes pieces through a scrubber of the key.
func Scrub(key string, out io.Writer, pieces ...[]byte) error {
	return filter(stream.NewScrubber(stream.NewSecret(key, 8), out), pieces)
}

// Hide writes pieces through a hider.
func Hide(out io.Writer, pieces ...[]byte) error {
	return filter(stream.NewHider(stream.NewScrubber(stream.NewSecret("", 8), out)), pieces)
}

func filter(s sink, pieces [][]byte) error {
	for _, p := range pieces {
		if _, err := s.Write(p); err != nil {
			return err
		}
	}
	return s.Flush()
}

// Held returns how many bytes a scrubber of the key delays at most while text comes byte by byte, and at its end.
func Held(key, text string) (most, last int) {
	var out bytes.Buffer
	s := stream.NewScrubber(stream.NewSecret(key, 8), &out)
	for i := range len(text) {
		_, _ = s.Write([]byte{text[i]}) // a bytes.Buffer does not fail
		last = i + 1 - out.Len()
		most = max(most, last)
	}
	return most, last
}

// Begin is begin.
func (p *Pace) Begin(ctx context.Context) bool { return p.begin(ctx) }

// End is end.
func (p *Pace) End(status int, hold time.Duration) { p.end(status, hold) }
