package shim

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
)

// process is a process of a sandbox: its first, or one that was added.
type process struct {
	stdin, stdout, stderr string
	spec                  []byte // of an added process
	namespace             string // its PID namespace; known once the OCI runtime has made it

	started bool // it executes its program; guarded by the task's changing

	mu    sync.Mutex
	pid   int      // 0 until the OCI runtime has made it
	pidfd *os.File // nil before that, and after the end

	done   chan struct{} // closed at the end, when the following are known
	status uint32
	err    error // why the status is unknown
	ended  time.Time
}

func newProcess(stdin, stdout, stderr string, spec []byte) *process {
	return &process{stdin: stdin, stdout: stdout, stderr: stderr, spec: spec, done: make(chan struct{})}
}

// adopt takes up the process whose pid the OCI runtime wrote to a file. It is a child of
// this process, because its parent was the runtime, which has ended.
func (p *process) adopt(pidFile string) error {
	pid, err := strconv.Atoi(proc.Text(pidFile))
	if err != nil {
		return fmt.Errorf("what the OCI runtime wrote to %s: %w", pidFile, err)
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer reapThreadsOf(pid) // those that ended before reapThreads knew of the process
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.pidfd = pid, os.NewFile(uintptr(fd), "pidfd")
	p.namespace, _ = proc.Namespace(pid, "pid")
	go p.reap(pid, p.pidfd)
	return nil
}

// reap waits for the end, without a thread of its own unless the host is short of something.
func (p *process) reap(pid int, pidfd *os.File) {
	var status unix.WaitStatus
	var err error
	ended := func(options int) bool {
		for {
			var reaped int
			reaped, err = unix.Wait4(pid, &status, options, nil)
			// A process can make its parent trace it (ptrace(2), PTRACE_TRACEME), and stop.
			stopped := reaped == pid && !status.Exited() && !status.Signaled()
			if err != unix.EINTR && !stopped {
				return reaped == pid || err != nil
			}
		}
	}
	conn, connErr := pidfd.SyscallConn()
	if connErr != nil || conn.Read(func(uintptr) bool { return ended(unix.WNOHANG) }) != nil {
		// The pidfd cannot be polled: epoll(7) has a limit, which the sandbox may share.
		ended(0)
	}
	p.err, p.ended = err, time.Now()
	if status.Signaled() {
		p.status = 128 + uint32(status.Signal())
	} else {
		p.status = uint32(status.ExitStatus())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = pidfd.Close()
	p.pidfd = nil
	close(p.done)
}

func (p *process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// id returns the pid, 0 if there is none yet.
func (p *process) id() uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return uint32(p.pid)
}

func (p *process) signal(number uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.pid == 0:
		return fmt.Errorf("the process was not started: %w", errdefs.ErrFailedPrecondition)
	case p.pidfd == nil:
		return unix.ESRCH
	}
	return proc.WithDescriptor(p.pidfd, func(fd int) error { return unix.PidfdSendSignal(fd, unix.Signal(number), nil, 0) })
}
