package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/domain"
)

// public is the address of every name in the world without an address of its own.
const public = "93.184.216.34"

// A world stands for the network behind a proxy: a name server, and servers for every
// address that passes the proxy's check, all on loopback addresses of this host.
type world struct {
	t       testing.TB
	dns     net.PacketConn
	web     map[uint16]net.Listener // by port in the world
	special map[string]net.Listener // by "address:port" in the world
	own     []netip.Addr            // the addresses that count as the host's own
	real    bool                    // ask the kernel for the host's addresses instead
	forget  bool                    // the proxy keeps no addresses

	mu      sync.Mutex
	zone    map[string][]string // addresses by name; see lead
	asked   map[string]int
	reached []string
	remote  map[int]netip.AddrPort // addresses in the world, by the local port of the connection
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, web: map[uint16]net.Listener{}, special: map[string]net.Listener{}, zone: map[string][]string{}, asked: map[string]int{}, remote: map[int]netip.AddrPort{}}
	var err error
	if w.dns, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.dns.Close() })
	go w.serveNames()
	for _, port := range []uint16{80, 443, 22, 8080} {
		w.web[port] = listenLocal(t)
	}
	w.serve(w.web[80]).Start()
	w.serve(w.web[443]).StartTLS()
	for _, port := range []uint16{22, 8080} {
		w.each(w.web[port], func(c net.Conn) { _, _ = io.WriteString(c, "HIT\r\n") })
	}
	return w
}

func listenLocal(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must.Do(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// each calls f with each connection, and closes it afterwards.
func (w *world) each(l net.Listener, f func(net.Conn)) {
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				f(c)
			}()
		}
	}()
}

// serve returns a server that is yet to be started. It answers most requests with what reached it.
func (w *world) serve(l net.Listener) *httptest.Server {
	server := &httptest.Server{Listener: l, Config: &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		sni := ""
		if r.TLS != nil {
			sni = r.TLS.ServerName
		}
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(rw, r, "http://169.254.169.254/latest", http.StatusFound)
		case "/switch":
			rw.Header().Set("Connection", "upgrade")
			rw.Header().Set("Upgrade", "other")
			rw.WriteHeader(http.StatusSwitchingProtocols)
		case "/pretend": // a handshake that the status contradicts
			rw.Header().Set("Connection", "Upgrade")
			rw.Header().Set("Upgrade", "websocket")
			_, _ = io.WriteString(rw, "no websocket")
		case "/headers":
			_, _ = fmt.Fprintln(rw, r.Header)
		default:
			n, _ := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprintf(rw, "HIT host=%s sni=%s body=%d\n", r.Host, sni, n)
		}
	})}}
	w.t.Cleanup(server.Close)
	return server
}

// serveNames runs the name server.
func (w *world) serveNames() {
	buf := make([]byte, 1500)
	for {
		n, from, err := w.dns.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		m.Response, m.Additionals = true, nil
		for _, address := range w.lookup(strings.TrimSuffix(strings.ToLower(q.Name.String()), "."), q.Type) {
			h := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}
			if a := netip.MustParseAddr(address); a.Is4() && q.Type == dnsmessage.TypeA {
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
			} else if a.Is6() && q.Type == dnsmessage.TypeAAAA {
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
			}
		}
		if strings.HasPrefix(q.Name.String(), "nowhere.") {
			m.RCode = dnsmessage.RCodeNameError
		}
		if b, err := m.Pack(); err == nil {
			_, _ = w.dns.WriteTo(b, from)
		}
	}
}

func (w *world) lookup(name string, kind dnsmessage.Type) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[name]++
	answers, ok := w.zone[name]
	if !ok {
		return []string{public}
	}
	turn := 0
	if kind == dnsmessage.TypeA {
		w.asked["turn "+name]++
		turn = w.asked["turn "+name] - 1
	}
	return strings.Split(answers[min(turn, len(answers)-1)], "|")
}

// lead gives a name its answers. The name server returns them in turn, and repeats the last. "a|b" is
// one answer with two addresses.
func (w *world) lead(name string, addresses ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.zone[name] = addresses
}

// stand makes the listener stand for "address:port".
func (w *world) stand(address string, l net.Listener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.special[address] = l
}

// takeReached returns the addresses to which somebody connected, and the names that somebody looked up,
// since the last call.
func (w *world) takeReached() (reached []string, names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.asked {
		if !strings.HasPrefix(name, "turn ") {
			names = append(names, name)
			delete(w.asked, name)
		}
	}
	slices.Sort(names)
	reached, w.reached = w.reached, nil
	return reached, names
}

// hooks connects a socket to one of the world's servers after its address has passed the check.
// connect(2) to the address then fails with EISCONN, which counts as success.
func (w *world) hooks() proxy.Hooks {
	local := func(a netip.Addr) (bool, error) { return slices.Contains(w.own, a), nil }
	if w.real {
		local = nil
	}
	return proxy.Hooks{
		Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", w.dns.LocalAddr().String())
		}},
		Local: local, Forget: w.forget,
		Control: func(network, address string, c syscall.RawConn) error {
			to := netip.MustParseAddrPort(address)
			w.mu.Lock()
			l := w.special[address]
			if l == nil {
				l = w.web[to.Port()]
			}
			w.reached = append(w.reached, address)
			w.mu.Unlock()
			if l == nil {
				return syscall.ECONNREFUSED
			}
			port := l.Addr().(*net.TCPAddr).Port
			var sockaddr unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}
			if network == "tcp6" {
				sockaddr = &unix.SockaddrInet6{Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16(), Port: port}
			}
			var err error
			if controlErr := c.Control(func(fd uintptr) {
				if err = unix.Connect(int(fd), sockaddr); err == nil || err == unix.EINPROGRESS {
					w.connected(int(fd), to)
					err = nil
				}
			}); controlErr != nil {
				return controlErr
			}
			return err
		},
		Remote: func(c net.Conn) netip.AddrPort {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.remote[c.LocalAddr().(*net.TCPAddr).Port]
		},
	}
}

// connected keeps the address in the world to which a socket connects.
func (w *world) connected(fd int, to netip.AddrPort) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch local, _ := unix.Getsockname(fd); local := local.(type) {
	case *unix.SockaddrInet4:
		w.remote[local.Port] = to
	case *unix.SockaddrInet6:
		w.remote[local.Port] = to
	}
}

// A book is the log of a proxy under test.
type book struct{ entries chan proxy.Entry }

func newBook() *book { return &book{make(chan proxy.Entry, 100_000)} }

// Write implements io.Writer.
func (b *book) Write(line []byte) (int, error) {
	var e proxy.Entry
	err := json.Unmarshal(line, &e)
	b.entries <- e
	return len(line), err
}

// next waits for the next entry.
func (b *book) next(t testing.TB) proxy.Entry {
	t.Helper()
	select {
	case e := <-b.entries:
		return e
	case <-time.After(time.Minute):
		t.Fatal("no entry in the log")
		return proxy.Entry{}
	}
}

// none checks that there is no further entry.
func (b *book) none(t testing.TB) {
	t.Helper()
	select {
	case e := <-b.entries:
		t.Errorf("one entry too many: %+v", e)
	default:
	}
}

// words returns the entry's kind, verdict and reason.
func words(e proxy.Entry) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Kind, e.Verdict, e.Reason))
}

func domains(t testing.TB, names ...string) []domain.Domain {
	t.Helper()
	d, err := domain.ParseAll(names)
	must.Do(t, err)
	return d
}

// limited returns a configuration with a changed limit.
func limited(change func(*proxy.EgressLimits)) proxy.Config {
	limits := proxy.DefaultLimits()
	change(&limits)
	return proxy.Config{Limits: limits}
}

// startProxy starts a proxy that reaches the world.
func (w *world) startProxy(cfg proxy.Config) (*proxy.Proxy, *book) {
	w.t.Helper()
	log := newBook()
	cfg.Log = proxy.NewLog(log)
	if cfg.Allowed.Domains == nil {
		cfg.Allowed.Domains = domains(w.t, "allowed.test", "sub.wild.test")
	}
	cfg.Allowed.Mirrors = domains(w.t, "mirror.test")
	p, err := proxy.New(proxy.WithHooks(cfg, w.hooks()))
	must.Do(w.t, err)
	w.t.Cleanup(p.Close)
	return p, log
}
