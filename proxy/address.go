package proxy

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A refusedAddress is the error of dialling an address that is not public.
type refusedAddress struct {
	address netip.Addr
	rule    string
}

func (e *refusedAddress) Error() string { return fmt.Sprintf("address %s: %s", e.address, e.rule) }

// deniedNetworks returns the networks that no sandbox may reach, by name: the special-purpose networks
// of the IANA registries (RFC 6890), and the metadata services of clouds. IPv6 outside of 2000::/3 is
// missing: newAddressCheck refuses it.
func deniedNetworks() map[netip.Prefix]string {
	prefix := netip.MustParsePrefix
	return map[netip.Prefix]string{
		prefix("0.0.0.0/8"):        "unspecified",
		prefix("10.0.0.0/8"):       privateNetwork,
		prefix("100.64.0.0/10"):    "carrier-grade NAT", // Alibaba's metadata service, too
		prefix("127.0.0.0/8"):      "loopback",
		prefix("169.254.0.0/16"):   "link-local", // most clouds' metadata service, too
		prefix("172.16.0.0/12"):    privateNetwork,
		prefix("192.0.0.0/24"):     "protocol assignments", // Oracle's metadata service, too
		prefix("192.0.2.0/24"):     "documentation",
		prefix("192.88.99.0/24"):   "6to4 relay",
		prefix("192.168.0.0/16"):   privateNetwork,
		prefix("198.18.0.0/15"):    "benchmarking", // ServeDNS assigns these inside a sandbox
		prefix("198.51.100.0/24"):  "documentation",
		prefix("203.0.113.0/24"):   "documentation",
		prefix("224.0.0.0/4"):      "multicast",
		prefix("240.0.0.0/4"):      "reserved",
		prefix("168.63.129.16/32"): "metadata of Azure",
		prefix("2001::/23"):        "protocol assignments",
		prefix("2001:db8::/32"):    "documentation",
		prefix("2002::/16"):        "6to4",
		prefix("3fff::/20"):        "documentation",
	}
}

// privateNetwork is the name of RFC 1918's networks in deniedNetworks.
const privateNetwork = "private"

// newAddressCheck returns a function that returns nil for an address that the proxy may dial: a public
// address that is not this host's or, if private is set, one in RFC 1918's networks.
func newAddressCheck(local func(netip.Addr) (bool, error)) func(address netip.Addr, private bool) error {
	denied := deniedNetworks()
	return func(address netip.Addr, private bool) error {
		a := address.Unmap()
		switch {
		case !a.IsValid() || a.Zone() != "":
			return &refusedAddress{address, "has a zone"}
		case address.Is4In6():
			return &refusedAddress{address, "IPv4 inside IPv6"}
		case a.Is6() && a.As16()[0]>>5 != 1: // 2000::/3
			return &refusedAddress{address, "not global unicast"}
		}
		for prefix, name := range denied { // they do not overlap
			if prefix.Contains(a) && !(private && name == privateNetwork) {
				return &refusedAddress{address, name}
			}
		}
		isHosts, err := local(a)
		switch {
		case err != nil:
			return &refusedAddress{address, "the host's own addresses are unknown"}
		case isHosts:
			return &refusedAddress{address, "the host's own"}
		}
		return nil
	}
}

// isLocal asks the kernel where a packet to the address would go (rtnetlink(7), RTM_GETROUTE), and
// reports whether it would go to this host: to an interface's address, or to another address in the
// table of local routes. An address without a route is not local, and cannot be reached.
func isLocal(a netip.Addr) (bool, error) {
	kernel, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return false, fmt.Errorf("open netlink: %w", err)
	}
	defer func() { _ = kernel.Close() }()
	family := byte(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	to := netlink.NewAttributeEncoder()
	to.Bytes(unix.RTA_DST, a.AsSlice())
	attributes, err := to.Encode()
	if err != nil {
		return false, err
	}
	ask := make([]byte, unix.SizeofRtMsg)
	ask[0], ask[1] = family, byte(a.BitLen()) // rtm_family, rtm_dst_len
	answers, err := kernel.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETROUTE, Flags: netlink.Request}, Data: append(ask, attributes...)})
	for _, noRoute := range []unix.Errno{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL, unix.EAFNOSUPPORT, unix.EOPNOTSUPP} {
		if errors.Is(err, noRoute) {
			return false, nil
		}
	}
	if err == nil && (len(answers) == 0 || answers[0].Header.Type != unix.RTM_NEWROUTE || len(answers[0].Data) < unix.SizeofRtMsg) {
		err = errors.New("no answer")
	}
	if err != nil {
		return false, fmt.Errorf("look up a route: %w", err)
	}
	kind := answers[0].Data[7] // rtm_type
	return kind == unix.RTN_LOCAL || kind == unix.RTN_BROADCAST || kind == unix.RTN_ANYCAST, nil
}
