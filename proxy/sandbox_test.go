package proxy_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/runtime"
)

func TestMain(m *testing.M) {
	containerdtest.Enter()
	os.Exit(m.Run())
}

// A sandbox contains a client that makes the attempts of a test, and the proxy's
// sockets.
type sandbox struct {
	t       testing.TB
	sandbox runtime.Sandbox
	in      *io.PipeWriter
	out     *bufio.Reader
	exit    chan error
	sockets runtime.Sockets
}

// newSandbox starts a client in a sandbox whose way out is the proxy.
func newSandbox(t testing.TB, p *proxy.Proxy, transparent bool) *sandbox {
	t.Helper()
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	s := &sandbox{t: t, exit: make(chan error, 1)}
	network := &runtime.Network{TCP: []string{"127.0.0.1:3128"}, Serve: func(sockets runtime.Sockets) error {
		s.sockets = sockets
		go func() { _ = p.Serve(sockets.TCP[0]) }()
		if transparent {
			go func() { _ = p.ServeDNSTCP(sockets.TCP[1]) }()
			go func() { _ = p.ServeDNS(sockets.UDP[0]) }()
			go func() { _ = p.ServeRedirected(sockets.Redirected) }()
		}
		return nil
	}}
	if transparent {
		network.TCP = append(network.TCP, "127.0.0.1:53")
		network.UDP, network.Redirect, network.Nameserver = []string{"127.0.0.1:53"}, true, "127.0.0.1"
	}
	programs, err := filepath.Abs("testdata")
	must.Do(t, err)
	s.sandbox, err = run.Create(context.Background(), runtime.Config{
		Name: "egress", Image: image, Limits: runtime.DefaultLimits(), Workdir: "/tmp", User: "1000:1000", Network: network,
		Mounts: []runtime.Mount{{Source: programs, Dest: "/programs"}},
	})
	must.Do(t, err)
	s.start()
	return s
}

func (s *sandbox) start() {
	var stdin io.Reader
	var stdout io.Writer
	stdin, s.in = io.Pipe()
	out, stdout := io.Pipe()
	s.out = bufio.NewReaderSize(out, 1<<20)
	go func() {
		exit, err := s.sandbox.Exec(context.Background(), runtime.Process{
			Args: []string{"python3", "/programs/client.py"}, Stdin: stdin, Stdout: stdout, Stderr: os.Stderr, Wall: 5 * time.Minute,
		})
		if err == nil && !exit.Success() {
			s.t.Logf("the client: %v %s", exit, exit.Stderr.Head)
		}
		s.exit <- err
		_ = out.Close()
	}()
	s.read()
	s.t.Cleanup(func() {
		must.Report(s.t, s.in.Close())
		must.Report(s.t, <-s.exit)
		must.Report(s.t, s.sandbox.Close(context.Background()))
	})
}

// An ask tells the client what to do; see testdata/client.py.
type ask struct {
	To        []any    `json:"to,omitempty"`
	Send      []string `json:"send,omitempty"`
	Responses int      `json:"responses,omitempty"`
	TLS       *askTLS  `json:"tls,omitempty"`
	Then      string   `json:"then,omitempty"`
	Code      string   `json:"code,omitempty"`
}

type askTLS struct {
	SNI   *string `json:"sni"`
	Host  string  `json:"host"`
	Split bool    `json:"split,omitempty"`
	Early bool    `json:"early,omitempty"`
}

// ask returns the client's answer, a JSON line.
func (s *sandbox) ask(a ask) string {
	s.t.Helper()
	line := must.JSON(s.t, a)
	if _, err := s.in.Write(append(line, '\n')); err != nil {
		s.t.Fatal(err)
	}
	return s.read()
}

func (s *sandbox) read() string {
	s.t.Helper()
	line, err := s.out.ReadString('\n')
	if err != nil {
		s.t.Fatalf("the client said no more: %v", err)
	}
	return line
}
