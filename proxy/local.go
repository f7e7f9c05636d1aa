package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// isLocal asks the kernel where a packet to the address would go (rtnetlink(7),
// RTM_GETROUTE), and reports whether that is this host itself: an interface's address,
// or any other in the table of local routes. An address without a route is not local,
// and cannot be reached either.
func isLocal(a netip.Addr) (local bool, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return false, fmt.Errorf("open netlink: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	family, to := byte(unix.AF_INET), a.AsSlice()
	if a.Is6() {
		family = unix.AF_INET6
	}
	size := unix.SizeofNlMsghdr + unix.SizeofRtMsg + unix.SizeofRtAttr + len(to)
	m := binary.NativeEndian.AppendUint32(nil, uint32(size))
	m = binary.NativeEndian.AppendUint16(m, unix.RTM_GETROUTE)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST)
	m = append(m, make([]byte, 8)...) // sequence number and port
	m = append(m, family, byte(a.BitLen()))
	m = append(m, make([]byte, unix.SizeofRtMsg-2)...)
	m = binary.NativeEndian.AppendUint16(m, uint16(unix.SizeofRtAttr+len(to)))
	m = binary.NativeEndian.AppendUint16(m, unix.RTA_DST)
	if err := unix.Sendto(fd, append(m, to...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, fmt.Errorf("ask netlink: %w", err)
	}
	reply := make([]byte, 8192)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return false, fmt.Errorf("read netlink: %w", err)
	}
	const kindAt = unix.SizeofNlMsghdr + 7 // rtm_type of struct rtmsg
	switch {
	case n > kindAt && binary.NativeEndian.Uint16(reply[4:]) == unix.RTM_NEWROUTE:
		kind := reply[kindAt]
		return kind == unix.RTN_LOCAL || kind == unix.RTN_BROADCAST || kind == unix.RTN_ANYCAST, nil
	case n > kindAt && binary.NativeEndian.Uint16(reply[4:]) == unix.NLMSG_ERROR:
		switch errno := unix.Errno(-int32(binary.NativeEndian.Uint32(reply[unix.SizeofNlMsghdr:]))); errno {
		case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL, unix.EAFNOSUPPORT, unix.EOPNOTSUPP:
			return false, nil
		default:
			return false, fmt.Errorf("look up a route: %w", errno)
		}
	}
	return false, errors.New("read netlink: no answer about a route")
}
