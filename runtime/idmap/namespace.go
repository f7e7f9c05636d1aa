package idmap

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/thread"
)

// namespaces are a user namespace in which the host's ids from some base on are
// 0 to 65535, and a network namespace that it owns: an OCI runtime that joins
// both (runc 1.1) joins the user namespace first, and then needs its leave to
// join the other.
type namespaces struct{ user, network *os.File }

// newNamespaces makes owner the owner, an id of the host's.
func newNamespaces(owner, base uint32) (n namespaces, err error) {
	err = thread.Run(func() error {
		if err := becomeEffective(owner); err != nil {
			return err
		}
		return n.start(base)
	})
	return n, err
}

func (n namespaces) close() error {
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
	return raiseCapabilities()
}

// start takes the namespaces of a child that is traced, so that it stops before
// its first instruction, and killed.
func (n *namespaces) start(base uint32) error {
	mapping := []syscall.SysProcIDMap{{HostID: int(base), Size: Size}}
	child, err := os.StartProcess("/proc/self/exe", []string{"sbench"}, &os.ProcAttr{
		Sys: &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET, UidMappings: mapping, GidMappings: mapping,
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
		return errors.Join(err, n.close())
	}
	return nil
}
