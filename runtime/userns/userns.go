// Package userns creates user namespaces (user_namespaces(7)), each with a network namespace
// that it owns, and holds them by file descriptors. A Go program has several threads and so
// cannot enter a user namespace itself: an OCI runtime joins both, and a thread that opens
// sockets enters only the network namespace.
package userns

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/thread"
)

// A Mapping maps Size consecutive ids, for users and groups alike: those that start at
// First in the namespace to those that start at Outside in its parent.
type Mapping struct{ First, Outside, Size uint32 }

// A Namespace is a user namespace with a network namespace that it owns: an OCI runtime such as
// runc 1.1 joins the user namespace first, and needs the capabilities it has there to join the
// other. Both exist until n is closed and the last process in them has ended.
type Namespace struct {
	user, network *os.File
	mappings      []Mapping
}

// New creates a namespace owned by owner, a user id of the current user namespace, in which
// the process needs CAP_SETUID and CAP_SETGID. The caller closes the result.
func New(owner uint32, mappings []Mapping) (*Namespace, error) {
	n := &Namespace{mappings: mappings}
	err := thread.Run(func() error {
		if owner != 0 {
			if err := thread.Become(owner); err != nil {
				return err
			}
		}
		return n.start()
	})
	if err != nil {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	return n, nil
}

// Path returns a path to the user namespace for processes that share this one's /proc. It is
// valid while n is open and this process lives.
func (n *Namespace) Path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.user.Fd())
}

// User returns the open user namespace. It is closed with n.
func (n *Namespace) User() *os.File { return n.user }

// Network returns the open network namespace. It is closed with n.
func (n *Namespace) Network() *os.File { return n.network }

// Mappings returns the mappings that the namespace was created with.
func (n *Namespace) Mappings() []Mapping { return n.mappings }

// Close releases the namespaces.
func (n *Namespace) Close() error {
	var errs []error
	for _, f := range []*os.File{n.user, n.network} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// start opens the namespaces of a child process and then kills the child, which does nothing. It
// must be called on a thread that is not used again. The child shares this process's memory and
// open files: a copy of the memory, as os.StartProcess makes for a new user namespace, would cost
// a large process more than all the rest.
func (n *Namespace) start() error {
	// The child has no memory of its own for a signal handler.
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil); err != nil {
		return fmt.Errorf("block signals: %w", err)
	}
	pid := clone(unix.CLONE_VM|unix.CLONE_FILES|unix.CLONE_NEWUSER|unix.CLONE_NEWNET|uintptr(unix.SIGCHLD), unix.Getpid())
	if pid < 0 {
		return os.NewSyscallError("clone", unix.Errno(-pid))
	}
	err := n.open(pid)
	err = errors.Join(err, unix.Kill(pid, unix.SIGKILL))
	for {
		if _, waitErr := unix.Wait4(pid, nil, 0, nil); waitErr != unix.EINTR {
			err = errors.Join(err, waitErr)
			break
		}
	}
	if err != nil {
		return errors.Join(err, n.Close())
	}
	return nil
}

// open sets the mappings of a process's user namespace and opens its namespaces.
func (n *Namespace) open(pid int) error {
	var ids strings.Builder
	for _, m := range n.mappings {
		fmt.Fprintln(&ids, m.First, m.Outside, m.Size)
	}
	process := fmt.Sprintf("/proc/%d/", pid)
	for _, name := range []string{"uid_map", "gid_map"} {
		if err := os.WriteFile(process+name, []byte(ids.String()), 0); err != nil {
			return err
		}
	}
	var err error
	if n.user, err = os.Open(process + "ns/user"); err == nil {
		n.network, err = os.Open(process + "ns/net")
	}
	return err
}

// clone makes a child process with the given flags of clone(2), among them CLONE_VM, which
// executes nothing but pause(2) and is killed when the calling thread ends. It exits if its parent
// is not the given process. clone returns the child's id or, negative, an error number. All
// signals must be blocked.
func clone(flags uintptr, parent int) (pid int)

// Inside reports whether this process is in a user namespace other than the initial one, so
// that its ids are not the host's.
func Inside() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(text)), " ") != "0 0 4294967295"
}

// HostRoot reports whether this process is root in the initial user namespace.
func HostRoot() bool { return os.Geteuid() == 0 && !Inside() }

// ContainerRights is a cure for what a container's engine keeps from processes that would run sandboxes.
const ContainerRights = "in a container, run sbench as an ordinary user, and start the container with more rights (Docker: " +
	"--security-opt seccomp=unconfined --security-opt systempaths=unconfined --security-opt apparmor=unconfined; " +
	"Podman: --security-opt unmask=all), or as root in one that is --privileged"

// MayMount returns an error if this process cannot make mounts of its own, as the root of a container without
// privileges cannot.
func MayMount() error {
	return thread.Run(func() error { return os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNS)) })
}

// Restriction returns how this host keeps ordinary users from making user namespaces, and what its root
// can do about it; "" if no setting does.
func Restriction() (why, cure string) {
	for _, s := range []struct{ setting, value, why, cure string }{
		{"user/max_user_namespaces", "0", "not available", `run "sysctl -w user.max_user_namespaces=15000"`},
		{"kernel/unprivileged_userns_clone", "0", "for root only", `run "sysctl -w kernel.unprivileged_userns_clone=1"`},
		{"kernel/apparmor_restrict_unprivileged_userns", "1", "restricted by AppArmor", "give sbench the profile in docs/install.md, as its deb does"},
	} {
		if proc.Text("/proc/sys/"+s.setting) == s.value {
			return s.why, s.cure
		}
	}
	return "", ""
}

// Below returns how many levels the user namespace of a process is below this process's: 0
// if both are in the same one (ioctl_ns(2), NS_GET_PARENT), and -1 if it is not below, or
// the process has ended or belongs to another user.
func Below(pid int) int {
	own, err := os.Stat("/proc/self/ns/user")
	if err != nil {
		return -1
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	for level := 0; err == nil; level++ {
		info, statErr := f.Stat()
		if statErr == nil && os.SameFile(info, own) {
			_ = f.Close()
			return level
		}
		var parent int
		parent, err = unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_PARENT) // fails for the initial namespace, or one that we may not see
		_ = f.Close()
		f = os.NewFile(uintptr(parent), "user namespace")
	}
	return -1
}
