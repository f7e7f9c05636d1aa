package proxy

import (
	"fmt"
	"net/netip"
)

// A refusedAddress is the error of dialling an address that is not public.
type refusedAddress struct {
	address netip.Addr
	rule    string
}

func (e *refusedAddress) Error() string { return fmt.Sprintf("address %s: %s", e.address, e.rule) }

type network struct {
	prefix netip.Prefix
	name   string
}

// closedNetworks returns the special-purpose networks of the IANA registries (RFC
// 6890) that are not globally reachable or lead to another address family, and the
// addresses of clouds' metadata services. IPv6 outside 2000::/3 is not listed: check
// refuses all of it.
func closedNetworks() (all []network) {
	for _, n := range [][2]string{
		{"0.0.0.0/8", "unspecified"},
		{"10.0.0.0/8", "private"},
		{"100.64.0.0/10", "carrier-grade NAT"}, // Alibaba's metadata service, too
		{"127.0.0.0/8", "loopback"},
		{"169.254.0.0/16", "link-local"}, // most clouds' metadata service, too
		{"172.16.0.0/12", "private"},
		{"192.0.0.0/24", "protocol assignments"}, // Oracle's metadata service, too
		{"192.0.2.0/24", "documentation"},
		{"192.88.99.0/24", "6to4 relay"},
		{"192.168.0.0/16", "private"},
		{"198.18.0.0/15", "benchmarking"}, // inside a sandbox, ServeDNS hands these out
		{"198.51.100.0/24", "documentation"},
		{"203.0.113.0/24", "documentation"},
		{"224.0.0.0/4", "multicast"},
		{"240.0.0.0/4", "reserved"},
		{"168.63.129.16/32", "metadata of Azure"},
		{"2001::/23", "protocol assignments"},
		{"2001:db8::/32", "documentation"},
		{"2002::/16", "6to4"},
		{"3fff::/20", "documentation"},
	} {
		all = append(all, network{netip.MustParsePrefix(n[0]), n[1]})
	}
	return all
}

// An addressCheck refuses addresses that are not public, or are this host's.
type addressCheck struct {
	closed []network
	local  func(netip.Addr) (bool, error)
}

func newAddressCheck(local func(netip.Addr) (bool, error)) *addressCheck {
	if local == nil {
		local = isLocal
	}
	return &addressCheck{closed: closedNetworks(), local: local}
}

// check returns nil if the address may be dialled.
func (c *addressCheck) check(a netip.Addr) error {
	address := a
	a = a.Unmap()
	switch {
	case !a.IsValid() || a.Zone() != "":
		return &refusedAddress{address, "has a zone"}
	case address.Is4In6():
		return &refusedAddress{address, "IPv4 inside IPv6"}
	case a.Is6() && a.As16()[0]>>5 != 1: // 2000::/3
		return &refusedAddress{address, "not global unicast"}
	}
	for _, n := range c.closed {
		if n.prefix.Contains(a) {
			return &refusedAddress{address, n.name}
		}
	}
	own, err := c.local(a)
	switch {
	case err != nil:
		return &refusedAddress{address, "the host's own addresses are unknown"}
	case own:
		return &refusedAddress{address, "the host's own"}
	}
	return nil
}
