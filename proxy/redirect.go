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

// A destination is the name and port to which a redirected connection was going.
type destination struct {
	name string
	port uint16
}

// ServeRedirected serves connections that programs in the sandbox made to an address from
// [Proxy.ServeDNS]: TLS for the address's host or, on ports other than 443, plain HTTP to it. A
// connection's original destination is its option SO_ORIGINAL_DST or, without it, its local address.
// ServeRedirected returns when l or the proxy is closed, and closes l.
func (p *Proxy) ServeRedirected(l net.Listener) error {
	return p.accept(l, KindTransparent, p.redirected)
}

func (p *Proxy) redirected(c *client) {
	a := p.newAccess(KindTransparent)
	to := originalDestination(c.tcp)
	name, ok := p.names.name(to.Addr())
	if !ok {
		a.entry.Address, a.entry.Port = to.Addr().String(), int(to.Port())
		a.refuse(reasonIPLiteral, "the name server has assigned this address to no name")
	}
	if !ok || !a.decide(request{Kind: KindTransparent, Host: name, Port: strconv.Itoa(int(to.Port()))}).Allowed {
		a.end(0, 0)
		_ = c.Close()
		return
	}
	first, why := c.readHello(name)
	switch {
	case why == reasonNotTLS && to.Port() != 443:
		c.early, c.redirectedTo = append(first, c.early...), &destination{name, to.Port()}
		p.http.serve(c) // each request is its own access
	case why.Word != "":
		a.refuseHello(c, first, why)
	default:
		defer func() { _ = c.Close() }()
		if up := a.dial(); up != nil {
			defer func() { _ = up.Close() }()
			a.tunnel(c, up, first)
		}
	}
}

// originalDestination returns where a connection was going before the kernel redirected it.
func originalDestination(c *net.TCPConn) netip.AddrPort {
	to := c.LocalAddr().(*net.TCPAddr).AddrPort()
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // fails only once c is closed
			// The value is a struct sockaddr_in. Its 16 bytes fit into Multiaddr.
			if got, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, soOriginalDst); err == nil {
				b := got.Multiaddr
				to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:]))
			}
		})
	}
	return netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
}
