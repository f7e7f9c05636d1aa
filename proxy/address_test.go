package proxy_test

import (
	"encoding/binary"
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
		if os.Geteuid() != 0 {
			if os.Getenv("CI") != "" {
				t.Fatal("needs root, which CI must have")
			}
			t.Skip("needs root")
		}
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), localTableVariable+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v: %s", err, out)
		}
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
