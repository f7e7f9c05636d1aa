package proxy_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
)

const anyAddressVariable = "SBENCH_TEST_ANY_ADDRESS"

// TestAnyAddress redirects nothing: in a process with its own network namespace, all of
// 198.18.0.0/15 is local, so that the local address of a connection is its destination.
func TestAnyAddress(t *testing.T) {
	if os.Getenv(anyAddressVariable) != "" {
		anyAddress(t)
		return
	}
	inNetwork(t, anyAddressVariable)
}

// inNetwork runs the test again in a process with its own network namespace, in which
// the variable is set.
func inNetwork(t *testing.T, variable string) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root, which CI must have")
		}
		t.Skip("needs root")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), variable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v: %s", err, out)
	}
}

func anyAddress(t *testing.T) {
	localNetwork(t, "198.18.0.0/15")
	w := newWorld(t)
	p, log := w.startProxy(proxy.Config{})
	l, err := net.Listen("tcp4", "0.0.0.0:80")
	must.Do(t, err)
	done := make(chan error, 1)
	go func() { done <- p.ServeRedirected(l) }()
	question := []byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07allowed\x04test\x00\x00\x01\x00\x01")
	answer := p.AnswerDNS(question)
	address := net.IP(answer[len(answer)-4:]).String()
	if e := log.next(t); words(e) != "dns allow" || address != "198.18.0.1" {
		t.Fatalf("%+v, %s", e, address)
	}
	for _, tt := range []struct{ to, line, host, log, answer string }{
		{address, "GET /", "allowed.test", "transparent allow", "HIT host=allowed.test"},
		{address, "GET http://allowed.test/", "evil.test", "transparent allow", "HIT host=allowed.test"},
		{address, "GET /", "evil.test", "transparent deny host_mismatch", "host_mismatch"},
		{address, "GET /", "two.allowed.test", "transparent deny host_mismatch", "host_mismatch"},
		{address, "GET /", "allowed.test:443", "transparent deny host_mismatch", "host_mismatch"},
		{address, "GET /", "allowed.test:x", "transparent deny host_mismatch", "host_mismatch"},
		{address, "GET /", "", "transparent deny host_mismatch", "host_mismatch"},
		{address, "GET /", "169.254.169.254", "transparent deny ip_literal", "ip_literal"},
		{address, "GET http://evil.test/", "allowed.test", "transparent deny host_mismatch", "host_mismatch"},
		{address, "GET https://allowed.test/", "allowed.test", "transparent deny scheme_not_allowed", "scheme_not_allowed"},
		{address, "GET http://evil.test@allowed.test/", "allowed.test", "transparent deny bad_authority", "bad_authority"},
		{address, "TRACE /", "allowed.test", "transparent deny method_not_allowed", "method_not_allowed"},
		{address, "CONNECT allowed.test:443", "allowed.test", "transparent deny not_a_proxy_request", "not_a_proxy_request"},
		{"198.18.0.2", "GET /", "allowed.test", "transparent deny ip_literal", ""},
		{"127.0.0.1", "GET /", "allowed.test", "transparent deny ip_literal", ""},
	} {
		got := converse(t, tt.to+":80", fmt.Sprintf("%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", tt.line, tt.host))
		if e := log.next(t); words(e) != tt.log || !strings.Contains(got, tt.answer) || e.Port != 80 && tt.host != "allowed.test:443" && tt.host != "allowed.test:x" {
			t.Errorf("%s for %s at %s: %+v, %q", tt.line, tt.host, tt.to, e, got)
		}
	}
	p.Close()
	must.Report(t, <-done)
}

// localNetwork brings lo up, and makes networks local to it (netdevice(7), rtnetlink(7)).
func localNetwork(t *testing.T, networks ...string) {
	t.Helper()
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	must.Do(t, err)
	defer func() { must.Report(t, c.Close()) }()
	execute := func(kind netlink.HeaderType, flags netlink.HeaderFlags, body []byte) {
		_, err := c.Execute(netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request | netlink.Acknowledge | flags}, Data: body})
		must.Report(t, err)
	}
	up := []byte{unix.AF_UNSPEC, 0, 0, 0}
	for _, n := range []uint32{1, unix.IFF_UP, unix.IFF_UP} { // the index of lo, the flag, its mask
		up = binary.NativeEndian.AppendUint32(up, n)
	}
	execute(unix.RTM_NEWLINK, 0, up)
	for _, network := range networks {
		prefix := netip.MustParsePrefix(network)
		family := byte(unix.AF_INET)
		if prefix.Addr().Is6() {
			family = unix.AF_INET6
		}
		e := netlink.NewAttributeEncoder()
		e.Bytes(unix.RTA_DST, prefix.Addr().AsSlice())
		e.Uint32(unix.RTA_OIF, 1)
		attributes, err := e.Encode()
		must.Report(t, err)
		route := []byte{family, byte(prefix.Bits()), 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}
		execute(unix.RTM_NEWROUTE, netlink.Create|netlink.Excl, append(route, attributes...))
	}
}

const localTableVariable = "SBENCH_TEST_LOCAL_TABLE"

// TestLocalTable: every address in the kernel's table of local routes is this host's, even if no
// interface has it. In a process with its own network namespace, a route makes 93.184.216.0/24 and
// 2606:2800::/32 local.
func TestLocalTable(t *testing.T) {
	if os.Getenv(localTableVariable) == "" {
		inNetwork(t, localTableVariable)
		return
	}
	localNetwork(t, "93.184.216.0/24", "2606:2800::/32")
	w := newWorld(t)
	w.real = true
	p, log := w.startProxy(proxy.Config{})
	for address, want := range map[string]bool{
		"93.184.216.34": true, "93.184.216.255": true, "2606:2800::1": true, "93.184.217.34": false, "8.8.8.8": false, "2607::1": false,
	} {
		if got, err := proxy.IsLocal(netip.MustParseAddr(address)); err != nil || got != want {
			t.Errorf("%s: %v, %v", address, got, err)
		}
	}
	got := converse(t, serveLocal(t, p), "GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if e := log.next(t); words(e) != "http deny address_not_allowed" || e.Rule != "the host's own" || !strings.Contains(got, "403") {
		t.Errorf("%+v, %q", e, got)
	}
}
