package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
)

const crudeAddress = "93.184.216.37"

// crude makes crude.allowed.test a server on port 80 that reads a request's head and
// then calls f with the connection.
func (w *world) crude(f func(net.Conn)) {
	l := listenLocal(w.t)
	w.lead("crude.allowed.test", crudeAddress)
	w.stand(crudeAddress+":80", l)
	w.each(l, func(c net.Conn) {
		if _, err := headOf(c); err == nil { // otherwise the proxy gave up
			f(c)
		}
	})
}

// converse sends text and returns all that comes back.
func converse(t testing.TB, address, text string) string {
	t.Helper()
	c := dial(t, address)
	defer func() { _ = c.Close() }()
	go func() { _, _ = io.WriteString(c, text) }()
	must.Do(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	b, err := io.ReadAll(c)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Errorf("the connection is open after %q", b)
	}
	return string(b)
}

func request(method, path, headers, body string) string {
	return method + " http://crude.allowed.test" + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + "\r\n" + body
}

// TestHTTPLimits: an answer cut by a limit does not look complete, and has the reason unless its head was
// sent before.
func TestHTTPLimits(t *testing.T) {
	slow := func(c net.Conn) { silent(c) }
	big := strings.Repeat("x", 100_000)
	twoRequests := func(headers string) string { // the second could be a part of the first one's body
		first := request("POST", "/", headers+"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")
		return strings.Replace(first, "Connection: close\r\n", "", 1) + request("GET", "/", "", "")
	}
	tests := []struct {
		name   string
		limit  func(*proxy.EgressLimits)
		server func(net.Conn)
		send   string
		log    string
		answer string // part of it
		status int
		upMax  int64
	}{
		{name: "silent server", limit: func(l *proxy.EgressLimits) { l.Idle = 200 * time.Millisecond }, server: slow,
			send: request("GET", "/", "", ""), log: "http allow idle", status: 504, answer: "X-Sbench-Egress: idle"},
		{name: "lifetime", limit: func(l *proxy.EgressLimits) { l.Lifetime = 200 * time.Millisecond }, server: slow,
			send: request("GET", "/", "", ""), log: "http allow lifetime", status: 504, answer: "X-Sbench-Egress: lifetime"},
		{name: "silent client", limit: func(l *proxy.EgressLimits) { l.Idle = 200 * time.Millisecond }, server: slow,
			send: request("POST", "/", "Content-Length: 1000\r\n", "x"), log: "http allow idle", status: 504},
		{name: "a declared body", limit: func(l *proxy.EgressLimits) { l.Up = 1000 }, server: slow,
			send: request("POST", "/", "Content-Length: 1001\r\n", "x"), log: "http deny bytes_up", status: 403},
		{name: "a body in chunks", send: request("POST", "/", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n"), log: "http deny length_required", status: 411},
		{name: "a length beside chunks, and a request", send: twoRequests(""), log: "http deny length_required", status: 411},
		{name: "the same, and an upgrade", send: twoRequests("Upgrade: h2c\r\n"), log: "http deny length_required", status: 411},
		{name: "bytes up", limit: func(l *proxy.EgressLimits) { l.Up = 50_000 }, server: slow,
			send: request("POST", "/", "Content-Length: 50000\r\n", big), log: "http allow bytes_up", status: 403, upMax: 50_000},
		{name: "a URL is bytes, too", limit: func(l *proxy.EgressLimits) { l.Up = 1000 },
			send: request("GET", "/"+big[:2000], "", ""), log: "http allow bytes_up", status: 403, upMax: 1},
		{name: "bytes down", limit: func(l *proxy.EgressLimits) { l.Down = 50_000 }, server: func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+big)
		}, send: request("GET", "/", "", ""), log: "http allow bytes_down", status: 200},
		{name: "a server that breaks off", server: func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
		}, send: request("GET", "/", "", ""), log: "http error upstream_failed"},
		{name: "a server that says nothing", server: func(net.Conn) {}, send: request("GET", "/", "", ""), log: "http error upstream_failed", status: 502},
		{name: "a server that speaks something else", server: func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-x\r\n") },
			send: request("GET", "/", "", ""), log: "http error upstream_failed", status: 502},
		{name: "a status that is none", server: func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 000 Odd\r\nContent-Length: 2\r\n\r\nok") },
			send: request("GET", "/", "", ""), log: "http error upstream_failed", status: 502, answer: "upstream_failed"},
		{name: "a head of a megabyte", server: func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat(big, 10)+"\r\n\r\n")
		}, send: request("GET", "/", "", ""), log: "http error upstream_failed", status: 502},
		{name: "half a head", send: "GET http://crude.allowed.test/ HT", limit: func(l *proxy.EgressLimits) { l.HeaderTime = 300 * time.Millisecond }, log: "malformed deny header_timeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.server != nil {
				w.crude(tt.server)
			}
			if tt.limit == nil {
				tt.limit = func(*proxy.EgressLimits) {}
			}
			p, log := w.startProxy(limited(tt.limit))
			got := converse(t, serveLocal(t, p), tt.send)
			e := log.next(t)
			if words(e) != tt.log || tt.upMax > 0 && e.Up > tt.upMax || e.Verdict == proxy.Deny && e.Up != 0 {
				t.Errorf("log: %+v, want %q", e, tt.log)
			}
			if tt.status != 0 && !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", tt.status)) || !strings.Contains(got, tt.answer) {
				t.Errorf("got %.300q, want %d and %q", got, tt.status, tt.answer)
			}
			if strings.HasPrefix(got, "HTTP/1.1 200 ") { // the cut must be visible
				if resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(got)), nil); err == nil {
					if _, err := io.ReadAll(resp.Body); err == nil {
						t.Errorf("half an answer looks like a whole one: %.300q", got)
					}
				}
			}
			log.none(t)
		})
	}
}

// TestHTTPBodies: bodies pass whole, and are counted.
func TestHTTPBodies(t *testing.T) {
	w := newWorld(t)
	p, log := w.startProxy(proxy.Config{})
	address := serveLocal(t, p)
	body := strings.Repeat("x", 300_000)
	for _, headers := range []string{"", "Expect: 100-continue\r\n"} {
		got := converse(t, address, "POST http://allowed.test/x?secret=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 300000\r\n"+headers+"\r\n"+body)
		if !strings.Contains(got, "body=300000") {
			t.Errorf("got %.300q", got)
		}
		if e := log.next(t); words(e) != "http allow" || e.Up < 300_000 || e.Up > 300_300 || e.Status != 200 || e.Address != public+":80" || e.Path != "" || e.Down < 30 {
			t.Errorf("%+v", e)
		}
	}
}

// TestHTTPClientLeaves: if the client closes the connection, the log has no failure, and the connection
// to the server ends.
func TestHTTPClientLeaves(t *testing.T) {
	for name, begin := range map[string]string{"before the answer": "", "in the middle of it": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			asked, ended := make(chan struct{}), make(chan struct{})
			w.crude(func(c net.Conn) {
				_, _ = io.WriteString(c, begin)
				close(asked)
				silent(c)
				close(ended)
			})
			p, log := w.startProxy(proxy.Config{})
			c := dial(t, serveLocal(t, p))
			_, _ = io.WriteString(c, request("GET", "/", "", ""))
			<-asked
			must.Report(t, c.Close())
			<-ended
			if e := log.next(t); words(e) != "http allow" || e.Up == 0 {
				t.Errorf("%+v", e)
			}
		})
	}
}

// TestHTTPConnecting: when the client closes its connection, the proxy stops connecting to the host.
func TestHTTPConnecting(t *testing.T) {
	w := newWorld(t)
	hooks, asked, ended := w.hooks(), make(chan struct{}, 10), make(chan error, 10)
	hooks.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		asked <- struct{}{}
		<-ctx.Done() // or the resolver has waited long enough
		ended <- ctx.Err()
		return nil, ctx.Err()
	}}
	log := newBook()
	p, err := proxy.New(proxy.WithHooks(proxy.Config{Log: proxy.NewLog(log), Allowed: proxy.Allowlist{Domains: domains(t, "allowed.test")}}, hooks))
	must.Do(t, err)
	c := dial(t, serveLocal(t, p))
	_, _ = io.WriteString(c, request("GET", "/", "", ""))
	<-asked
	must.Report(t, c.Close())
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the look-up ended with %v", err)
	}
	if e := log.next(t); words(e) != "http allow" || e.Up != 0 {
		t.Errorf("%+v", e)
	}
}

// TestHTTPAsSent: end-to-end fields and encoded bodies pass unchanged. Trailers do not pass.
func TestHTTPAsSent(t *testing.T) {
	for _, announced := range []string{"", "Trailer: X-A\r\n"} {
		w := newWorld(t)
		w.crude(func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"+announced+"\r\n5\r\nhello\r\n0\r\nX-A: yyy\r\nConnection: yyy\r\n\r\n")
		})
		p, _ := w.startProxy(proxy.Config{})
		if got := converse(t, serveLocal(t, p), request("GET", "/", "", "")); strings.Contains(got, "yyy") || strings.Contains(got, "Trailer") || !strings.Contains(got, "hello") {
			t.Errorf("got %q", got)
		}
	}
	w := newWorld(t)
	w.crude(func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\nX-A: 1\r\nX-A: 2\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n")
		_, _ = io.WriteString(c, "no gz")
	})
	p, log := w.startProxy(proxy.Config{})
	address := serveLocal(t, p)
	for method, body := range map[string]string{"GET": "no gz", "HEAD": ""} {
		got := converse(t, address, request(method, "/", "Accept-Encoding: gzip\r\n", ""))
		head, rest, _ := strings.Cut(got, "\r\n\r\n")
		for _, want := range []string{"Content-Length: 5\r\n", "Content-Encoding: gzip\r\n", "X-A: 1\r\nX-A: 2\r\n"} {
			if !strings.Contains(head, want) {
				t.Errorf("%s: no %q in %q", method, want, head)
			}
		}
		if rest != body || strings.Contains(head, "X-Hop") {
			t.Errorf("%s: got %q", method, got)
		}
		if e := log.next(t); words(e) != "http allow" || e.Down < int64(len(body)) {
			t.Errorf("%+v", e)
		}
	}
}
