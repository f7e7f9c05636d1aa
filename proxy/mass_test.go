package proxy_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/proxy"
)

// helloCode is Python code with the bytes of a ClientHello for raw.allowed.test and a
// function that opens a tunnel to it.
func helloCode(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf(`import socket, time
hello = bytes.fromhex('%x')
def tunnel():
    s = socket.create_connection(PROXY, TIMEOUT)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(b'CONNECT raw.allowed.test:443 HTTP/1.1\r\nHost: x\r\n\r\n')
    head = b''
    while not head.endswith(b'\r\n\r\n'):
        b = s.recv(1)
        if not b: break
        head += b
    if b' 200 ' in head: s.sendall(hello)
    return s, head
`, captureHello(t, helloFor("raw.allowed.test")))
}

// TestUpload sends 64 MiB out of a sandbox; 1 GiB with SBENCH_SOAK.
func TestUpload(t *testing.T) {
	size := int64(64 << 20)
	if os.Getenv("SBENCH_SOAK") != "" {
		size = 1 << 30
	}
	w := newWorld(t)
	w.raw(func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		_, _ = fmt.Fprintf(c, "got %d", n)
	})
	p, log := w.startProxy(proxy.Config{Limits: proxy.EgressLimits{Up: 2 << 30}})
	s := newSandbox(t, p, false)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := s.ask(ask{Code: helloCode(t) + fmt.Sprintf(`
s, head = tunnel()
chunk, left = b'x' * 65536, %d
while left: left -= s.send(chunk[:left])
s.shutdown(socket.SHUT_WR)
result = s.recv(100).decode()`, size)})
	runtime.ReadMemStats(&after)
	if want := fmt.Sprintf("got %d", size); !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	if e := log.next(t); words(e) != "connect allow" || e.Up < size || e.Up > size+4096 {
		t.Errorf("%+v", e)
	}
	if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 16<<20 {
		t.Errorf("%d bytes were allocated on the way", grown)
	}
}

// TestCrowd: if a sandbox makes 2,000 connections at once, the proxy serves connections within the limit,
// and closes the rest.
func TestCrowd(t *testing.T) {
	const crowd, limit = 2000, 600
	w := newWorld(t)
	w.raw(echo)
	p, log := w.startProxy(proxy.Config{Limits: proxy.EgressLimits{Connections: limit, HelloTime: time.Minute}})
	s := newSandbox(t, p, false)
	goroutines := runtime.NumGoroutine()
	got := s.ask(ask{Code: helloCode(t) + fmt.Sprintf(`
all = []
for i in range(%d):
    s = socket.create_connection(PROXY, TIMEOUT)
    try: s.sendall(b'CONNECT raw.allowed.test:443 HTTP/1.1\r\nHost: x\r\n\r\n')
    except OSError: pass
    all.append(s)
served = []
for s in all:
    try:
        if b' 200 ' in s.recv(1000):
            s.sendall(hello + b'ping')
            served.append(s)
    except OSError: pass
echoed = sum(s.recv(4) == b'ping' for s in served)
for s in all: s.close()
result = [len(served), echoed]`, crowd)})
	if want := fmt.Sprintf(`{"result": [%d, %d]}`, limit, limit); strings.TrimSpace(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	count := map[string]int{}
	for range crowd {
		count[words(log.next(t))]++
	}
	if count["connect allow"] != limit || count["malformed deny too_many_connections"] != crowd-limit {
		t.Errorf("%v", count)
	}
	waitFor(t, func() bool { return runtime.NumGoroutine() <= goroutines+5 })
}

// TestSlowloris: the proxy cuts connections with an endless head or ClientHello, and serves other
// connections meanwhile.
func TestSlowloris(t *testing.T) {
	w := newWorld(t)
	p, log := w.startProxy(proxy.Config{Limits: proxy.EgressLimits{HeaderTime: time.Second, HelloTime: time.Second}})
	s := newSandbox(t, p, false)
	got := s.ask(ask{Code: helloCode(t) + `
begun = time.monotonic()
heads, tunnels = [], []
for _ in range(30):
    s = socket.create_connection(PROXY, TIMEOUT)
    s.sendall(b'GET http://allowed.test/ HTTP/1.1\r\n')
    heads.append(s)
for _ in range(30):
    s = socket.create_connection(PROXY, TIMEOUT)
    s.sendall(b'CONNECT allowed.test:443 HTTP/1.1\r\nHost: x\r\n\r\n')
    s.recv(1000)
    tunnels.append(s)
open_, served, tick = set(heads + tunnels), 0, 0
while open_ and time.monotonic() - begun < 60:
    for s in list(open_):
        try:
            if s in heads: s.sendall(b'X-A: b\r\n')
            else: s.sendall(hello[tick:tick + 1])
        except OSError:
            open_.discard(s)
    tick += 1
    if not served:
        s = socket.create_connection(PROXY, TIMEOUT)
        s.sendall(b'GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
        served = b'HIT' in s.recv(1000)
    time.sleep(0.1)
result = [len(open_), served]`})
	if !strings.Contains(got, "[0, true]") {
		t.Errorf("%s", got)
	}
	count := map[string]int{}
	for range 61 {
		count[words(log.next(t))]++
	}
	if count["malformed deny header_timeout"] != 30 || count["http allow"] != 1 || count["connect deny hello_timeout"] != 30 {
		t.Errorf("%v", count)
	}
}

// TestLongLived keeps a tunnel open until the sandbox ends, while other tunnels open and close.
func TestLongLived(t *testing.T) {
	w := newWorld(t)
	w.raw(echo)
	p, log := w.startProxy(proxy.Config{})
	s := newSandbox(t, p, false)
	got := s.ask(ask{Code: helloCode(t) + `
long, _ = tunnel()
for i in range(100):
    s, _ = tunnel()
    s.sendall(b'x')
    assert s.recv(1) == b'x'
    s.close()
    long.sendall(b'y')
    assert long.recv(1) == b'y'
import builtins
builtins.kept = long
result = 'kept'`})
	if !strings.Contains(got, "kept") {
		t.Fatal(got)
	}
	for range 100 {
		if e := log.next(t); words(e) != "connect allow" || e.Down != 1 {
			t.Errorf("%+v", e)
		}
	}
	report(t, p.Close())
	if e := log.next(t); words(e) != "connect allow shutdown" || e.Down != 100 {
		t.Errorf("%+v", e)
	}
	if got := s.ask(ask{Code: "import builtins\ntry: result = len(builtins.kept.recv(1))\nexcept ConnectionError: result = 0"}); !strings.Contains(got, `"result": 0`) {
		t.Errorf("the tunnel is open: %s", got)
	}
}
