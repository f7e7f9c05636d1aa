// Package netns creates network namespaces (network_namespaces(7)) that contain only a
// loopback interface and sockets of this process on it. A namespace is held by a file
// descriptor, not a mount, so nothing is left behind when this process dies.
package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/thread"
)

// Options say what a namespace contains besides its loopback interface. The zero
// Options add nothing.
type Options struct {
	// TCP and UDP are host:port addresses of the loopback interface to listen on.
	TCP, UDP []string
	// Redirect sends TCP connections to any port of any address in 198.18.0.0/15 to a socket of
	// this process. It needs nftables.
	Redirect bool
	// Namespace, if not nil, is used instead of a new namespace. The caller still closes it.
	Namespace *os.File
}

// A Namespace is a network namespace without any way out. It exists until it is closed and
// its last process has ended.
type Namespace struct {
	file    *os.File
	sockets []io.Closer // those below

	// TCP and UDP listen in the namespace, in the order of the addresses in Options.
	TCP []net.Listener
	UDP []net.PacketConn
	// Redirected accepts the connections to 198.18.0.0/15; nil without Redirect.
	Redirected net.Listener
}

// New creates a namespace whose loopback interface is up. It needs CAP_SYS_ADMIN in the
// current user namespace. The caller closes the result.
func New(o Options) (*Namespace, error) {
	n := &Namespace{}
	if err := thread.Run(func() error { return n.make(o) }); err != nil {
		return nil, fmt.Errorf("network namespace: %w", errors.Join(err, n.Close()))
	}
	return n, nil
}

// Join opens further sockets in the namespace. Closing the result closes only these.
func (n *Namespace) Join(tcp, udp []string) (*Namespace, error) {
	return New(Options{TCP: tcp, UDP: udp, Namespace: n.file})
}

// make moves the calling thread into the namespace and opens the sockets there: a socket
// belongs to the namespace of the thread that creates it.
func (n *Namespace) make(o Options) error {
	if err := enter(o.Namespace); err != nil {
		return err
	}
	var err error
	if n.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	// Low ports need no privilege in a namespace that nobody shares. The OCI runtime could
	// not set this for a sandbox with its own user namespace, which does not own the network
	// namespace.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0); err != nil {
		return fmt.Errorf("open low ports: %w", err)
	}
	if err := boundQueues(); err != nil {
		return err
	}
	if err := n.listen(o); err != nil {
		return err
	}
	if !o.Redirect {
		return nil
	}
	return n.redirect()
}

// boundQueues limits memory that is charged to no control group: data queued in connections that
// no process has accepted or still holds, and what options add to a socket (ip-sysctl.rst,
// net.rst). Some kernels lack some of these settings per namespace, or in a namespace made by an
// ordinary user.
func boundQueues() error {
	for name, value := range map[string]string{
		"core/somaxconn": "128", "core/optmem_max": "20480", "ipv4/tcp_rmem": "4096 131072 262144", "ipv4/tcp_wmem": "4096 16384 262144",
		"ipv4/tcp_fin_timeout": "5", "ipv4/tcp_orphan_retries": "1", "ipv4/tcp_max_tw_buckets": "4096",
	} {
		err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("bound the queues of connections: %w", err)
		}
	}
	return nil
}

// enter moves the calling thread into namespace, or into a new one if it is nil.
func enter(namespace *os.File) error {
	if namespace == nil {
		return os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNET))
	}
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter: %w", err)
	}
	return nil
}

func (n *Namespace) listen(o Options) error {
	var err error
	if n.TCP, err = n.listenTCP(o.TCP...); err != nil {
		return err
	}
	for _, address := range o.UDP {
		c, err := net.ListenPacket("udp", address)
		if err != nil {
			return err
		}
		n.UDP, n.sockets = append(n.UDP, c), append(n.sockets, c)
	}
	return nil
}

// listenTCP listens without MPTCP, which would hide a redirected connection's original
// destination.
func (n *Namespace) listenTCP(addresses ...string) (all []net.Listener, err error) {
	config := net.ListenConfig{KeepAlive: -1} // the other side is a process of the sandbox
	config.SetMultipathTCP(false)
	for _, address := range addresses {
		l, err := config.Listen(context.Background(), "tcp4", address)
		if err != nil {
			return nil, err
		}
		all, n.sockets = append(all, l), append(n.sockets, l)
	}
	return all, nil
}

// loopbackUp sets IFF_UP on lo (netdevice(7)), which is down in a new namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// Path returns a path to the namespace for processes that share this one's /proc. It is
// valid while n is open and this process lives.
func (n *Namespace) Path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd())
}

// Close closes the sockets and releases the namespace. Already closed sockets are no error.
func (n *Namespace) Close() error {
	var errs []error
	for _, s := range n.sockets {
		if err := s.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if n.file != nil {
		errs = append(errs, n.file.Close())
	}
	return errors.Join(errs...)
}
