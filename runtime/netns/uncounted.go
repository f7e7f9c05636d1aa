package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Constants of linux/inet_diag.h, linux/sock_diag.h and net/tcp_states.h.
const (
	sizeofRequest, sizeofMessage = 56, 72 // struct inet_diag_req_v2, struct inet_diag_msg
	inodeAt                      = 68     // idiag_inode in the latter: 0 if no process has the socket
	memoryInfo                   = 7      // INET_DIAG_SKMEMINFO
	timeWait, listening          = 6, 10  // tcp_states.h
)

// socketBytes is about the size of a socket without its queues. For the socket of an
// incoming connection no control group is charged, whether it is accepted or not.
const socketBytes = 2 << 10

// A diagnosis asks the kernel for the sockets of a network namespace (sock_diag(7)).
type diagnosis struct{ fd int }

// diagnose opens a diagnosis for the calling thread's namespace. It returns nil if the
// kernel has no sock_diag for TCP.
func diagnose() (*diagnosis, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d := &diagnosis{fd}
	_, err = d.uncounted()
	if err == nil {
		return d, nil
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EPROTONOSUPPORT) {
		err = nil
	}
	return nil, errors.Join(err, d.close())
}

func (d *diagnosis) close() error { return unix.Close(d.fd) }

func (d *diagnosis) uncounted() (int64, error) {
	var sum int64
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		n, err := d.of(family)
		if err != nil {
			return 0, fmt.Errorf("count sockets: %w", err)
		}
		sum += n
	}
	return sum, nil
}

// of sums over the TCP sockets of a family that neither listen nor are in TIME-WAIT.
func (d *diagnosis) of(family byte) (sum int64, err error) {
	request := binary.NativeEndian.AppendUint32(nil, unix.SizeofNlMsghdr+sizeofRequest)
	request = binary.NativeEndian.AppendUint16(request, unix.SOCK_DIAG_BY_FAMILY)
	request = binary.NativeEndian.AppendUint16(request, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request = append(request, make([]byte, 8)...) // sequence and port numbers
	request = append(request, family, unix.IPPROTO_TCP, 1<<(memoryInfo-1), 0)
	request = binary.NativeEndian.AppendUint32(request, ^uint32(1<<timeWait|1<<listening))
	request = append(request, make([]byte, unix.SizeofNlMsghdr+sizeofRequest-len(request))...)
	if err := unix.Sendto(d.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	reply := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(d.fd, reply, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		bytes, done, err := sumUp(reply[:n])
		if err != nil || done {
			return sum + bytes, err
		}
		sum += bytes
	}
}

// sumUp reads the messages of one reply; done means that it was the last one.
func sumUp(reply []byte) (sum int64, done bool, err error) {
	for len(reply) >= unix.SizeofNlMsghdr {
		length, kind := int(binary.NativeEndian.Uint32(reply)), binary.NativeEndian.Uint16(reply[4:])
		if length < unix.SizeofNlMsghdr || length > len(reply) {
			break
		}
		body := reply[unix.SizeofNlMsghdr:length]
		switch {
		case kind == unix.NLMSG_DONE:
			return sum, true, nil
		case kind == unix.NLMSG_ERROR && len(body) >= 4:
			return 0, false, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case len(body) >= sizeofMessage:
			sum += socketBytes
			if binary.NativeEndian.Uint32(body[inodeAt:]) == 0 {
				sum += queued(body[sizeofMessage:])
			}
		}
		reply = reply[min(aligned(length), len(reply)):]
	}
	if len(reply) > 0 {
		return 0, false, errors.New("the kernel's answer is cut off")
	}
	return sum, false, nil
}

// queued returns how many bytes the queues and the backlog of a socket hold, according to
// its attributes.
func queued(attributes []byte) (sum int64) {
	const received, reserved, sent, backlog = 0, 4, 5, 7 // sock_diag.h, SK_MEMINFO_*
	for len(attributes) >= unix.SizeofRtAttr {
		length := int(binary.NativeEndian.Uint16(attributes))
		if length < unix.SizeofRtAttr || length > len(attributes) {
			break
		}
		if value := attributes[unix.SizeofRtAttr:length]; binary.NativeEndian.Uint16(attributes[2:]) == memoryInfo && len(value) > 4*backlog {
			for _, i := range []int{received, reserved, sent, backlog} {
				sum += int64(int32(binary.NativeEndian.Uint32(value[4*i:])))
			}
		}
		attributes = attributes[min(aligned(length), len(attributes)):]
	}
	return sum
}

// aligned returns the offset of the next message or attribute (netlink(3)).
func aligned(length int) int { return (length + 3) &^ 3 }
