package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/providertest"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
)

// TestSlowAgents: an agent that is too slow is cut off.
func TestSlowAgents(t *testing.T) {
	big := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := w.Write(bytes.Repeat([]byte("data: x\n\n"), 10000)); err != nil {
				return
			}
		}
	})
	for _, c := range []struct {
		name, send, reason string
		limit              func(*relay.HostLimits)
	}{
		{"head", "POST /v1/mess", "malformed_head", func(l *relay.HostLimits) { l.Head = time.Second }},
		{"body", "POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", "body_unreadable", func(l *relay.HostLimits) { l.Upload = 50 * time.Millisecond }},
		{"answer", "POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{\"model\":\"m\"}", "agent_left", func(l *relay.HostLimits) { l.Download = 100 * time.Millisecond }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, relay.Anthropic, big, func(cfg *relay.Config) {
				c.limit(&cfg.Limits)
				cfg.Limits.Linger = time.Millisecond
			})
			conn := r.dial()
			if _, err := io.WriteString(conn, c.send); err != nil {
				t.Fatal(err)
			}
			must.Await(t, c.reason, func() bool { return strings.Contains(r.log.String(), c.reason) })
		})
	}
}

// TestAcceptFails: a relay serves on after the kernel could not give it a connection.
func TestAcceptFails(t *testing.T) {
	r := newRig(t, relay.Anthropic, newAnswers(t).url, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	go func() { _ = r.relay.Serve(providertest.Tired(l)) }()
	r.url = "http://" + l.Addr().String()
	text(t, r.post(messagesPath, `{"model":"m"}`))
}

// TestLimitsAtOnce tests the limits of concurrent requests and connections.
func TestLimitsAtOnce(t *testing.T) {
	url, _, _ := stuck(t, true)
	r := newRig(t, relay.OpenAI, url, func(c *relay.Config) { c.Limits.InFlight, c.Limits.Conns = 3, 6 })
	for range 3 {
		if resp := r.post(responsesPath, `{"model":"m","stream":true}`); resp.StatusCode != 200 {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	resp := r.post(responsesPath, `{"model":"m","stream":true}`)
	if got := text(t, resp); resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || resp.Header.Get("X-Should-Retry") == "false" || !strings.Contains(got, "at once") {
		t.Errorf("status %d, %v, %s", resp.StatusCode, resp.Header, got)
	}
	if f := r.relay.Facts(); f.Sent != 3 || f.Refused != 1 || f.Exceeded != "" || f.ProviderFailed() {
		t.Errorf("facts %+v", f)
	}
	refused := false
	for range 10 {
		conn := r.dial()
		_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			refused = true
			break
		}
	}
	if !refused {
		t.Error("no connection was refused")
	}
}

// TestConnecting: the requests that an agent gives up while the relay connects leave no more connections than there may be
// requests at once.
func TestConnecting(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	defer func() { _ = unix.Close(fd) }()
	must.Do(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must.Do(t, unix.Listen(fd, 0))
	name, err := unix.Getsockname(fd)
	must.Do(t, err)
	port := name.(*unix.SockaddrInet4).Port
	only, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)) // the kernel drops what begins after the first
	must.Do(t, err)
	defer func() { _ = only.Close() }()
	r := newRig(t, relay.OpenAI, "http://"+only.RemoteAddr().String(), func(c *relay.Config) { c.Limits.InFlight = 2 })
	for i := range int64(8) {
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.url+responsesPath, strings.NewReader(`{"model":"m"}`))
		go func() {
			if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
				_ = resp.Body.Close()
			}
		}()
		must.Await(t, "the request", func() bool { return r.relay.Facts().Sent == i+1 })
		cancel()
		must.Await(t, "its end", func() bool { return r.relay.Facts().Left == i+1 })
	}
	sockets, err := os.ReadFile("/proc/self/net/tcp")
	must.Do(t, err)
	if n := strings.Count(string(sockets), fmt.Sprintf(" 0100007F:%04X 02 ", port)); n > 2 { // SYN_SENT
		t.Errorf("%d connections", n)
	}
}

// TestBodiesAtOnce tests the limit of the memory that requests take.
func TestBodiesAtOnce(t *testing.T) {
	url, _, _ := stuck(t, true)
	r := newRig(t, relay.OpenAI, url, func(c *relay.Config) { c.Limits.Body, c.Limits.Bodies = 10<<20, 25<<20 })
	body := `{"model":"m","stream":true,"input":"` + strings.Repeat("a", 9<<20) + `"}`
	var last *http.Response
	for i, want := range []int{200, 200, 429} {
		if last = r.post(responsesPath, body); last.StatusCode != want {
			t.Errorf("request %d: status %d, want %d", i, last.StatusCode, want)
		}
	}
	if got := text(t, last); !strings.Contains(got, "at once") {
		t.Error(got)
	}
	if resp := r.post(responsesPath, `{"model":"m","stream":true}`); resp.StatusCode != 200 {
		t.Errorf("a small one beside them: status %d", resp.StatusCode)
	}
}

// TestInspectionAllowance: the relay refuses requests beyond the allowance of inspected bytes, whatever
// the machine's speed.
func TestInspectionAllowance(t *testing.T) {
	up := newAnswers(t)
	r := newRig(t, relay.OpenAI, up.url, func(c *relay.Config) { c.Limits.Inspect = 1 })
	body := `{"model":"m","input":"` + strings.Repeat("a", 100_000) + `"}` // more than a day's worth
	for i, want := range []int{200, 429, 429} {
		resp := r.post(responsesPath, body)
		if resp.StatusCode != want || want == 429 && resp.Header.Get("Retry-After") == "" {
			t.Errorf("request %d: status %d, %v", i, resp.StatusCode, resp.Header)
		}
	}
	if n, _, _ := up.seen(); n != 1 {
		t.Errorf("%d requests were sent", n)
	}
	all, refused := r.entries(), 0
	for _, e := range all { // lines may be out of order
		if e.Reason == "inspection_limit" && e.Verdict == proxy.Deny {
			refused++
		}
	}
	if len(all) != 3 || refused != 2 {
		t.Errorf("%+v", all)
	}
}

// TestErrorsCost: an error before any output costs the tokens that it reports, mostly none, since
// clients repeat such requests many times. Any other error, or no answer, costs what the provider may
// have spent on it. Otherwise an agent could provoke errors to get around a budget.
func TestErrorsCost(t *testing.T) {
	const delta = `data: {"type":"response.output_text.delta","delta":"0123456789"}` + "\n\n"
	body := `{"model":"m","stream":true,"max_output_tokens":5000,"input":"` + strings.Repeat("a", 4000) + `"}`
	size := int64(len(body))
	long := strings.Repeat(delta, 1000)
	for _, c := range []struct {
		name   string
		answer func(w http.ResponseWriter)
		input  int64 // at least
		output int64
		free   bool
	}{
		{name: "400", answer: status(400, `{"error":{}}`), free: true},
		{name: "400 that counts", answer: status(400, `{"error":{},"usage":{"input_tokens":7000,"output_tokens":300}}`), input: 7000, output: 300},
		{name: "404", answer: status(404, ""), free: true},
		{name: "500", answer: status(500, "no JSON"), free: true},
		{name: "529 without an end", answer: status(529, strings.Repeat("x", 1<<20)), free: true},
		{name: "429", answer: status(429, `{"error":{}}`), free: true},
		{name: "401", answer: status(401, `{"error":{}}`), free: true},
		{name: "a redirect", answer: status(302, ""), input: size / 4},
		{name: "an encoding nobody asked for", answer: func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, long)
		}, input: size, output: 5000},
		{name: "nothing", answer: func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, input: size / 4},
		{name: "an error event before any text", answer: stream(`data: {"type":"response.created","response":{"error":null}}` + "\n\n" + `data: {"type":"error","code":"server_error"}` + "\n\n"), free: true},
		{name: "an error event behind the text", answer: stream(long + `data: {"type":"error","code":"server_error"}` + "\n\n"), input: size / 4, output: int64(len(long) / 8)},
		{name: "a failure behind the text", answer: stream(long + `data: {"type":"response.failed","response":{"usage":null,"error":{"code":"rate_limit_exceeded"}}}` + "\n\n"), input: size / 4, output: int64(len(long) / 8)},
		{name: "a stream that is cut", answer: func(w http.ResponseWriter) {
			stream(long)(w)
			panic(http.ErrAbortHandler)
		}, input: size / 4, output: int64(len(long) / 16)},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				c.answer(w)
			})
			r := newRig(t, relay.OpenAI, url, nil)
			resp := r.post(responsesPath, body)
			_, _ = io.Copy(io.Discard, resp.Body) // may be cut
			r.entries()
			u := r.relay.Facts().Usage
			if u.Input < c.input || u.Output < c.output || c.free != (u == proxy.Usage{}) {
				t.Errorf("%+v, want at least %d, %d", u, c.input, c.output)
			}
		})
	}
}

func status(code int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func stream(events string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, events)
		_ = http.NewResponseController(w).Flush()
	}
}
