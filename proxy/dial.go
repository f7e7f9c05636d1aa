package proxy

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// hostsTTL is how long the addresses of a host are used again, and maxHosts for how many hosts.
	hostsTTL = 10 * time.Second
	maxHosts = 256
	// maxAddresses is how many of a host's addresses are tried, and nextAddress after which time the next.
	maxAddresses = 4
	nextAddress  = time.Second
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
	addresses []netip.Addr
	until     time.Time
}

func (h *hosts) get(name string) []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.all[name]; time.Now().Before(r.until) {
		return r.addresses
	}
	return nil
}

func (h *hosts) put(name string, addresses []netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.all) >= maxHosts {
		clear(h.all)
	}
	h.all[name] = resolved{addresses, time.Now().Add(hostsTTL)}
}

// dial resolves an allowed, normalised name and connects to the first of its addresses that passes the
// check and answers.
func (p *Proxy) dial(ctx context.Context, host string, port uint16) (*upstream, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limits.DialTime)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	addresses := p.hosts.get(host)
	known := addresses != nil && !p.cfg.hooks.forget
	if !known {
		var err error
		resolver := cmp.Or(p.cfg.hooks.resolver, &net.Resolver{PreferGo: true})
		// The final dot keeps the resolver from trying this machine's search list.
		if addresses, err = resolver.LookupNetIP(ctx, "ip", host+"."); err != nil {
			return nil, err
		}
	}
	var first error
	tried := 0
	for i, address := range addresses {
		address = address.Unmap() // LookupNetIP may return IPv4 addresses inside IPv6
		if err := p.check(address); err != nil {
			first = cmp.Or(first, err)
			continue
		}
		if tried++; tried > maxAddresses {
			break
		}
		to := netip.AddrPortFrom(address, port)
		conn, err := p.dialAddress(ctx, to, tried < maxAddresses && i < len(addresses)-1)
		if err == nil {
			if i > 0 || !known {
				p.hosts.put(host, slices.Insert(slices.Delete(slices.Clone(addresses), i, i+1), 0, address))
			}
			return &upstream{conn, context.AfterFunc(p.ctx, func() { _ = conn.Close() }), to}, nil
		}
		first = cmp.Or(first, err)
	}
	return nil, cmp.Or(first, errors.New("the name has no address"))
}

// dialAddress connects to an address. If there is another one, it does not wait long.
func (p *Proxy) dialAddress(ctx context.Context, to netip.AddrPort, another bool) (*net.TCPConn, error) {
	d := net.Dialer{Control: func(network, address string, c syscall.RawConn) error {
		if err := BoundHost(network, address, c); err != nil {
			return err
		}
		if p.cfg.hooks.control != nil {
			return p.cfg.hooks.control(network, address, c)
		}
		return nil
	}}
	if another {
		d.Timeout = nextAddress
	}
	conn, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}
