package proxy_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/proxy"
)

const anyAddressVariable = "SBENCH_TEST_ANY_ADDRESS"

// TestAnyAddress is the way of a kernel without nftables, where the local address
// of a connection is what it was made to: in a process with a network of its own,
// all of 198.18.0.0/15 is local.
func TestAnyAddress(t *testing.T) {
	if os.Getenv(anyAddressVariable) != "" {
		anyAddress(t)
		return
	}
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root, which CI must have")
		}
		t.Skip("needs root")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestAnyAddress$")
	cmd.Env = append(os.Environ(), anyAddressVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v: %s", err, out)
	}
}

func anyAddress(t *testing.T) {
	if err := localNetwork(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	p, log := w.startProxy(proxy.Config{})
	l, err := net.Listen("tcp4", "0.0.0.0:80")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.ServeRedirected(l) }()
	question := []byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07allowed\x04test\x00\x00\x01\x00\x01")
	answer := p.AnswerDNS(question)
	address := net.IP(answer[len(answer)-4:]).String()
	if e := log.next(t); words(e) != "dns allow" || address != "198.18.0.1" {
		t.Fatalf("%+v, %s", e, address)
	}
	for _, tt := range []struct{ to, host, log, answer string }{
		{address, "allowed.test", "transparent allow", "HIT host=allowed.test"},
		{address, "evil.test", "transparent deny host_mismatch", "host_mismatch"},
		{"198.18.0.2", "allowed.test", "transparent deny ip_literal", ""},
		{"127.0.0.1", "allowed.test", "transparent deny ip_literal", ""},
	} {
		got := converse(t, tt.to+":80", fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", tt.host))
		if e := log.next(t); words(e) != tt.log || !strings.Contains(got, tt.answer) {
			t.Errorf("%s at %s: %+v, %q", tt.host, tt.to, e, got)
		}
	}
	report(t, p.Close())
	report(t, <-done)
}

// localNetwork brings lo up, and makes 198.18.0.0/15 local to it (netdevice(7),
// rtnetlink(7)).
func localNetwork() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	up := []byte{unix.AF_UNSPEC, 0, 0, 0}
	for _, n := range []uint32{1, unix.IFF_UP, unix.IFF_UP} { // the index of lo, the flag, its mask
		up = binary.NativeEndian.AppendUint32(up, n)
	}
	route := []byte{unix.AF_INET, 15, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0,
		8, 0, unix.RTA_DST, 0, 198, 18, 0, 0, 8, 0, unix.RTA_OIF, 0, 1, 0, 0, 0} // of a little-endian machine
	return errors.Join(
		netlink(fd, unix.RTM_NEWLINK, 0, up),
		netlink(fd, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, route),
	)
}

func netlink(fd int, kind, flags uint16, body []byte) error {
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	m = append(append(m, make([]byte, 8)...), body...)
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	reply := make([]byte, 4096)
	if _, _, err := unix.Recvfrom(fd, reply, 0); err != nil {
		return err
	}
	if errno := -int32(binary.NativeEndian.Uint32(reply[unix.SizeofNlMsghdr:])); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}
