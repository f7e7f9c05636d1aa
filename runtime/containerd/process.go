package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
)

// reconnectTimeout is how long a daemon may be away before its sandboxes are given up. A
// restarted one still knows them.
const reconnectTimeout = 10 * time.Second

// process is a started process, as the daemon and the kernel know it. The pidfd works even
// if the daemon does not.
type process struct {
	p     client.Process
	pidfd int // -1 if the process was gone before it could be opened
}

func hold(p client.Process) *process {
	fd, err := unix.PidfdOpen(int(p.Pid()), 0)
	if err != nil || p.Pid() == 0 {
		fd = -1
	}
	return &process{p: p, pidfd: fd}
}

func (p *process) close() error {
	if p.pidfd < 0 {
		return nil
	}
	fd := p.pidfd
	p.pidfd = -1
	return unix.Close(fd)
}

// kill works with or without the daemon. A missing process is no error.
func (p *process) kill(ctx context.Context) error {
	if p.pidfd >= 0 {
		if err := unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill: %w", err)
		}
		return nil
	}
	if err := p.p.Kill(ctx, unix.SIGKILL); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("kill: %w", native(err))
	}
	return nil
}

// await waits for the process and returns the exit status that the daemon reports. It
// survives a restart of the daemon, and gives up with ErrUnavailable if the daemon stays
// away.
func (p *process) await(ctx context.Context) (uint32, error) {
	var lost time.Time
	for {
		exited, err := p.p.Wait(ctx)
		if err == nil {
			st := <-exited
			if err = st.Error(); err == nil {
				return st.ExitCode(), nil
			}
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		err = native(err)
		if !errors.Is(err, runtime.ErrUnavailable) {
			return 0, err
		}
		if lost.IsZero() {
			lost = time.Now()
		}
		if time.Since(lost) > reconnectTimeout {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
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
