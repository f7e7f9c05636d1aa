package proxy

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// hostsTTL is how long the proxy keeps the address of a host. maxHosts bounds how many it keeps.
	hostsTTL = 10 * time.Second
	maxHosts = 256
	// knownTime bounds connecting to a kept address.
	knownTime = time.Second
)

// An upstream is a connection to an allowed host. It is closed with the proxy.
type upstream struct {
	*net.TCPConn
	forget  func() bool    // keeps Proxy.Close from closing the connection
	address netip.AddrPort // passed the check
}

func (u *upstream) Close() error {
	u.forget()
	return u.TCPConn.Close()
}

// hosts keeps the addresses of hosts for a short time, since a package manager connects to the same host
// many times.
type hosts struct {
	mu  sync.Mutex
	all map[string]resolved
}

type resolved struct {
	address netip.Addr
	until   time.Time
}

func (h *hosts) get(name string) (netip.Addr, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.all[name]
	return r.address, time.Now().Before(r.until)
}

func (h *hosts) put(name string, address netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.all) >= maxHosts {
		clear(h.all)
	}
	h.all[name] = resolved{address, time.Now().Add(hostsTTL)}
}

// dial connects to the host of a decision that allows it: to the first of its addresses that passes the check and
// answers.
func (p *Proxy) dial(ctx context.Context, to decision) (*upstream, error) {
	host := to.Host
	ctx, cancel := context.WithTimeout(ctx, p.limits.DialTime)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	d := net.Dialer{
		Resolver: cmp.Or(p.cfg.hooks.resolver, &net.Resolver{PreferGo: true}),
		Control: func(network, address string, c syscall.RawConn) error { // before connect(2)
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			if err := cmp.Or(p.check(at.Addr(), to.Private), BoundHost(network, address, c)); err != nil || p.cfg.hooks.control == nil {
				return err
			}
			return p.cfg.hooks.control(network, address, c)
		},
	}
	var conn net.Conn
	at := func(name string) string { return net.JoinHostPort(name, strconv.Itoa(int(to.Port))) }
	if known, ok := p.hosts.get(host); ok && !p.cfg.hooks.forget {
		d.Timeout = knownTime
		conn, _ = d.DialContext(ctx, "tcp", at(known.String()))
		d.Timeout = 0
	}
	fresh := conn == nil
	if fresh { // the final dot keeps the resolver from trying this machine's search list
		var err error
		if conn, err = d.DialContext(ctx, "tcp", at(host+".")); err != nil {
			return nil, err
		}
	}
	address := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	if p.cfg.hooks.remote != nil {
		address = p.cfg.hooks.remote(conn)
	}
	if fresh {
		p.hosts.put(host, address.Addr())
	}
	return &upstream{conn.(*net.TCPConn), context.AfterFunc(p.ctx, func() { _ = conn.Close() }), address}, nil
}
