package proxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/securebench/sbench/proxy"
)

// refused asks for a tunnel and checks the reason why there is none.
func refused(t *testing.T, address, host, want string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "CONNECT "+host+":443 HTTP/1.1\r\nHost: x\r\n\r\n")
	got, _ := io.ReadAll(c)
	if !strings.Contains(string(got), "X-Sbench-Egress: "+want+"\r\n") {
		t.Errorf("got %q, want %s", got, want)
	}
}

// TestTooManyConnections: a connection above the limit is closed.
func TestTooManyConnections(t *testing.T) {
	w := newWorld(t)
	p, log := w.startProxy(proxy.Config{Limits: proxy.EgressLimits{Connections: 4}})
	address := serveLocal(t, p)
	for i := range 5 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if i < 4 {
			continue
		}
		if b, _ := io.ReadAll(c); len(b) != 0 {
			t.Errorf("got %q", b)
		}
	}
	if e := log.next(t); words(e) != "malformed deny too_many_connections" {
		t.Errorf("%+v", e)
	}
}

// TestTooManyRequests: the proxy refuses requests above the limit, and logs only the first refusal.
func TestTooManyRequests(t *testing.T) {
	w := newWorld(t)
	p, log := w.startProxy(proxy.Config{Limits: proxy.EgressLimits{Requests: 3}})
	address := serveLocal(t, p)
	for range 3 {
		refused(t, address, "evil.test", "host_not_allowed")
	}
	for range 3 {
		refused(t, address, "allowed.test", "too_many_requests")
	}
	for _, want := range []string{"host_not_allowed", "host_not_allowed", "host_not_allowed", "too_many_requests"} {
		if e := log.next(t); words(e) != "connect deny "+want {
			t.Errorf("%+v, want %s", e, want)
		}
	}
	log.none(t)
	if got, want := p.Totals(), (proxy.Totals{Connections: 6, Denied: 6, Unlogged: 2}); got != want {
		t.Errorf("totals %+v, want %+v", got, want)
	}
}

// failing writes to a full disk.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestLogFails: after an entry could not be written, nothing leaves.
func TestLogFails(t *testing.T) {
	w := newWorld(t)
	cfg := proxy.Config{Log: proxy.NewLog(failing{}), Allowed: proxy.Allowlist{Domains: domains(t, "allowed.test")}}
	p, err := proxy.New(proxy.WithHooks(cfg, w.hooks()))
	if err != nil {
		t.Fatal(err)
	}
	address := serveLocal(t, p)
	for i, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != want {
			t.Errorf("request %d: %v, %v, want %d", i, resp, err, want)
		}
		_ = c.Close()
		waitFor(t, func() bool { return cfg.Log.Err() != nil })
	}
}
