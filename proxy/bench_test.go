package proxy_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/elazarl/goproxy"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
)

// BenchmarkProxy compares the proxy with goproxy alone, which copies by splice and checks nothing: the same client and
// the same origin, all in this process. The two proxies take turns, so that what else runs slows both. It reports how many
// times as much time and processor time as goproxy alone the proxy takes in the median turn.
func BenchmarkProxy(b *testing.B) {
	origin := benchOrigin(b)
	hello := captureHello(b, helloFor("allowed.test"))
	rivals := []benchClient{{benchProxy(b, origin), hello}, {benchLibrary(b, origin), hello}}
	for _, parallel := range []int{1, 8} {
		for _, work := range []struct {
			name string
			do   func(benchClient) error
		}{
			{"down", func(c benchClient) error { return c.copy('d', 64<<20/parallel) }},
			{"up", func(c benchClient) error { return c.copy('u', 64<<20/parallel) }},
			{"connect", func(c benchClient) error { return c.copy('d', 1) }},
		} {
			b.Run(fmt.Sprintf("%s/parallel=%d", work.name, parallel), func(b *testing.B) {
				var took, processor [2][]float64
				for range b.N {
					for i, c := range rivals {
						begun, before := time.Now(), processorTime()
						var group errgroup.Group
						for range parallel {
							group.Go(func() error { return work.do(c) })
						}
						must.Do(b, group.Wait())
						took[i] = append(took[i], time.Since(begun).Seconds())
						processor[i] = append(processor[i], processorTime()-before)
					}
				}
				median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
				b.ReportMetric(median(took[0])/median(took[1]), "times-as-long")
				b.ReportMetric(median(processor[0])/median(processor[1]), "times-the-cpu")
			})
		}
	}
}

// processorTime returns the processor time of this process so far, in seconds.
func processorTime() float64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// benchProxy starts a proxy that reaches the origin, and returns the proxy's address.
func benchProxy(b *testing.B, origin net.Listener) string {
	w := newWorld(b)
	w.web[443] = origin
	cfg := limited(func(l *proxy.EgressLimits) { l.Requests, l.Up, l.Down = 1<<40, 1<<50, 1<<50 })
	cfg.Log, cfg.Allowed.Domains = proxy.NewLog(io.Discard), domains(b, "allowed.test")
	p, err := proxy.New(proxy.WithHooks(cfg, w.hooks()))
	must.Do(b, err)
	return serveLocal(b, p)
}

// benchLibrary starts goproxy, without limits and checks.
func benchLibrary(b *testing.B, origin net.Listener) string {
	lib := goproxy.NewProxyHttpServer()
	lib.Logger, lib.ConnectDial = log.New(io.Discard, "", 0), nil
	lib.Tr = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", origin.Addr().String())
	}}
	l := listenLocal(b)
	go func() { _ = http.Serve(l, lib) }()
	return l.Addr().String()
}

// benchOrigin serves connections as the bytes after the ClientHello say: d sends n bytes, u receives n bytes and then one
// byte acknowledges them.
func benchOrigin(b *testing.B) net.Listener {
	l := listenLocal(b)
	(&world{t: b}).each(l, func(c net.Conn) {
		var head [5]byte
		var what [9]byte
		_, _ = io.ReadFull(c, head[:])
		_, _ = io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(head[3:])))
		if _, err := io.ReadFull(c, what[:]); err != nil {
			return
		}
		if n := int64(binary.BigEndian.Uint64(what[1:])); what[0] == 'd' {
			_ = transfer(c, endless{}, n)
		} else if transfer(io.Discard, c, n) == nil {
			_, _ = c.Write([]byte("k"))
		}
	})
	return l
}

// transfer copies n bytes without splice.
func transfer(to io.Writer, from io.Reader, n int64) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, io.LimitReader(from, n), make([]byte, 256<<10))
	return err
}

type benchClient struct {
	address string
	hello   []byte
}

// copy opens a tunnel, and moves n bytes down or up.
func (c benchClient) copy(what byte, n int) error {
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n")
	answer := make([]byte, 4096)
	if size, err := conn.Read(answer); err != nil || string(answer[9:12]) != "200" { // both answer in one packet
		return fmt.Errorf("%w: %q", err, answer[:size])
	}
	_, err = conn.Write(binary.BigEndian.AppendUint64(append(slices.Clone(c.hello), what), uint64(n)))
	if err == nil && what == 'd' {
		return transfer(io.Discard, conn, int64(n))
	}
	if err == nil {
		err = transfer(conn, endless{}, int64(n))
	}
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
	}
	return err
}
