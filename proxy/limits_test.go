package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/providertest"
	"github.com/securebench/sbench/proxy"
)

// refused asks for a tunnel and checks the reason why there is none.
func refused(t *testing.T, address, host, want string) {
	t.Helper()
	c := dial(t, address)
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
	p, log := w.startProxy(limited(func(l *proxy.EgressLimits) { l.Connections = 4 }))
	address := serveLocal(t, p)
	for range 4 {
		dial(t, address)
	}
	if b, _ := io.ReadAll(dial(t, address)); len(b) != 0 {
		t.Errorf("got %q", b)
	}
	if e := log.next(t); words(e) != "malformed deny too_many_connections" {
		t.Errorf("%+v", e)
	}
}

// TestAcceptFails: a proxy serves on after the kernel could not give it a connection.
func TestAcceptFails(t *testing.T) {
	w := newWorld(t)
	p, _ := w.startProxy(proxy.Config{})
	l := providertest.Tired(listenLocal(t))
	go func() { _ = p.Serve(l) }()
	refused(t, l.Addr().String(), "evil.test", "host_not_allowed")
}

// TestReadFails: the name server answers on after the kernel could not give it a packet.
func TestReadFails(t *testing.T) {
	w := newWorld(t)
	p, _ := w.startProxy(proxy.Config{})
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	must.Do(t, err)
	go func() { _ = p.ServeDNS(providertest.TiredPackets(c)) }()
	names := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("udp", c.LocalAddr().String())
	}}
	if found, err := names.LookupHost(t.Context(), "allowed.test"); err != nil || !slices.Equal(found, []string{"198.18.0.1"}) {
		t.Errorf("%v, %v", found, err)
	}
}

// TestTooManyRequests: the proxy refuses requests above the limit, and logs only the first refusal.
func TestTooManyRequests(t *testing.T) {
	w := newWorld(t)
	p, log := w.startProxy(limited(func(l *proxy.EgressLimits) { l.Requests = 3 }))
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

// TestSlowloris: the proxy cuts a connection with an endless head or ClientHello, and serves others meanwhile.
func TestSlowloris(t *testing.T) {
	w := newWorld(t)
	p, log := w.startProxy(limited(func(l *proxy.EgressLimits) { l.HeaderTime, l.HelloTime = time.Second, time.Second }))
	address := serveLocal(t, p)
	hello := string(captureHello(t, helloFor("allowed.test")))
	var cut sync.WaitGroup
	for begin, drip := range map[string]string{"GET http://allowed.test/ HTTP/1.1\r\n": strings.Repeat("X-A: b\r\n", 100), "CONNECT allowed.test:443 HTTP/1.1\r\nHost: x\r\n\r\n": hello} {
		c := dial(t, address)
		cut.Go(func() {
			_, err := io.WriteString(c, begin)
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for i := 0; err == nil && i < len(drip); i++ {
				_, err = io.WriteString(c, drip[i:i+1])
				<-tick.C
			}
			if err == nil {
				t.Errorf("%q: open after %d bytes", begin, len(drip))
			}
		})
	}
	if got := converse(t, address, "GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.Contains(got, "HIT") {
		t.Error(got)
	}
	cut.Wait()
	count := map[string]int{}
	for range 3 {
		count[words(log.next(t))]++
	}
	if count["malformed deny header_timeout"] != 1 || count["http allow"] != 1 || count["connect deny hello_timeout"] != 1 {
		t.Errorf("%v", count)
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
	must.Do(t, err)
	address := serveLocal(t, p)
	for i, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		got := converse(t, address, "GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", want)) {
			t.Errorf("request %d: %q, want %d", i, got, want)
		}
		must.Await(t, "the log's error", func() bool { return cfg.Log.Err() != nil })
	}
}
