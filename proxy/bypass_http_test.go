package proxy_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"net"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// captureHello returns the ClientHello of crypto/tls.
func captureHello(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		_ = tls.Client(theirs, config).Handshake()
		_ = theirs.Close()
	}()
	buf := make([]byte, 1<<15)
	n, err := ours.Read(buf)
	must.Do(t, err)
	_ = ours.Close()
	return bytes.Clone(buf[:n])
}

// echConfigList is an ECHConfigList (RFC 9849, 4) for a public name.
func echConfigList(t testing.TB, publicName string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	must.Do(t, err)
	vector := func(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }
	contents := []byte{7, 0, 0x20} // config id, DHKEM(X25519, HKDF-SHA256)
	contents = append(contents, vector(key.PublicKey().Bytes())...)
	contents = append(contents, vector([]byte{0, 1, 0, 1})...) // HKDF-SHA256, AES-128-GCM
	contents = append(contents, 0, byte(len(publicName)))
	contents = append(contents, publicName...)
	contents = append(contents, vector(nil)...)
	return vector(append([]byte{0xfe, 0x0d}, vector(contents)...))
}

func tlsRows(t *testing.T) []row {
	t.Helper()
	to := func(first []byte) ask {
		a := connect("canary.allowed.test:443", nil)
		a.Then = bytesOf(string(first))
		return a
	}
	canary := []string{canaryAddress + ":443"}
	hit := []string{public + ":443"}
	ech := captureHello(t, &tls.Config{ServerName: "evil.test", EncryptedClientHelloConfigList: echConfigList(t, "canary.allowed.test"), MinVersion: tls.VersionTLS13})
	cloudflare := captureHello(t, &tls.Config{ServerName: "evil.test", EncryptedClientHelloConfigList: echConfigList(t, "cloudflare-ech.com"), MinVersion: tls.VersionTLS13})
	evil := captureHello(t, &tls.Config{ServerName: "evil.test"})
	good := captureHello(t, &tls.Config{ServerName: "canary.allowed.test"})
	parent := captureHello(t, &tls.Config{ServerName: "allowed.test"})
	two := func(first, second []byte) []byte { return append(bytes.Clone(first), second...) }
	broken := bytes.Clone(good)
	for i := range broken[9+2+32:] { // all lengths
		broken[9+2+32+i] = 0xff
	}
	server := bytes.Clone(good)
	server[5] = 2 // a ServerHello
	early := connect("allowed.test:443", withSNI("allowed.test"))
	early.TLS.Early = true
	split := connect("allowed.test:443", withSNI("allowed.test"))
	split.TLS.Split = true
	rows := []row{
		{name: "ClientHello in single bytes", ask: split, log: []string{"connect allow"}, reached: hit, answer: "HIT host=allowed.test"},
		{name: "ClientHello with the CONNECT", ask: early, log: []string{"connect allow"}, reached: hit, answer: "HIT host=allowed.test"},
		{name: "SNI in capitals", ask: connect("allowed.test:443", withSNI("ALLOWED.TEST")), log: []string{"connect allow"}, reached: hit, answer: "HIT"},
		{name: "no SNI by a real client", ask: connect("allowed.test:443", &askTLS{Host: "allowed.test"}), log: []string{"connect deny sni_missing"}, reached: hit, answer: "ACCESS_DENIED"},
		{name: "another SNI by a real client", ask: connect("allowed.test:443", withSNI("evil.test")), log: []string{"connect deny sni_mismatch"}, reached: hit, answer: "ACCESS_DENIED"},
		{name: "another SNI that is allowed", ask: to(parent), log: []string{"connect deny sni_mismatch"}, reached: canary},
		{name: "another SNI", ask: to(evil), log: []string{"connect deny sni_mismatch"}, reached: canary},
		{name: "no SNI", ask: to(captureHello(t, &tls.Config{InsecureSkipVerify: true})), log: []string{"connect deny sni_missing"}, reached: canary},
		{name: "ECH with the allowed name outside", ask: to(ech), log: []string{"connect deny ech"}, reached: canary},
		{name: "ECH with a provider's name outside", ask: to(cloudflare), log: []string{"connect deny sni_mismatch"}, reached: canary},
		{name: "a broken ClientHello", ask: to(broken), log: []string{"connect deny bad_hello"}, reached: canary},
		{name: "half a ClientHello in a record, and data", ask: to(two(good[:5], two([]byte{1, 0}, []byte("GET / HTTP/1.1\r\n\r\n"+strings.Repeat("x", 40<<10))))), log: []string{"connect deny bad_hello"}, reached: canary},
		{name: "another handshake message", ask: to(server), log: []string{"connect deny bad_hello"}, reached: canary},
		{name: "SSH", ask: to([]byte("SSH-2.0-OpenSSH_9.2\r\n")), log: []string{"connect deny not_tls"}, reached: canary},
		{name: "plain HTTP on 443", ask: to([]byte("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")), log: []string{"connect deny not_tls"}, reached: canary},
		{name: "an SSLv2 hello", ask: to([]byte{0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10}), log: []string{"connect deny not_tls"}, reached: canary},
		{name: "the HTTP/2 preface", ask: to([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")), log: []string{"connect deny not_tls"}, reached: canary},
	}
	on80 := connect("canary.allowed.test:80", nil)
	on80.Then = "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"
	return append(rows, row{name: "plain HTTP by CONNECT to port 80", ask: on80, log: []string{"connect deny not_tls"}, reached: []string{canaryAddress + ":80"}})
}

// get sends the lines, each ended by CRLF, and an empty one.
func get(lines ...string) ask {
	return ask{Send: []string{strings.Join(lines, "\r\n") + "\r\n\r\n"}, Responses: 1}
}

func httpRows() []row {
	hit := []string{public + ":80"}
	two := func(first, second ask) ask {
		return ask{Send: []string{first.Send[0] + second.Send[0]}, Responses: 2}
	}
	allowed := get("GET http://allowed.test/ HTTP/1.1", "Host: allowed.test")
	evil := get("GET http://evil.test/ HTTP/1.1", "Host: evil.test")
	post := func(headers, body string) ask {
		return ask{Send: []string{"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n" + headers + "\r\n" + body}, Responses: 1}
	}
	smuggled := post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	zeroNine := ask{Send: []string{"GET http://allowed.test/\r\n"}, Responses: 1}
	return []row{
		{name: "the host itself", ask: allowed, log: []string{"http allow"}, reached: hit, answer: "HIT host=allowed.test"},
		{name: "in capitals, with a dot and a port", ask: get("GET HTTP://ALLOWED.Test.:80/ HTTP/1.1", "Host: allowed.test"), log: []string{"http allow"}, answer: "HIT host=allowed.test "},
		{name: "another host", ask: evil, log: []string{"http deny host_not_allowed"}},
		{name: "an allowed URL with another Host", ask: get("GET http://allowed.test/ HTTP/1.1", "Host: evil.test"), log: []string{"http allow"}, answer: "HIT host=allowed.test"},
		{name: "another URL with an allowed Host", ask: get("GET http://evil.test/ HTTP/1.1", "Host: allowed.test"), log: []string{"http deny host_not_allowed"}},
		{name: "user information", ask: get("GET http://allowed.test@evil.test/ HTTP/1.1", "Host: allowed.test"), log: []string{"http deny bad_authority"}},
		{name: "a password", ask: get("GET http://evil.test:80@allowed.test/ HTTP/1.1", "Host: allowed.test"), log: []string{"http deny bad_authority"}},
		{name: "a backslash", ask: get("GET http://evil.test\\@allowed.test/ HTTP/1.1", "Host: allowed.test"), log: []string{"malformed deny malformed_request"}},
		{name: "https", ask: get("GET https://allowed.test/ HTTP/1.1", "Host: allowed.test"), log: []string{"http deny scheme_not_allowed"}},
		{name: "ftp", ask: get("GET ftp://allowed.test/ HTTP/1.1", "Host: allowed.test"), log: []string{"http deny scheme_not_allowed"}},
		{name: "file", ask: get("GET file:///etc/passwd HTTP/1.1", "Host: allowed.test"), log: []string{"http deny scheme_not_allowed"}},
		{name: "an opaque URL", ask: get("GET http:allowed.test HTTP/1.1", "Host: allowed.test"), log: []string{"http deny bad_authority"}},
		{name: "a path alone", ask: get("GET / HTTP/1.1", "Host: allowed.test"), log: []string{"http deny not_a_proxy_request"}},
		{name: "two slashes", ask: get("GET //allowed.test/ HTTP/1.1", "Host: allowed.test"), log: []string{"http deny not_a_proxy_request"}},
		{name: "OPTIONS *", ask: get("OPTIONS * HTTP/1.1", "Host: allowed.test"), log: []string{"http deny not_a_proxy_request"}},
		{name: "port 22", ask: get("GET http://allowed.test:22/ HTTP/1.1", "Host: allowed.test"), log: []string{"http deny port_not_allowed"}},
		{name: "an empty port", ask: get("GET http://allowed.test:/ HTTP/1.1", "Host: allowed.test"), log: []string{"http deny bad_authority"}},
		{name: "a port with a zero before", ask: get("GET http://allowed.test:080/ HTTP/1.1", "Host: allowed.test"), log: []string{"http deny bad_port"}},
		{name: "an address", ask: get("GET http://127.0.0.1:80/ HTTP/1.1", "Host: allowed.test"), log: []string{"http deny ip_literal"}},
		{name: "an IPv6 address", ask: get("GET http://[::1]/ HTTP/1.1", "Host: allowed.test"), log: []string{"http deny ip_literal"}},
		{name: "a number", ask: get("GET http://2130706433/ HTTP/1.1", "Host: allowed.test"), log: []string{"http deny ip_literal"}},
		{name: "TRACE", ask: get("TRACE http://allowed.test/ HTTP/1.1", "Host: allowed.test"), log: []string{"http deny method_not_allowed"}},
		{name: "a method of one's own", ask: get("SECRET http://allowed.test/ HTTP/1.1", "Host: allowed.test"), log: []string{"http deny method_not_allowed"}},
		{name: "an upgrade", ask: get("GET http://allowed.test/ HTTP/1.1", "Host: allowed.test", "Connection: Upgrade", "Upgrade: websocket"), log: []string{"http deny upgrade_not_allowed"}},
		{name: "an upgrade to h2c", ask: get("GET http://allowed.test/ HTTP/1.1", "Host: allowed.test", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: x"), log: []string{"http deny upgrade_not_allowed"}},
		{name: "a server that switches", ask: get("GET http://allowed.test/switch HTTP/1.1", "Host: allowed.test"), log: []string{"http error upstream_failed"}, answer: "502"},
		{name: "a server that pretends to switch", ask: get("GET http://allowed.test/pretend HTTP/1.1", "Host: allowed.test"), log: []string{"http allow"}, reached: hit, answer: "no websocket"},
		{name: "two lengths", ask: post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"), log: []string{"malformed deny malformed_request"}},
		{name: "an unknown transfer coding", ask: post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), log: []string{"malformed deny malformed_request"}},
		{name: "a space before the colon", ask: post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), log: []string{"malformed deny malformed_request"}},
		{name: "two Hosts", ask: get("GET http://allowed.test/ HTTP/1.1", "Host: allowed.test", "Host: evil.test"), log: []string{"malformed deny malformed_request"}},
		{name: "no Host", ask: get("GET http://allowed.test/ HTTP/1.1"), log: []string{"malformed deny malformed_request"}},
		{name: "a length and chunks", ask: smuggled, log: []string{"http deny length_required"}, answer: "length_required"},
		{name: "a length and chunks behind another request", ask: two(allowed, smuggled), log: []string{"http allow", "http deny length_required"}, answer: "length_required"},
		{name: "another host on the same connection", ask: two(allowed, evil), log: []string{"http allow", "http deny host_not_allowed"}, answer: "host_not_allowed"},
		{name: "the host after a denial", ask: two(evil, allowed), log: []string{"http deny host_not_allowed", "http allow"}, reached: hit, answer: "HIT host=allowed.test"},
		{name: "a redirect to the metadata", ask: get("GET http://allowed.test/redirect HTTP/1.1", "Host: allowed.test"), log: []string{"http allow"}, answer: "302"},
		{name: "the HTTP/2 preface", ask: ask{Send: []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}, Responses: 1}, log: []string{"http deny not_a_proxy_request"}},
		{name: "HTTP/0.9", ask: zeroNine, log: []string{"malformed deny malformed_request"}},
		{name: "HTTP/3.0", ask: get("GET http://allowed.test/ HTTP/3.0", "Host: allowed.test"), log: []string{"malformed deny malformed_request"}},
		{name: "an upstream proxy's header", ask: get("GET http://evil.test/ HTTP/1.1", "Host: evil.test", "X-Upstream-Https-Proxy: http://allowed.test"), log: []string{"http deny host_not_allowed"}},
		{name: "headers for the proxy", ask: get("GET http://allowed.test/headers HTTP/1.1", "Host: allowed.test", "Proxy-Authorization: secret", "Connection: close, x-hop", "X-Hop: 1", "User-Agent: a"), log: []string{"http allow"}, answer: "map[Connection:[close] User-Agent:[a]]"},
		{name: "a header of a megabyte", ask: get("GET http://allowed.test/ HTTP/1.1", "Host: allowed.test", "X: "+strings.Repeat("x", 1<<20)), log: []string{"malformed deny header_too_large"}},
		{name: "TLS to the proxy", ask: ask{Send: []string{"\x16\x03\x01\x00\x05hello\r\n\r\n"}, Responses: 1}, log: []string{"malformed deny malformed_request"}},
	}
}
