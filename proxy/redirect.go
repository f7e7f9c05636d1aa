package proxy

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST of linux/netfilter_ipv4.h.
const soOriginalDst = 80

// A mapping is the name and port of a redirected connection.
type mapping struct {
	name string
	port uint16
}

// ServeRedirected serves connections that programs in the sandbox made to an address from
// [Proxy.ServeDNS]. It accepts TLS whose ClientHello names the address's host and, on ports
// other than 443, plain HTTP to that host. A connection's original destination is its socket
// option SO_ORIGINAL_DST or, if that is not set, its local address. ServeRedirected returns
// when l or the proxy is closed, and closes l.
func (p *Proxy) ServeRedirected(l net.Listener) error {
	return p.accept(l, KindTransparent, func(c *client) { p.start(c, p.redirected) })
}

func (p *Proxy) redirected(c *client) {
	a := p.attempt(KindTransparent)
	to := originalDestination(c.tcp)
	name, ok := p.names.name(to.Addr())
	if !ok {
		a.entry.Address, a.entry.Port = to.Addr().String(), int(to.Port())
		a.refuse(reasonIPLiteral, "no name was asked for that has this address")
	}
	if !ok || !a.decide(request{Kind: KindTransparent, Host: name, Port: strconv.Itoa(int(to.Port()))}).Allowed {
		a.end(0, 0)
		_ = c.Close()
		return
	}
	first, why := p.readHello(c, name)
	switch {
	case why == reasonNotTLS && to.Port() != 443:
		c.early, c.mapped = append(first, c.early...), &mapping{name, to.Port()}
		p.queue.Put(c) // each request is an attempt of its own
	case why != "":
		p.refuseHello(a, c, first, why)
	default:
		p.redirectedTLS(a, c, first)
	}
}

func (p *Proxy) redirectedTLS(a *attempt, c *client, first []byte) {
	defer func() { _ = c.Close() }()
	if !a.tunnel() {
		a.end(0, 0)
		return
	}
	defer func() { <-p.tunnels }()
	if up := a.reach(); up != nil {
		defer func() { _ = up.Close() }()
		p.tunnel(a, c, up, first)
	}
}

// originalDestination is where a connection was going before the kernel redirected it.
func originalDestination(c *net.TCPConn) netip.AddrPort {
	to := c.LocalAddr().(*net.TCPAddr).AddrPort()
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // fails only once c is closed
			// The value is a struct sockaddr_in, whose 16 bytes fit into Multiaddr.
			if got, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, soOriginalDst); err == nil {
				b := got.Multiaddr
				to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:]))
			}
		})
	}
	return netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
}
