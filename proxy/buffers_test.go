package proxy_test

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
)

// TestBuffers: of a flow whose receiver stops reading, the proxy and its sockets hold a bounded part. The
// sockets of the test have small buffers of their own.
func TestBuffers(t *testing.T) {
	const read = 4 << 20 // before the receiver stops, so that buffers that can grow have grown
	for _, tt := range []struct {
		name   string
		tunnel bool
		up     bool
	}{
		{name: "a download in a tunnel", tunnel: true}, {name: "an upload in a tunnel", tunnel: true, up: true},
		{name: "a download over HTTP"}, {name: "an upload over HTTP", up: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // most of the time nothing can be written
			stalls, stopped := make(chan int64, 1), make(chan struct{})
			flood := func(c net.Conn) {
				must.Report(t, c.(*net.TCPConn).SetWriteBuffer(32<<10))
				stalls <- floodUntil(c, stopped)
			}
			mute := func(c net.Conn) {
				must.Report(t, c.(*net.TCPConn).SetReadBuffer(32<<10))
				_, _ = io.CopyN(io.Discard, c, read)
				close(stopped)
				<-stalls
			}
			w := newWorld(t)
			host, head := flood, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
			if tt.up {
				host, head = mute, ""
			}
			var c *net.TCPConn
			if tt.tunnel {
				w.raw(host)
				p, _ := w.startProxy(proxy.Config{})
				c, _ = openTunnel(t, serveLocal(t, p))
			} else {
				w.crude(func(c net.Conn) {
					_, _ = io.WriteString(c, head)
					host(c)
				})
				p, _ := w.startProxy(proxy.Config{})
				c = dial(t, serveLocal(t, p))
				request := "GET http://crude.allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n"
				if tt.up {
					request = "PUT http://crude.allowed.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n"
				}
				_, _ = io.WriteString(c, request)
			}
			var held int64
			if tt.up {
				must.Report(t, c.SetWriteBuffer(32<<10))
				held = floodUntil(c, stopped) - read
				stalls <- held
			} else {
				if _, err := io.CopyN(io.Discard, c, read); err != nil {
					t.Fatal(err)
				}
				must.Report(t, c.SetReadBuffer(32<<10))
				close(stopped)
				held = <-stalls - read - unread(t, c)
			}
			if held > proxy.ConnectionBytes || held < 4096 {
				t.Errorf("%d bytes are held, of at most %d", held, proxy.ConnectionBytes)
			}
		})
	}
}

// unread returns how many bytes wait in a connection's own buffer for receiving.
func unread(t *testing.T, c *net.TCPConn) int64 {
	raw, err := c.SyscallConn()
	must.Do(t, err)
	n := 0
	must.Report(t, raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }))
	must.Report(t, err)
	return int64(n)
}

// floodUntil writes until a second after the receiver has stopped, and returns how much was written.
func floodUntil(c net.Conn, stopped <-chan struct{}) (n int64) {
	go func() {
		<-stopped
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	}()
	for chunk := make([]byte, 64<<10); ; {
		written, err := c.Write(chunk)
		n += int64(written)
		if err != nil {
			return n
		}
	}
}
