// Package userns makes user namespaces, each with a network namespace that belongs
// to it, and refers to them by file descriptor. A Go program can enter neither: an
// OCI runtime joins them, and a thread that opens sockets enters the second.
package userns

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/thread"
)

// A Mapping makes Size ids, from First on inside, those from Outside on of the
// namespace above, for users and for groups.
type Mapping struct{ First, Outside, Size uint32 }

// A Namespace is a user namespace and a network namespace that it owns: an OCI
// runtime that joins both (runc 1.1) joins the user namespace first, and then needs
// its leave to join the other. It lives until it is closed and the last process in
// it has ended.
type Namespace struct {
	user, network *os.File
	mappings      []Mapping
}

// New makes a namespace whose owner is a user of the namespace above. It needs
// CAP_SETUID and CAP_SETGID there.
func New(owner uint32, mappings []Mapping) (*Namespace, error) {
	n := &Namespace{mappings: mappings}
	err := thread.Run(func() error {
		if owner != 0 {
			if err := becomeEffective(owner); err != nil {
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

// Path names the user namespace for a process that shares this one's /proc. It
// is good until n is closed and while this process lives.
func (n *Namespace) Path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.user.Fd())
}

// User and Network are the open namespaces. They are closed with n.
func (n *Namespace) User() *os.File { return n.user }

// Network is the network namespace; see User.
func (n *Namespace) Network() *os.File { return n.network }

// Mappings are those that it was made with.
func (n *Namespace) Mappings() []Mapping { return n.mappings }

// Close drops this process's hold on the namespaces.
func (n *Namespace) Close() error {
	var errs []error
	for _, f := range []*os.File{n.user, n.network} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// becomeEffective makes id the effective user and group of this thread alone:
// the raw system calls, since the Go ones are about all threads.
func becomeEffective(id uint32) error {
	const same = ^uintptr(0)
	for _, number := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
		if _, _, errno := unix.RawSyscall(number, same, uintptr(id), same); errno != 0 {
			return fmt.Errorf("become id %d: %w", id, errno)
		}
	}
	return thread.RaiseCapabilities()
}

// start takes the namespaces of a child that is traced, so that it stops before
// its first instruction, and killed.
func (n *Namespace) start() error {
	var ids []syscall.SysProcIDMap
	for _, m := range n.mappings {
		ids = append(ids, syscall.SysProcIDMap{ContainerID: int(m.First), HostID: int(m.Outside), Size: int(m.Size)})
	}
	child, err := os.StartProcess("/proc/self/exe", []string{"sbench"}, &os.ProcAttr{
		Sys: &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET, UidMappings: ids, GidMappings: ids,
			GidMappingsEnableSetgroups: true, Ptrace: true, Pdeathsig: syscall.SIGKILL,
		},
	})
	if err != nil {
		return err
	}
	var openErrs [2]error
	n.user, openErrs[0] = os.Open(fmt.Sprintf("/proc/%d/ns/user", child.Pid))
	n.network, openErrs[1] = os.Open(fmt.Sprintf("/proc/%d/ns/net", child.Pid))
	killErr := child.Kill()
	_, waitErr := child.Wait()
	if err := errors.Join(openErrs[0], openErrs[1], killErr, waitErr); err != nil {
		return errors.Join(err, n.Close())
	}
	return nil
}

// Inside says whether this process is in a user namespace other than the first: its
// ids are not the host's.
func Inside() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(text)), " ") != "0 0 4294967295"
}

// HostRoot says whether this process is root of the first user namespace.
func HostRoot() bool { return os.Geteuid() == 0 && !Inside() }
