package netns_test

import (
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/runtimetest"
	"github.com/securebench/sbench/runtime/netns"
)

func TestMain(m *testing.M) {
	containerdtest.Enter()
	m.Run()
}

func newNamespace(t *testing.T, o netns.Options) *netns.Namespace {
	t.Helper()
	runtimetest.NeedMounts(t)
	n, err := netns.New(o)
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, n.Close()) })
	return n
}

// answer accepts one connection, and writes to it what name returns.
func answer(t *testing.T, l net.Listener, name func(c *net.TCPConn) string) {
	t.Helper()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, name(c.(*net.TCPConn)))
		_ = c.Close()
	}()
}

// within runs f on a thread in the namespace; the thread ends when f has returned.
func within(t *testing.T, n *netns.Namespace, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread is not reused
		file, err := os.Open(n.Path())
		if err == nil {
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
			_ = file.Close()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	must.Do(t, <-done)
}

// dial connects from within the namespace, and reads until the peer closes.
func dial(t *testing.T, n *netns.Namespace, host, port string) (got string, err error) {
	t.Helper()
	within(t, n, func() {
		var c net.Conn
		if c, err = net.DialTimeout("tcp4", net.JoinHostPort(host, port), 5*time.Second); err != nil {
			return
		}
		var data []byte
		data, err = io.ReadAll(c)
		got = string(data)
		_ = c.Close()
	})
	return got, err
}

// TestListeners connects to sockets of this process from within the namespace, also to sockets that Join has opened
// there, and checks that they do not occupy ports of the host.
func TestListeners(t *testing.T) {
	n := newNamespace(t, netns.Options{TCP: []string{"127.0.0.1:3128", "127.0.0.1:53"}, UDP: []string{"127.0.0.1:53"}})
	answer(t, n.TCP[0], func(*net.TCPConn) string { return "proxy" })
	if got, err := dial(t, n, "127.0.0.1", "3128"); got != "proxy" {
		t.Errorf("inside: %q, %v", got, err)
	}
	if n.TCP[1].Addr().String() != "127.0.0.1:53" || n.UDP[0].LocalAddr().String() != "127.0.0.1:53" {
		t.Errorf("listens on %v and %v", n.TCP[1].Addr(), n.UDP[0].LocalAddr())
	}
	must.Do(t, n.TCP[0].Close())
	joined, err := n.Join([]string{"127.0.0.1:3128"}, nil)
	must.Do(t, err)
	answer(t, joined.TCP[0], func(*net.TCPConn) string { return "joined" })
	got, _ := dial(t, n, "127.0.0.1", "3128")
	must.Equal(t, "joined", got)
	must.Report(t, joined.Close())
	if _, err := dial(t, n, "127.0.0.1", "3128"); err == nil {
		t.Error("a closed namespace still listens")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer func() { _ = l.Close() }()
	newNamespace(t, netns.Options{TCP: []string{l.Addr().String()}})
}

// TestRedirect connects to addresses in the redirected range, and checks that other
// addresses cannot be reached.
func TestRedirect(t *testing.T) {
	n := newNamespace(t, netns.Options{Redirect: true})
	for _, port := range []string{"80", "443", "22", "65535"} {
		redirected(t, n, n.Redirected, port)
	}
	within(t, n, func() {
		for _, own := range []string{":80", ":443"} {
			l, err := net.Listen("tcp4", own)
			if err != nil {
				t.Errorf("the task's own server on %s: %v", own, err)
				continue
			}
			_ = l.Close()
		}
	})
	unreachable(t, n)
}

func redirected(t *testing.T, n *netns.Namespace, l net.Listener, port string) {
	t.Helper()
	answer(t, l, original)
	got, _ := dial(t, n, "198.19.255.254", port)
	must.Equal(t, "198.19.255.254:"+port, got) // original destination of port
}

func unreachable(t *testing.T, n *netns.Namespace) {
	t.Helper()
	_, err := dial(t, n, "93.184.216.34", "443")
	must.Is(t, err, unix.ENETUNREACH) // an address outside of the range
}

func original(c *net.TCPConn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return err.Error()
	}
	text := ""
	err = raw.Control(func(fd uintptr) {
		req, err := unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, unix.SO_ORIGINAL_DST)
		if err != nil {
			text = c.LocalAddr().String()
			return
		}
		m := req.Multiaddr
		text = (&net.TCPAddr{IP: net.IPv4(m[4], m[5], m[6], m[7]), Port: int(m[2])<<8 | int(m[3])}).String()
	})
	if err != nil {
		return err.Error()
	}
	return text
}

// TestQueues: a namespace bounds what the kernel queues in its connections, and the host's own
// bounds stay as they are.
func TestQueues(t *testing.T) {
	n := newNamespace(t, netns.Options{})
	read := func(name string) string {
		text := must.Read(t, "/proc/sys/net/"+name)
		return strings.Join(strings.Fields(string(text)), " ")
	}
	bounds := map[string]string{"ipv4/tcp_rmem": "4096 131072 262144", "ipv4/tcp_wmem": "4096 16384 262144", "core/somaxconn": "128"}
	within(t, n, func() {
		for name, want := range bounds {
			if got := read(name); got != want {
				t.Errorf("%s is %s in the namespace, want %s", name, got, want)
			}
		}
	})
	for name, inside := range bounds {
		if name != "core/somaxconn" && read(name) == inside {
			t.Errorf("%s is %s outside, too", name, inside)
		}
	}
}
