package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/thread"
)

// Constants of linux/inet_diag.h, linux/sock_diag.h and net/tcp_states.h.
const (
	sizeofRequest, sizeofMessage = 56, 72 // struct inet_diag_req_v2, struct inet_diag_msg
	inodeAt                      = 68     // idiag_inode in the latter: 0 if no process has the socket
	memoryInfo                   = 7      // INET_DIAG_SKMEMINFO
	timeWait, listening          = 6, 10  // tcp_states.h
)

// socketBytes is the approximate size of what no control group is charged for a socket without
// its queues. All of an incoming connection's socket is charged to none, whether it is accepted
// or not.
const socketBytes = 2 << 10

// Estimate takes the kernel much less time than [Namespace.Uncounted]. Both results are bytes of
// memory that is charged to no control group: own is that of all sockets of the namespace, of any
// kind, without their queues; host is an upper bound for the connections of all the host's
// namespaces together, except those that are still being made (/proc/net/sockstat in proc(5)).
func (n *Namespace) Estimate() (own, host int64, err error) {
	const apart = 1 << 20 // what each processor may count for itself (net.core.mem_pcpu_rsv)
	processors, err := processors()
	if err != nil {
		return 0, 0, err
	}
	text := make([]byte, 4<<10)
	size, err := n.stat.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	var sockets, connections, pages, other int64
	if _, err := fmt.Sscanf(string(text[:size]), "sockets: used %d\nTCP: inuse %d orphan %d tw %d alloc %d mem %d",
		&sockets, &other, &other, &other, &connections, &pages); err != nil {
		return 0, 0, fmt.Errorf("/proc/net/sockstat: %w", err)
	}
	return sockets * socketBytes, pages*int64(os.Getpagesize()) + connections*socketBytes + processors*apart, nil
}

// processors returns how many processors the host can have, which are more than those that this
// process may use.
var processors = sync.OnceValues(func() (int64, error) {
	text, err := os.ReadFile("/sys/devices/system/cpu/possible") // such as "0-3"
	if err != nil {
		return 0, err
	}
	ranges := strings.TrimSpace(string(text))
	last, err := strconv.ParseInt(ranges[strings.LastIndexAny(ranges, "-,")+1:], 10, 64)
	return last + 1, err
})

// A diagnosis asks the kernel for the sockets of a network namespace (sock_diag(7)). An agent
// decides how long the answer is, up to a million sockets. So it is read in parts, each of which
// is summed up before the next is read: netlink.Conn keeps all parts until it has the last. To
// parse a part it uses the same function of package syscall, and exports none of its own.
type diagnosis struct {
	space *os.File // the network namespace
	fd    int      // -1 while it is not open
	reply []byte   // the buffer for one part
}

// diagnose opens a diagnosis for space, the calling thread's namespace. It returns nil if
// the kernel has no sock_diag.
func diagnose(space *os.File) (*diagnosis, error) {
	d := &diagnosis{space: space, reply: make([]byte, 64<<10)}
	err := d.open()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	return d, err
}

func (d *diagnosis) open() (err error) {
	d.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	return err
}

func (d *diagnosis) close() error {
	if d.fd < 0 {
		return nil
	}
	fd := d.fd
	d.fd = -1
	return unix.Close(fd)
}

// uncounted closes the socket after an error, since the rest of the answer may still be
// waiting in it; the next call opens another.
func (d *diagnosis) uncounted() (sum int64, err error) {
	if d.fd < 0 {
		err = thread.Run(func() error { return errors.Join(enter(d.space), d.open()) })
	}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		var n int64
		if err == nil {
			n, err = d.of(family)
		}
		sum += n
	}
	if err != nil {
		return 0, fmt.Errorf("count sockets: %w", errors.Join(err, d.close()))
	}
	return sum, nil
}

// of sums over the TCP sockets of a family that neither listen nor are in TIME-WAIT.
func (d *diagnosis) of(family byte) (sum int64, err error) {
	body := append([]byte{family, unix.IPPROTO_TCP, 1 << (memoryInfo - 1), 0}, make([]byte, sizeofRequest-4)...)
	binary.NativeEndian.PutUint32(body[4:], ^uint32(1<<timeWait|1<<listening))
	request, err := netlink.Message{Data: body, Header: netlink.Header{
		Length: unix.SizeofNlMsghdr + sizeofRequest, Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request | netlink.Dump,
	}}.MarshalBinary()
	if err != nil {
		return 0, err
	}
	if err := unix.Sendto(d.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	for done := false; !done && err == nil; {
		var n int64
		n, done, err = d.part()
		sum += n
	}
	return sum, err
}

// part reads one part of an answer; done means that it was the last.
func (d *diagnosis) part() (sum int64, done bool, err error) {
	n, _, flags, _, err := unix.Recvmsg(d.fd, d.reply, nil, 0)
	switch {
	case errors.Is(err, unix.EINTR):
		return 0, false, nil
	case err == nil && flags&unix.MSG_TRUNC != 0:
		err = errors.New("the kernel's answer is cut off")
	}
	if err != nil {
		return 0, false, err
	}
	messages, err := syscall.ParseNetlinkMessage(d.reply[:n])
	for _, m := range messages {
		switch {
		case m.Header.Type == unix.NLMSG_DONE, m.Header.Type == unix.NLMSG_ERROR:
			if len(m.Data) >= 4 && binary.NativeEndian.Uint32(m.Data) != 0 {
				err = unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
			}
			return sum, true, err
		case len(m.Data) >= sizeofMessage:
			sum += socketBytes
			if binary.NativeEndian.Uint32(m.Data[inodeAt:]) == 0 {
				bytes, err := queued(m.Data[sizeofMessage:])
				if err != nil {
					return 0, false, err
				}
				sum += bytes
			}
		}
	}
	return sum, false, err
}

// queued returns how many bytes the queues and the backlog of a socket hold, by its
// attributes.
func queued(attributes []byte) (sum int64, err error) {
	const received, reserved, sent, backlog = 0, 4, 5, 7 // sock_diag.h, SK_MEMINFO_*
	all, err := netlink.NewAttributeDecoder(attributes)
	if err != nil {
		return 0, err
	}
	for all.Next() {
		if value := all.Bytes(); all.Type() == memoryInfo && len(value) > 4*backlog {
			for _, i := range []int{received, reserved, sent, backlog} {
				sum += int64(int32(binary.NativeEndian.Uint32(value[4*i:])))
			}
		}
	}
	return sum, all.Err()
}
