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

// closedNetworks returns the special-purpose networks of the IANA registries (RFC
// 6890) that are not globally reachable or lead to another address family, and the
// addresses of clouds' metadata services, each with its name. IPv6 outside 2000::/3 is not
// listed: check refuses all of it.
func closedNetworks() map[netip.Prefix]string {
	all := map[netip.Prefix]string{}
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
		all[netip.MustParsePrefix(n[0])] = n[1]
	}
	return all
}

// newAddressCheck returns a function that returns nil if an address may be dialled: it is
// public, and not this host's.
func newAddressCheck(local func(netip.Addr) (bool, error)) func(netip.Addr) error {
	if local == nil {
		local = isLocal
	}
	closed := closedNetworks()
	return func(address netip.Addr) error {
		a := address.Unmap()
		switch {
		case !a.IsValid() || a.Zone() != "":
			return &refusedAddress{address, "has a zone"}
		case address.Is4In6():
			return &refusedAddress{address, "IPv4 inside IPv6"}
		case a.Is6() && a.As16()[0]>>5 != 1: // 2000::/3
			return &refusedAddress{address, "not global unicast"}
		}
		for prefix, name := range closed { // they do not overlap
			if prefix.Contains(a) {
				return &refusedAddress{address, name}
			}
		}
		own, err := local(a)
		switch {
		case err != nil:
			return &refusedAddress{address, "the host's own addresses are unknown"}
		case own:
			return &refusedAddress{address, "the host's own"}
		}
		return nil
	}
}
