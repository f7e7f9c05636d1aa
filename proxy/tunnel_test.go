package proxy_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
)

// serveLocal serves the proxy on loopback and returns its address.
func serveLocal(t testing.TB, p *proxy.Proxy) string {
	t.Helper()
	l := listenLocal(t)
	done := make(chan error, 1)
	go func() { done <- p.Serve(l) }()
	t.Cleanup(func() {
		p.Close()
		must.Report(t, <-done)
	})
	return l.Addr().String()
}

// dial connects to an address until the test ends.
func dial(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	must.Do(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// raw makes raw.allowed.test a server that reads the ClientHello of each connection
// and then calls f with it.
func (w *world) raw(f func(net.Conn)) {
	const address = "93.184.216.36"
	l := listenLocal(w.t)
	w.lead("raw.allowed.test", address)
	w.stand(address+":443", l)
	w.each(l, func(c net.Conn) {
		var head [5]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(head[3:]))); err == nil {
			f(c)
		}
	})
}

// openTunnel returns a connection through the proxy to raw.allowed.test, and the size
// of the ClientHello that was sent.
func openTunnel(t testing.TB, address string) (*net.TCPConn, int) {
	t.Helper()
	c := dial(t, address)
	if _, err := io.WriteString(c, "CONNECT raw.allowed.test:443 HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if head := readHead(t, c); !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		t.Fatal(head)
	}
	hello := captureHello(t, helloFor("raw.allowed.test"))
	if _, err := c.Write(hello); err != nil {
		t.Fatal(err)
	}
	return c, len(hello)
}

func helloFor(name string) *tls.Config { return &tls.Config{ServerName: name} }

// headOf reads byte by byte, so that it reads nothing after the head.
func headOf(c net.Conn) (string, error) {
	var head []byte
	for b := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); {
		if _, err := io.ReadFull(c, b); err != nil {
			return "", fmt.Errorf("%w after %q", err, head)
		}
		head = append(head, b...)
	}
	return string(head), nil
}

func readHead(t testing.TB, c net.Conn) string {
	t.Helper()
	head, err := headOf(c)
	must.Do(t, err)
	return head
}

// silent keeps a connection open without sending, until the other side ends.
func silent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// TestTunnelHalfClose: an answer still arrives after the client has closed its side.
func TestTunnelHalfClose(t *testing.T) {
	w := newWorld(t)
	w.raw(func(c net.Conn) {
		b, _ := io.ReadAll(c)
		_, _ = fmt.Fprintf(c, "%d bytes", len(b))
	})
	p, log := w.startProxy(proxy.Config{})
	c, n := openTunnel(t, serveLocal(t, p))
	if _, err := c.Write(make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	must.Report(t, c.CloseWrite())
	got, err := io.ReadAll(c)
	if want := "3145728 bytes"; err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	e := log.next(t)
	if words(e) != "connect allow" || e.Up != int64(3<<20+n) || e.Down != int64(len(got)) || e.Address != "93.184.216.36:443" || e.Rule != "allowed.test" {
		t.Errorf("%+v", e)
	}
	if got, want := p.Totals(), (proxy.Totals{Connections: 1, Allowed: 1, Up: e.Up, Down: e.Down}); got != want {
		t.Errorf("totals %+v, want %+v", got, want)
	}
}

// TestTunnelTime: an idle tunnel ends. A slow tunnel stays open until the end of its lifetime.
func TestTunnelTime(t *testing.T) {
	w := newWorld(t)
	p, log := w.startProxy(limited(func(l *proxy.EgressLimits) { l.Idle = 300 * time.Millisecond }))
	w.raw(silent)
	c, _ := openTunnel(t, serveLocal(t, p))
	if _, err := io.ReadAll(c); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Log(err)
	}
	if e := log.next(t); words(e) != "connect allow idle" || e.Duration != 0 {
		t.Errorf("%+v", e)
	}
	w.raw(func(c net.Conn) { // a byte now and then, one way
		for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
			if _, err := c.Write([]byte("x")); err != nil {
				tick.Stop()
				return
			}
		}
	})
	p, log = w.startProxy(limited(func(l *proxy.EgressLimits) { l.Idle, l.Lifetime = time.Second, 1500*time.Millisecond }))
	begun := time.Now()
	c, _ = openTunnel(t, serveLocal(t, p))
	_, _ = io.ReadAll(c)
	if e := log.next(t); words(e) != "connect allow lifetime" || e.Down < 2 || time.Since(begun) < 1400*time.Millisecond {
		t.Errorf("%+v after %v", e, time.Since(begun))
	}
}

// TestTunnelBytes: the limits are exact, also if the kernel copies, and hold for all tunnels together.
func TestTunnelBytes(t *testing.T) {
	const limit, tunnels = 5_000_000, 5
	for reason, down := range map[string]bool{"bytes_up": false, "bytes_down": true} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t)
			var arrived atomic.Int64
			var servers, begun sync.WaitGroup
			servers.Add(tunnels)
			begun.Add(tunnels)
			w.raw(func(c net.Conn) {
				defer servers.Done()
				begun.Done()
				begun.Wait()
				if down {
					_, _ = io.Copy(c, endless{})
					return
				}
				n, _ := io.Copy(io.Discard, c)
				arrived.Add(n)
			})
			p, log := w.startProxy(limited(func(l *proxy.EgressLimits) {
				if down {
					l.Down = limit
				} else {
					l.Up = limit
				}
			}))
			address := serveLocal(t, p)
			var wg sync.WaitGroup
			hellos := 0
			for range tunnels {
				c, n := openTunnel(t, address)
				hellos += n
				wg.Go(func() {
					begun.Wait()
					if down {
						n, _ := io.Copy(io.Discard, c)
						arrived.Add(n)
						return
					}
					_, _ = io.Copy(c, endless{})
				})
			}
			wg.Wait()
			logged := int64(0)
			for range tunnels {
				e := log.next(t)
				if words(e) != "connect allow "+reason {
					t.Errorf("%+v", e)
				}
				logged += e.Up
				if down {
					logged += e.Down - e.Up
				}
			}
			servers.Wait()
			got := arrived.Load()
			if !down {
				got += int64(hellos)
			}
			if got > limit || logged != limit || down && got != limit {
				t.Errorf("%d bytes arrived, %d logged, want %d", got, logged, limit)
			}
		})
	}
}

// endless is an endless reader without splice.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// TestClose: Close ends and logs everything, and leaves no goroutine or file behind.
func TestClose(t *testing.T) {
	w := newWorld(t)
	w.raw(silent)
	asked := make(chan struct{})
	w.crude(func(c net.Conn) {
		close(asked)
		silent(c)
	})
	goroutines, files := runtime.NumGoroutine(), must.OpenFiles(t)
	const tunnels = 200
	log := newBook()
	cfg := limited(func(l *proxy.EgressLimits) { l.Connections = tunnels + 2 })
	cfg.Log, cfg.Allowed.Domains = proxy.NewLog(log), domains(t, "allowed.test")
	p, err := proxy.New(proxy.WithHooks(cfg, w.hooks()))
	must.Do(t, err)
	l := listenLocal(t)
	done := make(chan error, 1)
	go func() { done <- p.Serve(l) }()
	var clients []net.Conn
	for range tunnels {
		c, _ := openTunnel(t, l.Addr().String())
		clients = append(clients, c)
	}
	for _, begin := range []string{"CONNECT raw.allowed", request("GET", "/", "", "")} {
		c := dial(t, l.Addr().String())
		_, _ = io.WriteString(c, begin)
		clients = append(clients, c)
	}
	<-asked
	if n := must.OpenFiles(t) - files; n > 4*tunnels+20 { // a client's, a server's and two of the proxy's
		t.Errorf("%d descriptors for %d tunnels", n, tunnels)
	}
	p.Close() // before any limit of time
	must.Report(t, <-done)
	p.Close()
	count := map[string]int{}
	for len(log.entries) > 0 {
		count[words(<-log.entries)]++
	}
	if delete(count, "malformed deny shutdown"); !maps.Equal(count, map[string]int{"connect allow shutdown": tunnels, "http error shutdown": 1}) {
		t.Errorf("%v", count)
	}
	for _, c := range clients {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a client's connection is open")
		}
		_ = c.Close()
	}
	must.Await(t, "the last goroutine and file", func() bool { return runtime.NumGoroutine() <= goroutines+1 && must.OpenFiles(t) <= files+1 })
}
