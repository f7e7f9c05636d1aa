package relay_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/securebench/sbench/proxy/relay"
)

// agentBody returns a request with the structure and, at 90 kB, the size of claude's.
func agentBody() []byte {
	var b bytes.Buffer
	b.WriteString(`{"model":"m","stream":true,"system":[{"type":"text","text":"` + strings.Repeat("You are an agent. ", 1200) + `"}],"tools":[`)
	for i := range 20 {
		if i > 0 {
			b.WriteByte(',')
		}
		_, _ = fmt.Fprintf(&b, `{"name":"tool%d","description":"%s","input_schema":{"type":"object","properties":{"a":{"type":"string","description":"%s"},"b":{"type":"array","items":{"type":"integer"}}},"required":["a"]}}`,
			i, strings.Repeat("It does \\\"this\\\" and that.\\n", 60), strings.Repeat("a ", 100))
	}
	b.WriteString(`],"messages":[`)
	for i := range 40 {
		if i > 0 {
			b.WriteByte(',')
		}
		_, _ = fmt.Fprintf(&b, `{"role":"assistant","content":[{"type":"tool_use","id":"t%d","name":"tool1","input":{"a":"ls"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t%d","content":"%s"}]}`, i, i, strings.Repeat("output\\n", 60))
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

func BenchmarkInspect(b *testing.B) {
	body := agentBody()
	stripped := bytes.Replace(body, []byte(`"tools":[`), []byte(`"tools":[{"type":"web_search_20250305","name":"web_search"},`), 1)
	for _, c := range []struct {
		name string
		body []byte
	}{{"clean", body}, {"stripped", stripped}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := relay.Inspect(relay.Anthropic, messagesPath, c.body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMeter(b *testing.B) {
	var stream bytes.Buffer
	stream.WriteString("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10}}}\n\n")
	for range 2000 {
		stream.WriteString("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"some words of an answer\"}}\n\n")
	}
	stream.WriteString("event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	b.SetBytes(int64(stream.Len()))
	for b.Loop() {
		if u, whole, _ := relay.Meter(messagesPath, relay.Anthropic, true, stream.Bytes()); !whole || u.Output != 9 {
			b.Fatal(u, whole)
		}
	}
}

// BenchmarkRequest measures an agent's request with a short streamed answer, with the
// relay and without.
func BenchmarkRequest(b *testing.B) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 20 {
			_, _ = io.WriteString(w, "data: {\"type\":\"content_block_delta\"}\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\ndata: {\"type\":\"message_stop\"}\n\n")
	}))
	defer up.Close()
	base, err := url.Parse(up.URL)
	if err != nil {
		b.Fatal(err)
	}
	r, err := relay.New(relay.Config{Provider: relay.Anthropic, BaseURL: base, Key: relay.NewKey(realKey), Model: "m"})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = r.Serve(l) }()
	body := agentBody()
	for _, c := range []struct{ name, url string }{{"direct", up.URL}, {"relay", "http://" + l.Addr().String()}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				resp, err := http.Post(c.url+messagesPath, "application/json", bytes.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
					b.Fatal(resp.StatusCode, err)
				}
				_ = resp.Body.Close()
			}
		})
	}
}

// BenchmarkEvent measures one event of a stream in progress.
func BenchmarkEvent(b *testing.B) {
	next := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for range next {
			_, _ = io.WriteString(w, "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"some words\"}}\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer up.Close()
	base, err := url.Parse(up.URL)
	if err != nil {
		b.Fatal(err)
	}
	r, err := relay.New(relay.Config{Provider: relay.Anthropic, BaseURL: base, Key: relay.NewKey(realKey), Model: "m"})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = r.Serve(l) }()
	for _, c := range []struct{ name, url string }{{"direct", up.URL}, {"relay", "http://" + l.Addr().String()}} {
		b.Run(c.name, func(b *testing.B) {
			next = make(chan struct{})
			defer close(next)
			resp, err := http.Post(c.url+messagesPath, "application/json", strings.NewReader(`{"model":"m","stream":true}`))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			in := bufio.NewReader(resp.Body)
			for b.Loop() {
				next <- struct{}{}
				for range 2 {
					if _, err := in.ReadSlice('\n'); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
