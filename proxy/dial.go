package proxy

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
)

// An upstream is a connection to an allowed host. It is closed with the proxy.
type upstream struct {
	*net.TCPConn
	forget  func() bool    // keeps Proxy.Close from closing the connection
	address netip.AddrPort // the address that passed the check
}

func (u *upstream) Close() error {
	u.forget()
	return u.TCPConn.Close()
}

// dialer returns a dialer that checks each address just before connect(2) gets it, so that no later
// answer of a name server can replace it. passed maps the descriptor of each socket to its address, a
// netip.AddrPort: Go tries several addresses of a name concurrently.
func (p *Proxy) dialer(passed *sync.Map) *net.Dialer {
	return &net.Dialer{
		Timeout: p.limits.DialTime, Resolver: cmp.Or(p.cfg.hooks.resolver, &net.Resolver{PreferGo: true}),
		Control: func(network, address string, c syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return &refusedAddress{rule: "no address"}
			}
			if err := p.check(to.Addr()); err != nil {
				return err
			}
			if err := c.Control(func(fd uintptr) { passed.Store(fd, to) }); err != nil {
				return err
			}
			if p.cfg.hooks.control != nil {
				return p.cfg.hooks.control(network, address, c)
			}
			return nil
		},
	}
}

// dial resolves an allowed, normalised name and connects to it.
func (p *Proxy) dial(ctx context.Context, host string, port uint16) (*upstream, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limits.DialTime)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	passed := &sync.Map{}
	// The final dot keeps the resolver from trying the host's search list.
	conn, err := p.dialer(passed).DialContext(ctx, "tcp", net.JoinHostPort(host+".", strconv.Itoa(int(port))))
	if err != nil {
		return nil, err
	}
	u := &upstream{TCPConn: conn.(*net.TCPConn), forget: context.AfterFunc(p.ctx, func() { _ = conn.Close() })}
	raw, err := u.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			if address, ok := passed.Load(fd); ok {
				u.address = address.(netip.AddrPort)
			}
		})
	}
	if err == nil && !u.address.IsValid() {
		err = errors.New("connected to an address that was not checked")
	}
	if err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// SpeakFirst returns conn with reads that block until conn was written to or closed. Otherwise, if a
// server sends data before the request, net/http would print it to standard error. The end of ctx
// closes conn.
func SpeakFirst(ctx context.Context, conn net.Conn) net.Conn {
	s := &speaker{Conn: conn, spoken: make(chan struct{})}
	s.forget = context.AfterFunc(ctx, func() {
		s.speak()
		_ = conn.Close()
	})
	return s
}

type speaker struct {
	net.Conn
	forget func() bool // keeps the end of the context from closing the connection
	once   sync.Once
	spoken chan struct{}
}

func (s *speaker) speak() { s.once.Do(func() { close(s.spoken) }) }

func (s *speaker) Read(b []byte) (int, error) {
	<-s.spoken
	return s.Conn.Read(b)
}

func (s *speaker) Write(b []byte) (int, error) {
	s.speak()
	return s.Conn.Write(b)
}

func (s *speaker) Close() error {
	s.forget()
	s.speak()
	return s.Conn.Close()
}
