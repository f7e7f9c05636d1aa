package sandbox_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
)

// TestNetwork lets a sandbox talk to sockets of this process on its loopback interface, and
// checks that they are closed with the sandbox.
func TestNetwork(t *testing.T) {
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	var got runtime.Sockets
	sandbox, err := run.Create(context.Background(), runtime.Config{
		Name: "network", Image: image, Limits: runtime.DefaultLimits(), User: "1000:1000",
		Network: &runtime.Network{
			TCP: []string{"127.0.0.1:3128"}, UDP: []string{"127.0.0.1:53"}, Redirect: true, Nameserver: "127.0.0.1",
			Serve: func(s runtime.Sockets) error {
				got = s
				greet(s.TCP[0], "the proxy")
				greet(s.Redirected, "redirected")
				go func() {
					b := make([]byte, 100)
					if _, from, err := s.UDP[0].ReadFrom(b); err == nil {
						_, _ = s.UDP[0].WriteTo([]byte("a datagram"), from)
					}
				}()
				return nil
			},
		},
	})
	must.Do(t, err)
	exit, err := sandbox.Exec(context.Background(), runtime.Process{Wall: wall, Args: []string{"python3", "-c", `
import socket
for address in (('127.0.0.1', 3128), ('198.18.3.4', 5432)):
    print(socket.create_connection(address).recv(100).decode())
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.sendto(b'x', ('127.0.0.1', 53))
print(u.recv(100).decode())
print(open('/etc/resolv.conf').read().strip(), [l.split(':')[0].strip() for l in open('/proc/net/dev') if ':' in l])
for address in (('192.0.2.1', 443), ('127.0.0.1', 3129)):
    try:
        socket.create_connection(address, 5)
        print('reached')
    except OSError as e:
        print(e.strerror)
`}})
	must.Do(t, err)
	want := "the proxy\nredirected\na datagram\nnameserver 127.0.0.1 ['lo']\nNetwork is unreachable\nConnection refused\n"
	if out := string(exit.Stdout.Head); out != want {
		t.Errorf("got:\n%s%s\nwant:\n%s", out, exit.Stderr.Head, want)
	}
	must.Report(t, sandbox.Close(context.Background()))
	for _, l := range append(got.TCP, got.Redirected) {
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v after the sandbox's end: %v", l.Addr(), err)
		}
	}
	if _, err := got.UDP[0].WriteTo(nil, got.UDP[0].LocalAddr()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v after the sandbox's end: %v", got.UDP[0].LocalAddr(), err)
	}
}

// greet accepts connections and writes a line to each.
func greet(l net.Listener, text string) {
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	}()
}

// TestNetworkRefused checks that Create fails if the sandbox's network cannot be made.
func TestNetworkRefused(t *testing.T) {
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	tests := []struct {
		name    string
		network runtime.Network
		want    string
	}{
		{"a host's address", runtime.Network{TCP: []string{"192.0.2.1:80"}}, "cannot assign requested address"},
		{"refused by the caller", runtime.Network{Serve: func(runtime.Sockets) error { return errors.New("no") }}, "no"},
	}
	for _, tt := range tests {
		sandbox, err := run.Create(context.Background(), runtime.Config{Name: "network", Image: image, Limits: runtime.DefaultLimits(), Network: &tt.network})
		if err == nil {
			must.Report(t, sandbox.Close(context.Background()))
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
