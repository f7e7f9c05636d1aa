// Package userns makes user namespaces, each with a network namespace that belongs
// to it, and refers to them by file descriptor. A process of this program's own can
// enter neither: what joins them, and who opens sockets there, does.
package userns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Mapping makes Size ids, from First on inside, those from Outside on of the
// namespace above, for users and for groups.
type Mapping struct{ First, Outside, Size uint32 }

// A Namespace lives until it is closed and the last process in it has ended.
type Namespace struct {
	User, Net *os.File
}

// New makes a user namespace with mappings, and a network namespace that it owns.
// program is a static program that waits to be killed; it is what the namespaces
// are made for, and is gone when New returns. New needs CAP_SETUID and CAP_SETGID
// in the namespace above.
func New(program string, mappings []Mapping) (*Namespace, error) {
	ids := make([]syscall.SysProcIDMap, 0, len(mappings))
	for _, m := range mappings {
		ids = append(ids, syscall.SysProcIDMap{ContainerID: int(m.First), HostID: int(m.Outside), Size: int(m.Size)})
	}
	cmd := exec.Command(program)
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	n := &Namespace{}
	err := n.open(cmd.Process.Pid)
	err = errors.Join(err, cmd.Process.Kill())
	var killed *exec.ExitError
	if waitErr := cmd.Wait(); waitErr != nil && !errors.As(waitErr, &killed) {
		err = errors.Join(err, waitErr)
	}
	if err != nil {
		return nil, fmt.Errorf("user namespace: %w", errors.Join(err, n.Close()))
	}
	return n, nil
}

func (n *Namespace) open(pid int) error {
	var err error
	if n.User, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", pid)); err != nil {
		return err
	}
	n.Net, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	return err
}

// Path names the user namespace for a process that shares this one's /proc. It is
// good while n is open and this process lives.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.User.Fd()) }

// Close drops this process's hold on the namespaces.
func (n *Namespace) Close() error {
	var errs []error
	for _, f := range []**os.File{&n.User, &n.Net} {
		if *f != nil {
			errs = append(errs, (*f).Close())
			*f = nil
		}
	}
	return errors.Join(errs...)
}
