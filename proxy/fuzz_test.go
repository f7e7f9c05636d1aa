package proxy_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
)

// FuzzDecide: an allowed host is the name or below it, also for other parsers.
func FuzzDecide(f *testing.F) {
	for _, seed := range []string{"allowed.test", "A.allowed.test.", "allowed.test\x00.evil.test", "127.1", "[::1]", "0x7f.1", "evil.test", "xallowed.test", "test", "allowed.test.evil.test", "allowed.test"} {
		f.Add(seed, "443")
	}
	policy := proxy.Allowlist{Domains: domains(f, "allowed.test")}
	f.Fuzz(func(t *testing.T, host, port string) {
		d := policy.Decide(proxy.Request{Kind: proxy.KindConnect, Host: host, Port: port})
		if !d.Allowed {
			if d.Reason.Word == "" {
				t.Errorf("refused without a reason: %+v", d)
			}
			return
		}
		lower := strings.TrimSuffix(strings.ToLower(host), ".")
		if lower != d.Host || lower != "allowed.test" && !strings.HasSuffix(lower, ".allowed.test") || net.ParseIP(lower) != nil {
			t.Errorf("%q is allowed as %q", host, d.Host)
		}
		if port != "80" && port != "443" || d.Port != 80 && d.Port != 443 {
			t.Errorf("port %q is allowed", port)
		}
	})
}

// FuzzRequest: whatever the request's head, the proxy reaches only the allowed host, with the Host of the
// decision, and the connection ends.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"GET http://allowed.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "CONNECT allowed.test:443 HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"POST http://allowed.test/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET http://allowed.test@evil.test/ HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT allowed.test:443@evil.test:443 HTTP/1.1\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET HTTP://ALLOWED.TEST.:80/ HTTP/1.0\r\nUpgrade: x\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	w := newWorld(f)
	var mu sync.Mutex
	var hosts []string
	l := listenLocal(f)
	w.web[80], w.web[443] = l, l
	w.each(l, func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		mu.Lock()
		hosts = append(hosts, r.Host)
		mu.Unlock()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	})
	cfg := limited(func(l *proxy.EgressLimits) {
		l.HeaderTime, l.HelloTime, l.Idle, l.Lifetime = time.Second, time.Second, time.Second, 2*time.Second
		l.Requests, l.Up, l.Down = 1<<40, 1<<50, 1<<50
	})
	cfg.Allowed.Domains = domains(f, "allowed.test")
	p, log := w.startProxy(cfg)
	address := serveLocal(f, p)
	go func() {
		for range log.entries { // endlessly, as fuzzing has no limit
		}
	}()
	f.Fuzz(func(t *testing.T, head []byte) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Skip(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = c.Write(head)
		_ = c.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(c)
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Errorf("the connection is open after %q", got)
		}
		for _, leak := range [][]byte{[]byte("dial tcp"), []byte("lookup "), []byte("no such host")} {
			if bytes.Contains(got, leak) {
				t.Errorf("the answer says too much: %q", got)
			}
		}
		_, names := w.takeReached()
		for _, name := range names {
			if name != "allowed.test" && !strings.HasSuffix(name, ".allowed.test") {
				t.Errorf("asked for %q", name)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for _, host := range hosts {
			if name := strings.TrimSuffix(host, ":443"); name != "allowed.test" && !strings.HasSuffix(name, ".allowed.test") {
				t.Errorf("a server was asked for %q", host)
			}
		}
		hosts = nil
	})
}

// TestDotInLabel: a name of one label with a dot inside is not a name of two labels.
func TestDotInLabel(t *testing.T) {
	w := newWorld(t)
	p, log := w.startProxy(proxy.Config{})
	label := "allowed.test"
	question := append([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, byte(len(label))}, label...)
	var m dnsmessage.Message
	if err := m.Unpack(p.AnswerDNS(append(question, 0, 0, 1, 0, 1))); err != nil || m.RCode != dnsmessage.RCodeFormatError {
		t.Errorf("%v, %+v", err, m)
	}
	if e := log.next(t); words(e) != "dns deny malformed_request" {
		t.Errorf("%+v", e)
	}
}

// FuzzDNS: an answer can be parsed, has the question's ID, and has addresses for
// allowed names only.
func FuzzDNS(f *testing.F) {
	for _, name := range []string{"allowed.test.", "a.allowed.test.", "evil.test.", "."} {
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: 1, RecursionDesired: true}, Questions: []dnsmessage.Question{
			{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
		b, err := m.Pack()
		must.Do(f, err)
		f.Add(b)
	}
	cfg := limited(func(l *proxy.EgressLimits) { l.Requests, l.Names = 1<<40, 100 })
	cfg.Log, cfg.Allowed.Domains = proxy.NewLog(io.Discard), domains(f, "allowed.test")
	p, err := proxy.New(cfg)
	must.Do(f, err)
	f.Cleanup(p.Close)
	f.Fuzz(func(t *testing.T, question []byte) {
		answer := p.AnswerDNS(question)
		if answer == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil || !m.Response || len(question) < 2 || m.ID != uint16(question[0])<<8|uint16(question[1]) {
			t.Fatalf("%v: %+v", err, m)
		}
		for _, a := range m.Answers {
			name := strings.ToLower(a.Header.Name.String())
			body, ok := a.Body.(*dnsmessage.AResource)
			if !ok || body.A[0] != 198 || body.A[1] != 18 || name != "allowed.test." && !strings.HasSuffix(name, ".allowed.test.") {
				t.Errorf("%s: %v", name, a.Body)
			}
		}
		if len(answer) > 2*len(question)+64 {
			t.Errorf("%d bytes answer %d", len(answer), len(question))
		}
	})
}
