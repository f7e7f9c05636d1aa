package containerd

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/daemon"
)

// A task is a process that a shim has made, or is to make when it starts it.
type task interface {
	Pid() uint32 // 0 before it was made
	Start(ctx context.Context) error
	// Wait returns the exit status.
	Wait(ctx context.Context) (uint32, error)
	Kill(ctx context.Context) error
	// Delete makes the shim forget the task, which must have ended. It is no error if the shim
	// does not know it, or is gone.
	Delete(ctx context.Context) error
	IO() cio.IO
}

// A container has a first process, which is the embedded task, and others beside it.
type container interface {
	task
	// Add adds a process, which starts with its Start.
	Add(ctx context.Context, id string, p *specs.Process, std *streams) (task, error)
}

// process is a started task with its pidfd, which works even if neither the shim nor the daemon
// does.
type process struct {
	task
	pidfd int // -1 if the process was gone before it could be opened
}

func hold(t task) *process {
	fd, err := unix.PidfdOpen(int(t.Pid()), 0)
	if err != nil || t.Pid() == 0 {
		fd = -1
	}
	return &process{task: t, pidfd: fd}
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
		err = daemon.Native(p.Kill(ctx))
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
	if errno != 0 || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return int(status - 128)
	}
	if wait := unix.WaitStatus(info.Exit_code); wait.Signaled() {
		return int(wait.Signal())
	}
	return 0
}
