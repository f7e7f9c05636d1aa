package proxy_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
)

// benchChunk is the number of bytes that one operation of the copying benchmarks moves.
const benchChunk = 8 << 20

// BenchmarkProxy compares the proxy with goproxy alone (which copies by splice and checks nothing), and with no
// proxy: the same client, the same origin, one after the other. All tunnels begin with a ClientHello.
func BenchmarkProxy(b *testing.B) {
	origin := benchOrigin(b)
	hello := captureHello(b, helloFor("allowed.test"))
	for _, name := range []string{"direct", "sbench", "library"} {
		r := startRival(b, name, origin)
		client := benchClient{r, origin, hello}
		for _, parallel := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/down/parallel=%d", name, parallel), func(b *testing.B) { client.copy(b, parallel, 'd') })
			b.Run(fmt.Sprintf("%s/up/parallel=%d", name, parallel), func(b *testing.B) { client.copy(b, parallel, 'u') })
			b.Run(fmt.Sprintf("%s/connect/parallel=%d", name, parallel), func(b *testing.B) { client.connects(b, parallel) })
		}
		b.Run(name+"/echo", client.echoes)
		if r.pid != 0 {
			b.Run(name+"/idle", func(b *testing.B) { // of a process that has not served anything yet
				benchClient{startRival(b, name, origin), origin, hello}.idle(b)
			})
		}
	}
}

// benchOrigin serves connections as the first byte after the ClientHello says: e
// echoes, d sends n bytes, and u receives n bytes and then acknowledges them.
func benchOrigin(b *testing.B) string {
	l := listenLocal(b)
	w := &world{t: b}
	w.each(l, func(c net.Conn) {
		var head [5]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(head[3:])))
		var what [9]byte
		if _, err := io.ReadFull(c, what[:]); err != nil {
			return
		}
		n := int64(binary.BigEndian.Uint64(what[1:]))
		switch what[0] {
		case 'e':
			_, _ = io.Copy(c, c)
		case 'd':
			_, _ = io.CopyBuffer(struct{ io.Writer }{c}, io.LimitReader(endless{}, n), make([]byte, 256<<10))
		case 'u':
			_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(c, n), make([]byte, 256<<10))
			_, _ = c.Write([]byte("k"))
		}
	})
	return l.Addr().String()
}

type benchClient struct {
	rival
	origin string
	hello  []byte
}

// open opens a tunnel and tells the origin what to do.
func (c benchClient) open(what byte, n int64) (net.Conn, error) {
	address := c.address
	if address == "" {
		address = c.origin
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	first := append(slices.Clone(c.hello), what)
	first = binary.BigEndian.AppendUint64(first, uint64(n))
	if c.address != "" {
		if _, err := io.WriteString(conn, "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n"); err != nil {
			return nil, err
		}
		answer := make([]byte, 4096)
		n, err := conn.Read(answer) // all of them answer in one packet
		if err != nil || n < 12 || string(answer[9:12]) != "200" {
			return nil, fmt.Errorf("%s: %v: %q", c.name, err, answer[:n])
		}
	}
	_, err = conn.Write(first)
	return conn, err
}

// copy moves b.N chunks in all through parallel tunnels.
func (c benchClient) copy(b *testing.B, parallel int, what byte) {
	b.SetBytes(benchChunk)
	share := int64(b.N) * benchChunk / int64(parallel)
	before, all := c.processor(b), ownProcessor()
	var wg sync.WaitGroup
	b.ResetTimer()
	for range parallel {
		wg.Go(func() {
			conn, err := c.open(what, share)
			if err != nil {
				b.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			buf := make([]byte, 256<<10)
			if what == 'd' {
				_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(conn, share), buf)
			} else if _, err = io.CopyBuffer(struct{ io.Writer }{conn}, io.LimitReader(endless{}, share), buf); err == nil {
				_, err = io.ReadFull(conn, buf[:1])
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	own, gb := c.processor(b)-before, float64(b.N)*benchChunk/1e9
	b.ReportMetric(own/gb, "cpu-s/GB")
	b.ReportMetric((own+ownProcessor()-all)/gb, "all-cpu-s/GB")
}

// ownProcessor returns the processor time of the client and the origin so far, in seconds. On loopback, the
// kernel does one process's work in another's time.
func ownProcessor() float64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// connects opens tunnels, echoes one byte in each and closes them.
func (c benchClient) connects(b *testing.B, parallel int) {
	var next atomic.Int64
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	count := int64(b.N) * 10 // one operation is ten connects
	begun := time.Now()
	for range parallel {
		wg.Go(func() {
			for next.Add(1) <= count {
				start := time.Now()
				if err := c.once(); err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(start))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(len(took))/time.Since(begun).Seconds(), "connects/s")
	reportQuantiles(b, took)
}

func (c benchClient) once() error {
	conn, err := c.open('e', 0)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("x")); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

// echoes measures round trips of one byte in one tunnel.
func (c benchClient) echoes(b *testing.B) {
	conn, err := c.open('e', 0)
	must.Do(b, err)
	defer func() { _ = conn.Close() }()
	var took []time.Duration
	one := make([]byte, 1)
	for range b.N * 10 {
		start := time.Now()
		if _, err := conn.Write(one); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	reportQuantiles(b, took)
}

func reportQuantiles(b *testing.B, took []time.Duration) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	us := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Nanoseconds()) / 1e3 }
	b.ReportMetric(us(0.5), "p50-us")
	b.ReportMetric(us(0.99), "p99-us")
	b.ReportMetric(0, "ns/op")
}

// idle measures the memory of idle tunnels. It does not depend on b.N.
func (c benchClient) idle(b *testing.B) {
	const tunnels = 2000
	before := c.memory(b)
	var open []net.Conn
	for range tunnels {
		conn, err := c.open('e', 0)
		must.Do(b, err)
		if _, err := conn.Write([]byte("x")); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
		open = append(open, conn)
	}
	b.ReportMetric((c.memory(b)-before)/tunnels, "KiB/tunnel")
	b.ReportMetric(0, "ns/op")
	for _, conn := range open {
		_ = conn.Close()
	}
}
