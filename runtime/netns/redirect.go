package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// block returns the addresses from which connections are redirected to sockets of this
// process. RFC 2544 reserves them for benchmarking network devices, so no server on the
// internet has one of them.
func block() netip.Prefix { return netip.MustParsePrefix("198.18.0.0/15") }

// redirect sends connections to the block to a socket of this process.
func (n *Namespace) redirect() error {
	if err := addLocalRoute(block()); err != nil {
		return fmt.Errorf("route %s to lo: %w", block(), err)
	}
	l, err := n.listenTCP("127.0.0.1:0")
	if err != nil {
		return err
	}
	n.Redirected = l[0]
	if err := redirectTo(block(), uint16(l[0].Addr().(*net.TCPAddr).Port)); err != nil {
		return fmt.Errorf("redirect connections: the kernel has no nftables, or does not let sbench use them: %w", err)
	}
	return nil
}

// redirectTo adds the rule "nat output ip daddr RANGE tcp redirect to :PORT".
func redirectTo(to netip.Prefix, port uint16) error {
	c, err := nftables.New()
	if err != nil {
		return err
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
	return c.Flush()
}

// addLocalRoute makes all addresses of a prefix local to lo, as
// "ip route add local PREFIX dev lo" does (rtnetlink(7)).
func addLocalRoute(to netip.Prefix) error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	address := to.Masked().Addr().As4()
	attributes := netlink.NewAttributeEncoder()
	attributes.Bytes(unix.RTA_DST, address[:])
	attributes.Uint32(unix.RTA_OIF, uint32(lo.Index))
	encoded, err := attributes.Encode()
	if err != nil {
		return err
	}
	route := []byte{unix.AF_INET, byte(to.Bits()), 0, 0, // destination and source prefix, tos
		unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0} // no flags
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	_, err = c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_NEWROUTE, Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl},
		Data:   append(route, encoded...),
	})
	return errors.Join(err, c.Close())
}
