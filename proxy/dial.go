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
	// keptTime bounds connecting to a kept address, so that time remains for the host's other addresses.
	keptTime = time.Second
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

// get returns the zero Addr for a host without an address.
func (h *hosts) get(name string) netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.all[name]; time.Now().Before(r.until) {
		return r.address
	}
	return netip.Addr{}
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
// answers, or to the address that did so a short time ago.
func (p *Proxy) dial(ctx context.Context, to decision) (*upstream, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limits.DialTime)
	defer cancel()
	hooks := p.cfg.hooks
	kept := p.hosts.get(to.Host)
	d := net.Dialer{
		Resolver:  cmp.Or(hooks.resolver, &net.Resolver{PreferGo: true}),
		KeepAlive: -1, // EgressLimits.Idle ends a silent connection
		Control: func(network, address string, c syscall.RawConn) error { // before connect(2)
			at, err := netip.ParseAddrPort(address)
			if err == nil && at.Addr() != kept { // which has passed
				err = p.check(at.Addr(), to.Private)
			}
			if err = cmp.Or(err, BoundHostBuffers(network, address, c)); err == nil && hooks.control != nil {
				err = hooks.control(network, address, c)
			}
			return err
		},
	}
	at := func(name string) string { return net.JoinHostPort(name, strconv.Itoa(int(to.Port))) }
	var conn net.Conn
	var err error
	if kept.IsValid() {
		d.Timeout = keptTime
		conn, err = d.DialContext(ctx, "tcp", at(kept.String()))
		d.Timeout = 0
	}
	fresh := !kept.IsValid() || err != nil
	if fresh { // the final dot keeps the resolver from trying this machine's search list
		if conn, err = d.DialContext(ctx, "tcp", at(to.Host+".")); err != nil {
			return nil, err
		}
	}
	address := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	if hooks.remote != nil {
		address = hooks.remote(conn)
	}
	if fresh && !hooks.forget {
		p.hosts.put(to.Host, address.Addr())
	}
	return &upstream{conn.(*net.TCPConn), context.AfterFunc(p.ctx, func() { _ = conn.Close() }), address}, nil
}
