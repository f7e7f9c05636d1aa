package proxy_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/elazarl/goproxy"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/domain"
	"github.com/securebench/sbench/runtime/proc"
)

// rivalVariable makes the test binary a proxy in its own process, so that the benchmark can measure its
// time and memory without the client's.
const rivalVariable = "SBENCH_TEST_RIVAL"

func TestMain(m *testing.M) {
	if name, origin, ok := strings.Cut(os.Getenv(rivalVariable), " "); ok {
		serveRival(name, origin)
		return
	}
	containerdtest.Enter()
	os.Exit(m.Run())
}

// serveRival serves the inherited listener until standard input ends.
func serveRival(name, origin string) {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		log.Fatal(err)
	}
	if name == "library" {
		lib := goproxy.NewProxyHttpServer() // splices, without limits or checks
		lib.Logger, lib.ConnectDial = log.New(io.Discard, "", 0), nil
		dialer := net.Dialer{Control: connectTo(origin)}
		lib.Tr = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", public+":443")
		}}
		go func() { log.Fatal(http.Serve(l, lib)) }()
	} else {
		go func() { log.Fatal(benchProxy(origin).Serve(l)) }()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// connectTo returns a net.Dialer's Control that connects to the origin, whatever the address.
func connectTo(origin string) func(string, string, syscall.RawConn) error {
	to := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(origin))
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		if controlErr := c.Control(func(fd uintptr) {
			err = unix.Connect(int(fd), &unix.SockaddrInet4{Addr: [4]byte(to.IP.To4()), Port: to.Port})
		}); controlErr != nil || err == unix.EINPROGRESS {
			return controlErr
		}
		return err
	}
}

// benchProxy returns a proxy that allows allowed.test and connects to the origin
// whatever the address of the name.
func benchProxy(origin string) *proxy.Proxy {
	names, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	w := &world{dns: names, zone: map[string][]string{}, asked: map[string]int{}, real: true}
	go w.serveNames()
	hooks := w.hooks()
	hooks.Control = connectTo(origin)
	hooks.Remote = func(net.Conn) netip.AddrPort { return netip.MustParseAddrPort(public + ":443") }
	allowed, err := domain.Parse("allowed.test")
	if err != nil {
		log.Fatal(err)
	}
	cfg := limited(func(l *proxy.EgressLimits) { l.Connections, l.Requests, l.Up, l.Down = 1<<20, 1<<40, 1<<50, 1<<50 })
	cfg.Log, cfg.Allowed.Domains = proxy.NewLog(io.Discard), []domain.Domain{allowed}
	p, err := proxy.New(proxy.WithHooks(cfg, hooks))
	if err != nil {
		log.Fatal(err)
	}
	return p
}

// A rival is a proxy in its own process.
type rival struct {
	name    string
	address string
	pid     int
}

// startRival starts a proxy that reaches the origin.
func startRival(b *testing.B, name, origin string) rival {
	b.Helper()
	l := listenLocal(b)
	file, err := l.(*net.TCPListener).File()
	must.Do(b, err)
	defer func() { _ = file.Close() }()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), rivalVariable+"="+name+" "+origin)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{file}, os.Stderr
	stdin, err := cmd.StdinPipe() // the process ends when it is closed
	must.Do(b, err)
	b.Cleanup(func() { _ = stdin.Close() })
	must.Do(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return rival{name: name, address: l.Addr().String(), pid: cmd.Process.Pid}
}

// processor returns the processor time of the rival's process so far, in seconds.
func (r rival) processor(b *testing.B) float64 {
	stat, err := proc.ReadStat(r.pid)
	must.Do(b, err)
	return float64(stat.Number(14)+stat.Number(15)) / 100 // USER_HZ
}
