package sandbox

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/task"
)

// process is a process that a shim has made, with its pidfd, which works even if neither the shim
// nor the daemon does.
type process struct {
	*task.Process
	pidfd int // -1 if the process was gone before it could be opened
	// byStatus means that a signal shows in the status only, because the host's process is another.
	byStatus bool
}

func (p *process) close() error {
	if p.pidfd < 0 {
		return nil
	}
	fd := p.pidfd
	p.pidfd = -1
	return unix.Close(fd)
}

// kill is no error if the process is missing.
func (p *process) kill(ctx context.Context) error {
	var err error
	if p.pidfd >= 0 {
		err = unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0)
	} else {
		err = daemon.Native(p.Signal(ctx, unix.SIGKILL, false))
	}
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, runtime.ErrNotFound) {
		return fmt.Errorf("kill: %w", err)
	}
	return nil
}

// signal returns the signal that ended the process, 0 if none did. Exit statuses above 128
// are ambiguous: a process may exit with 137. From Linux 6.15 on, the kernel says which it
// was if the pidfd is open; otherwise such a status is taken for a signal.
func (p *process) signal(status uint32) int {
	if status <= 128 || status > 128+64 {
		return 0
	}
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT} // linux/pidfd.h
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(p.pidfd), unix.PIDFD_GET_INFO, uintptr(unsafe.Pointer(&info)))
	if p.byStatus || errno != 0 || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return int(status - 128)
	}
	if wait := unix.WaitStatus(info.Exit_code); wait.Signaled() {
		return int(wait.Signal())
	}
	return 0
}
