package proxy_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
)

// BenchmarkProxy compares the proxy with goproxy alone, which copies by splice and checks nothing: the same client and
// the same origin. They take turns, so that what else runs slows both. All tunnels begin with a ClientHello.
func BenchmarkProxy(b *testing.B) {
	origin := benchOrigin(b)
	hello := captureHello(b, helloFor("allowed.test"))
	var rivals []benchClient
	for _, name := range []string{"sbench", "library"} {
		rivals = append(rivals, benchClient{startRival(b, name, origin), origin, hello})
	}
	for _, parallel := range []int{1, 8} {
		b.Run(fmt.Sprintf("down/parallel=%d", parallel), func(b *testing.B) {
			turns(b, rivals, turnBytes, func(c benchClient) ([]time.Duration, error) { return nil, c.copy(parallel, 'd') })
		})
		b.Run(fmt.Sprintf("up/parallel=%d", parallel), func(b *testing.B) {
			turns(b, rivals, turnBytes, func(c benchClient) ([]time.Duration, error) { return nil, c.copy(parallel, 'u') })
		})
		b.Run(fmt.Sprintf("connect/parallel=%d", parallel), func(b *testing.B) {
			turns(b, rivals, 0, func(c benchClient) ([]time.Duration, error) { return c.connects(parallel) })
		})
	}
}

// What a rival does in a turn.
const (
	turnBytes = 64 << 20
	turnTimes = 50 // connects
)

// turns lets the rivals do the work in turns, and reports what each of them needs for it, and how many times what the last
// one needs the first one does. bytes is what a turn copies; if it is 0, the work says how long each of its parts took.
func turns(b *testing.B, rivals []benchClient, bytes int64, work func(benchClient) ([]time.Duration, error)) {
	figures := make([]map[string]float64, len(rivals))
	took, before, others := make([][]time.Duration, len(rivals)), make([]float64, len(rivals)), make([]float64, len(rivals))
	for i, c := range rivals {
		before[i] = c.processor(b)
	}
	for range b.N {
		for i, c := range rivals {
			begun, own := time.Now(), ownProcessor()
			each, err := work(c)
			must.Do(b, err)
			if bytes > 0 {
				each = append(each, time.Since(begun))
			}
			took[i] = append(took[i], each...)
			others[i] += ownProcessor() - own
		}
	}
	for i, c := range rivals {
		own, amount, unit := c.processor(b)-before[i], float64(b.N)*float64(bytes)/1e9, "/GB"
		if bytes == 0 {
			amount, unit = float64(len(took[i]))/1e6, "/M"
		}
		figures[i] = map[string]float64{"cpu-s" + unit: own / amount, "all-cpu-s" + unit: (own + others[i]) / amount}
		slices.Sort(took[i])
		for _, percent := range []int{50, 99} {
			figures[i][fmt.Sprintf("p%d-us", percent)] = took[i][len(took[i])*percent/100].Seconds() * 1e6
		}
		if bytes > 0 {
			figures[i]["GB/s"] = float64(bytes) / 1e3 / figures[i]["p50-us"]
		}
		for unit, n := range figures[i] {
			b.ReportMetric(n, c.name+"-"+unit)
		}
	}
	for unit, n := range figures[0] {
		b.ReportMetric(n/figures[len(figures)-1][unit], "ratio-"+unit)
	}
	b.ReportMetric(0, "ns/op")
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
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		return nil, err
	}
	first := append(slices.Clone(c.hello), what)
	first = binary.BigEndian.AppendUint64(first, uint64(n))
	if _, err := io.WriteString(conn, "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n"); err != nil {
		return nil, err
	}
	answer := make([]byte, 4096)
	size, err := conn.Read(answer) // all of them answer in one packet
	if err != nil || size < 12 || string(answer[9:12]) != "200" {
		return nil, fmt.Errorf("%s: %v: %q", c.name, err, answer[:size])
	}
	_, err = conn.Write(first)
	return conn, err
}

// copy moves the bytes of a turn through parallel tunnels.
func (c benchClient) copy(parallel int, what byte) error {
	share := int64(turnBytes / parallel)
	var group errgroup.Group
	for range parallel {
		group.Go(func() error {
			conn, err := c.open(what, share)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			buf := make([]byte, 256<<10)
			if what == 'd' {
				_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(conn, share), buf)
			} else if _, err = io.CopyBuffer(struct{ io.Writer }{conn}, io.LimitReader(endless{}, share), buf); err == nil {
				_, err = io.ReadFull(conn, buf[:1])
			}
			return err
		})
	}
	return group.Wait()
}

// ownProcessor returns the processor time of the client and the origin so far, in seconds. On loopback, the
// kernel does one process's work in another's time.
func ownProcessor() float64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// connects opens tunnels, echoes one byte in each and closes them. It returns how long each took.
func (c benchClient) connects(parallel int) ([]time.Duration, error) {
	took := make([]time.Duration, turnTimes)
	var next atomic.Int64
	var group errgroup.Group
	for range parallel {
		group.Go(func() error {
			for i := next.Add(1) - 1; i < turnTimes; i = next.Add(1) - 1 {
				start := time.Now()
				if err := c.once(); err != nil {
					return err
				}
				took[i] = time.Since(start)
			}
			return nil
		})
	}
	return took, group.Wait()
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
