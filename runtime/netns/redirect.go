package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Range returns the range of addresses from which connections are redirected to sockets of
// this process. RFC 2544 reserves it for benchmarks of network devices, so no server on the
// internet has an address in it.
func Range() netip.Prefix { return netip.MustParsePrefix("198.18.0.0/15") }

// errNoNFTables means that the kernel has no nftables, or does not let us use them.
var errNoNFTables = errors.New("no nftables")

// redirect makes connections to Range arrive at sockets of this process. It uses an
// nftables rule if rule is set and the kernel supports it.
func (n *Namespace) redirect(rule bool) error {
	if err := addLocalRoute(Range()); err != nil {
		return fmt.Errorf("route %s to lo: %w", Range(), err)
	}
	if rule {
		l, err := listenTCP("127.0.0.1:0")
		if err != nil {
			return err
		}
		n.Redirected = []net.Listener{l}
		err = redirectTo(Range(), uint16(l.Addr().(*net.TCPAddr).Port))
		if !errors.Is(err, errNoNFTables) {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return n.listenOnAny()
}

// listenOnAny listens on every local address, which includes those of the local route.
func (n *Namespace) listenOnAny() error {
	n.AnyAddress, n.Redirected = true, nil
	for _, address := range []string{"0.0.0.0:80", "0.0.0.0:443"} {
		l, err := listenTCP(address)
		if err != nil {
			return err
		}
		n.Redirected = append(n.Redirected, l)
	}
	return nil
}

// redirectTo adds the rule "nat output ip daddr RANGE tcp redirect to :PORT".
func redirectTo(to netip.Prefix, port uint16) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoNFTables, err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "sbench"})
	chain := c.AddChain(&nftables.Chain{
		Name: "output", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
	})
	address, mask := to.Masked().Addr().As4(), net.CIDRMask(to.Bits(), 32)
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}, // daddr
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: address[:]},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
		&expr.Redir{RegisterProtoMin: 1},
	}})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errNoNFTables, err)
	}
	return nil
}

// addLocalRoute makes all addresses of a prefix local to lo, as
// "ip route add local PREFIX dev lo" does (rtnetlink(7)).
func addLocalRoute(to netip.Prefix) error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	address := to.Masked().Addr().As4()
	var body []byte
	body = append(body, unix.AF_INET, byte(to.Bits()), 0, 0, // destination and source prefix, tos
		unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL)
	body = binary.NativeEndian.AppendUint32(body, 0) // flags
	body = appendAttribute(body, unix.RTA_DST, address[:])
	body = appendAttribute(body, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(lo.Index)))
	return netlink(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, body)
}

func appendAttribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(b, value...) // all values here are aligned
}

// netlink sends one routing request and waits for its acknowledgement.
func netlink(kind, flags uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	msg := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	msg = binary.NativeEndian.AppendUint16(msg, kind)
	msg = binary.NativeEndian.AppendUint16(msg, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	msg = append(msg, make([]byte, 8)...) // sequence and port numbers
	if err := unix.Sendto(fd, append(msg, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	reply := make([]byte, 4096)
	count, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return err
	}
	if count < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(reply[4:]) != unix.NLMSG_ERROR {
		return errors.New("no acknowledgement from the kernel")
	}
	if errno := -int32(binary.NativeEndian.Uint32(reply[unix.SizeofNlMsghdr:])); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}
