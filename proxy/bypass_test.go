package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/securebench/sbench/proxy"
)

// A row is one attempt to get out of a sandbox.
type row struct {
	name string
	ask  ask
	// log has "kind verdict reason" of each entry of the attempt.
	log []string
	// answer is a part of the client's answer. If the proxy refuses before a tunnel is open, the answer
	// must also have the reason.
	answer string
	// reached are the addresses that were connected to.
	reached []string
	// address is the refused address in the log; "" is not checked.
	address string
}

// quiet reports whether the proxy refuses for the reason before it looks up any name.
func quiet(reason string) bool {
	return !slices.Contains([]string{"address_not_allowed", "not_tls", "sni_missing", "sni_mismatch", "ech", "bad_hello", "hello_timeout", "resolve_failed", "dial_failed", "upstream_failed"}, reason)
}

// inTunnel reports whether the reason closes an open tunnel.
func inTunnel(reason string) bool {
	return slices.Contains([]string{"not_tls", "sni_missing", "sni_mismatch", "ech", "bad_hello", "hello_timeout"}, reason)
}

// run makes the attempt inside s and checks its results.
func (r row) run(t *testing.T, w *world, s *sandbox, log *book) {
	w.takeReached()
	s.t = t
	got := s.ask(r.ask)
	for _, want := range r.log {
		e := log.next(t)
		if words(e) != want {
			t.Errorf("log: %q, want %q (%+v); the client got %s", words(e), want, e, got)
		}
		r.checkEntry(t, e, got)
	}
	log.none(t)
	reached, names := w.takeReached()
	if strings.HasPrefix(r.log[0], "http ") { // one connection per allowed request
		r.reached = nil
		for _, l := range r.log {
			if !strings.Contains(l, " deny ") {
				r.reached = append(r.reached, public+":80")
			}
		}
	}
	if !slices.Equal(reached, r.reached) {
		t.Errorf("reached %v, want %v", reached, r.reached)
	}
	if last := r.log[len(r.log)-1]; len(r.log) == 1 && strings.Contains(last, " deny ") && len(names) > 0 && quiet(reasonOf(last)) {
		t.Errorf("asked for %v, for a request that was denied", names)
	}
	if !strings.Contains(got, r.answer) {
		t.Errorf("the client got %s, want %s in it", got, r.answer)
	}
	for _, leak := range []string{"dial tcp", "lookup ", "connection refused", "no such host", "net/http", "127.0.0.1:"} {
		if strings.Contains(got, leak) {
			t.Errorf("the answer says too much (%q): %s", leak, got)
		}
	}
}

func reasonOf(log string) string {
	parts := strings.Fields(log)
	return parts[len(parts)-1]
}

func (r row) checkEntry(t *testing.T, e proxy.Entry, got string) {
	t.Helper()
	if e.Kind == proxy.KindTransparent && e.Reason != "host_mismatch" && any(e.Port) != r.ask.To[1] {
		t.Errorf("port %d", e.Port)
	}
	if e.Verdict != proxy.Deny {
		return
	}
	if e.Up != 0 || e.Down != 0 {
		t.Errorf("denied, but %d bytes out and %d in", e.Up, e.Down)
	}
	if r.address != "" && e.Address != r.address {
		t.Errorf("refused %q, want %q", e.Address, r.address)
	}
	if _, known := proxy.Reasons()[e.Reason]; !known {
		t.Errorf("reason %q is not in the list", e.Reason)
	}
	if !inTunnel(e.Reason) && e.Kind != proxy.KindTransparent && e.Kind != proxy.KindDNS && !strings.Contains(got, fmt.Sprintf("%q: %q", "egress", e.Reason)) {
		t.Errorf("the client was not told %q: %s", e.Reason, got)
	}
}

const canaryAddress = "93.184.216.35"

// TestBypass makes the attempts of the tables, all from inside one sandbox.
func TestBypass(t *testing.T) {
	w := newWorld(t)
	w.forget = true // so that a name can change its address
	canary := newCanary(w)
	addresses := addressRows(w)
	p, log := w.startProxy(proxy.Config{Task: "bypass", Attempt: 1})
	s := newSandbox(t, p, false)
	for _, group := range []struct {
		name string
		rows []row
	}{
		{"name", nameRows()}, {"authority", authorityRows()}, {"address", addresses},
		{"tls", tlsRows(t)}, {"http", httpRows()},
	} {
		for _, r := range group.rows {
			t.Run(group.name+"/"+r.name, func(t *testing.T) {
				r.run(t, w, s, log)
				if n := canary.Swap(0); n != 0 {
					t.Errorf("%d bytes reached the canary", n)
				}
			})
		}
	}
	s.t = t
}

// newCanary counts the bytes that reach canary.allowed.test, on port 80 or 443.
func newCanary(w *world) *atomic.Int64 {
	var count atomic.Int64
	l := listenLocal(w.t)
	w.each(l, func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		count.Add(n)
	})
	w.lead("canary.allowed.test", canaryAddress)
	for _, port := range []string{"80", "443"} {
		w.stand(canaryAddress+":"+port, l)
	}
	return &count
}

// connect asks for a tunnel and then, in it, for TLS with the name. The Host header
// differs from the target, so that no check of Host hides what the target does.
func connect(target string, tls *askTLS) ask {
	return ask{Send: []string{"CONNECT " + target + " HTTP/1.1\r\nHost: host.test\r\n\r\n"}, Responses: 1, TLS: tls}
}

func withSNI(name string) *askTLS { return &askTLS{SNI: &name, Host: name} }

// bytesOf returns a text with one character per byte, as the client expects it.
func bytesOf(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

func nameRows() []row {
	hit := []string{public + ":443"}
	allowed := []string{"connect allow"}
	rows := []row{
		{name: "the host itself", ask: connect("allowed.test:443", withSNI("allowed.test")), log: allowed, reached: hit, answer: "HIT host=allowed.test sni=allowed.test"},
		{name: "in capitals", ask: connect("ALLOWED.Test:443", withSNI("allowed.test")), log: allowed, reached: hit, answer: "HIT"},
		{name: "with a dot at the end", ask: connect("allowed.test.:443", withSNI("allowed.test")), log: allowed, reached: hit, answer: "HIT"},
		{name: "a subdomain", ask: connect("a.b.allowed.test:443", withSNI("a.b.allowed.test")), log: allowed, reached: hit, answer: "HIT"},
		{name: "an underscore", ask: connect("_x.allowed.test:443", withSNI("_x.allowed.test")), log: allowed, reached: hit, answer: "HIT"},
	}
	for name, host := range map[string]string{
		"another host":                  "evil.test",
		"the name as a suffix":          "notallowed.test",
		"the name behind a hyphen":      "evil-allowed.test",
		"the name as a prefix":          "allowed.test.evil.test",
		"the suffix of a rule":          "xwild.test",
		"the parent of a rule":          "wild.test",
		"a suffix of a rule's label":    "xsub.wild.test",
		"the top-level domain":          "test",
		"localhost":                     "localhost",
		"localhost below":               "x.localhost",
		"the proxy by name":             "self.test",
		"a cloud's metadata by name":    "metadata.google.internal",
		"a name with punycode":          "xn--llowed-9ta.test",
		"a name of one label":           "allowed",
		"the name, hex-like top level":  "allowed.test.0xzz",
		"the name with a hyphen before": "-allowed.test",
	} {
		rows = append(rows, row{name: name, ask: connect(host+":443", nil), log: []string{"connect deny host_not_allowed"}, answer: `add \"` + host + `\" to harness.config.allowed_domains`})
	}
	for _, host := range []string{
		"93.184.216.34", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "[::]", "[fe80::1%25lo]",
		"127.0.0.1.", "0x7f.1", "0X7F.0.0.1", "1.2.3.08", "allowed.test.1", "[64:ff9b::a00:1]", "169.254.169.254",
	} {
		rows = append(rows, row{name: "address " + host, ask: connect(host+":443", nil), log: []string{"connect deny ip_literal"}})
	}
	for name, host := range map[string]string{
		"fullwidth letters": "\uff41llowed.test", "ideographic full stop": "allowed\u3002test", "other script": "\u0430llowed.test",
		"two dots at the end": "allowed.test..", "two dots": "allowed..test", "a dot before": ".allowed.test", "an octet": "\xffallowed.test",
		"a long label": strings.Repeat("a", 64) + ".allowed.test", "a long name": strings.Repeat("a.", 130) + "allowed.test",
	} {
		rows = append(rows, row{name: name, ask: connect(bytesOf(host)+":443", nil), log: []string{"connect deny bad_name"}})
	}
	slices.SortStableFunc(rows[5:], func(a, b row) int { return strings.Compare(a.name, b.name) })
	return rows
}

func authorityRows() []row {
	rows := []row{
		{name: "port 22", ask: connect("allowed.test:22", nil), log: []string{"connect deny port_not_allowed"}},
		{name: "port 8080", ask: connect("allowed.test:8080", nil), log: []string{"connect deny port_not_allowed"}},
		{name: "own port by address", ask: connect("127.0.0.1:3128", nil), log: []string{"connect deny ip_literal"}},
		{name: "own port by name", ask: connect("self.allowed.test:3128", nil), log: []string{"connect deny port_not_allowed"}},
		{name: "no host", ask: connect(":443", nil), log: []string{"connect deny bad_name"}},
		{name: "Host decides nothing", ask: ask{Send: []string{"CONNECT allowed.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n"}, Responses: 1, TLS: withSNI("allowed.test")},
			log: []string{"connect allow"}, reached: []string{public + ":443"}, answer: "HIT host=allowed.test"},
		{name: "Host allows nothing", ask: ask{Send: []string{"CONNECT evil.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n"}, Responses: 1},
			log: []string{"connect deny host_not_allowed"}},
		{name: "a slash, and Host", ask: ask{Send: []string{"CONNECT / HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n"}, Responses: 1},
			log: []string{"connect deny bad_authority"}},
		{name: "with a body", ask: ask{Send: []string{"CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 5\r\n\r\nhello"}, Responses: 1},
			log: []string{"connect deny malformed_request"}},
		{name: "with chunks", ask: ask{Send: []string{"CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}, Responses: 1},
			log: []string{"connect deny malformed_request"}},
		{name: "an upstream proxy's header", ask: ask{Send: []string{"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\nX-Upstream-Https-Proxy: allowed.test:443\r\n\r\n"}, Responses: 1},
			log: []string{"connect deny host_not_allowed"}},
		{name: "a request after the denial", ask: ask{Send: []string{"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\nGET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"}},
			log: []string{"connect deny host_not_allowed"}, answer: "host_not_allowed"},
	}
	rows[len(rows)-1].ask.Responses = 2
	for _, port := range []string{"0443", "65979", "70000", "0", "", "+443", "-443", "4_43", "443a"} {
		reason := "connect deny bad_port"
		if strings.ContainsAny(port, "+-_a") {
			reason = "malformed deny malformed_request" // no URL has such a port
		}
		rows = append(rows, row{name: "port " + port, ask: connect("allowed.test:"+port, nil), log: []string{reason}})
	}
	rows = append(rows, row{name: "no port", ask: connect("allowed.test", nil), log: []string{"connect deny bad_port"}})
	for _, r := range [][2]string{
		{"allowed.test:443@evil.test:443", "connect deny bad_authority"}, {"allowed.test@evil.test:443", "connect deny bad_authority"},
		{"evil.test/.allowed.test:443", "connect deny bad_authority"}, {"evil.test#.allowed.test:443", "malformed deny malformed_request"},
		{"evil.test?.allowed.test:443", "connect deny bad_authority"}, {"http://allowed.test:443", "connect deny bad_authority"},
		{"allowed.test:443:22", "malformed deny malformed_request"}, {"allowed.test:443/", "connect deny bad_authority"},
		{"evil.test\\.allowed.test:443", "malformed deny malformed_request"}, {"allowed.test\\@evil.test:443", "malformed deny malformed_request"},
		{"allowed.test\x00.evil.test:443", "malformed deny malformed_request"}, {"evil.test%00.allowed.test:443", "malformed deny malformed_request"},
		{"evil.test\r\nX: .allowed.test:443", "malformed deny malformed_request"}, {"evil.test .allowed.test:443", "malformed deny malformed_request"},
		{"*", "connect deny bad_name"}, {"//allowed.test:443", "connect deny bad_authority"}, {"[::1", "malformed deny malformed_request"},
	} {
		rows = append(rows, row{name: fmt.Sprintf("%q", r[0]), ask: connect(r[0], nil), log: []string{r[1]}})
	}
	return rows
}

// addressRows gives the world allowed names that lead to addresses, most of them
// forbidden.
func addressRows(w *world) []row {
	w.own = []netip.Addr{netip.MustParseAddr("93.184.216.40"), netip.MustParseAddr("2606:2800::40"), netip.MustParseAddr("10.0.0.9")}
	var rows []row
	for i, address := range []string{
		"10.0.0.9", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.0.1",
		"100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "192.0.2.2", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "192.88.99.1",
		"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "93.184.216.40",
		"::1", "::", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:10.0.0.1", "::127.0.0.2",
		"64:ff9b::a00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:a00:1::1", "3fff::1", "5f00::1", "2606:2800::40",
	} {
		name := fmt.Sprintf("a%d.allowed.test", i)
		w.lead(name, address)
		logged := netip.MustParseAddr(address)
		if logged.Is4In6() {
			logged = logged.Unmap() // Go's resolver does so, and connects over IPv4
		}
		denied := row{name: address, ask: connect(name+":443", nil), log: []string{"connect deny address_not_allowed"}, address: logged.String()}
		rows = append(rows, denied)
		name = fmt.Sprintf("a%d.mirror.test", i)
		w.lead(name, address)
		mirror := row{name: "mirror at " + address, ask: connect(name+":443", withSNI(name)), log: []string{"connect allow"}, reached: []string{logged.String() + ":443"}, answer: "HIT"}
		if !logged.Is4() || !logged.IsPrivate() || i == 0 { // the first is the host's own
			mirror.log, mirror.reached, mirror.answer, mirror.address = denied.log, nil, "", denied.address
		}
		rows = append(rows, mirror)
	}
	w.lead("http.allowed.test", "169.254.169.254")
	w.lead("mixed.allowed.test", "10.0.0.1|"+public)
	w.lead("rebind.allowed.test", public, public, "127.0.0.1")
	w.lead("six.allowed.test", "2606:2800::1")
	w.lead("closed.allowed.test", "93.184.216.38")
	closed := listenLocal(w.t)
	_ = closed.Close()
	w.stand("93.184.216.38:443", closed)
	get := ask{Send: []string{"GET http://http.allowed.test/latest/meta-data HTTP/1.1\r\nHost: http.allowed.test\r\n\r\n"}, Responses: 1}
	hit := []string{public + ":443"}
	rebind := connect("rebind.allowed.test:443", withSNI("rebind.allowed.test"))
	return append(rows,
		row{name: "metadata by plain HTTP", ask: get, log: []string{"http deny address_not_allowed"}, address: "169.254.169.254"},
		row{name: "private and public at once", ask: connect("mixed.allowed.test:443", withSNI("mixed.allowed.test")), log: []string{"connect allow"}, reached: hit, answer: "HIT"},
		row{name: "global IPv6", ask: connect("six.allowed.test:443", withSNI("six.allowed.test")), log: []string{"connect allow"}, reached: []string{"[2606:2800::1]:443"}, answer: "HIT"},
		row{name: "rebinding, 1st", ask: rebind, log: []string{"connect allow"}, reached: hit, answer: "HIT"},
		row{name: "rebinding, 2nd", ask: rebind, log: []string{"connect allow"}, reached: hit, answer: "HIT"},
		row{name: "rebinding, 3rd", ask: rebind, log: []string{"connect deny address_not_allowed"}, address: "127.0.0.1"},
		row{name: "rebinding, 4th", ask: rebind, log: []string{"connect deny address_not_allowed"}, address: "127.0.0.1"},
		row{name: "a host that does not listen", ask: connect("closed.allowed.test:443", nil), log: []string{"connect error dial_failed"}, reached: []string{"93.184.216.38:443"}, answer: "502", address: "93.184.216.38:443"},
		row{name: "a name that does not exist", ask: connect("nowhere.allowed.test:443", nil), log: []string{"connect error resolve_failed"}, answer: "502"},
	)
}
