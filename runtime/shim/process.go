package shim

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// process is a process of a sandbox: its first, or one that was added.
type process struct {
	stdin, stdout, stderr string
	spec                  []byte // of an added process
	namespace             string // its PID namespace; known once the OCI runtime has made it

	mu      sync.Mutex
	pid     int      // 0 until the OCI runtime has made it
	pidfd   *os.File // nil before that, and after the end
	started bool     // it executes its program

	done   chan struct{} // closed at the end, when the following are known
	status uint32
	ended  time.Time
}

func newProcess(stdin, stdout, stderr string, spec []byte) *process {
	return &process{stdin: stdin, stdout: stdout, stderr: stderr, spec: spec, done: make(chan struct{})}
}

// adopt takes up the process whose pid the OCI runtime wrote to a file. It is a child of
// this process, because its parent was the runtime, which has ended.
func (p *process) adopt(pidFile string) error {
	pid, err := readPid(pidFile)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.pidfd, p.namespace = pid, os.NewFile(uintptr(fd), "pidfd"), pidNamespace(pid)
	go p.reap(pid, p.pidfd)
	return nil
}

// reap waits for the end, without a thread of its own.
func (p *process) reap(pid int, pidfd *os.File) {
	var status unix.WaitStatus
	conn, err := pidfd.SyscallConn()
	if err == nil {
		var failed error
		err = conn.Read(func(uintptr) bool {
			var reaped int
			for {
				reaped, failed = unix.Wait4(pid, &status, unix.WNOHANG, nil)
				// A process can make its parent trace it (ptrace(2), PTRACE_TRACEME), and stop.
				stopped := reaped == pid && !status.Exited() && !status.Signaled()
				if failed != unix.EINTR && !stopped {
					return reaped == pid || failed != nil
				}
			}
		})
		if failed != nil {
			err = failed
		}
	}
	p.status, p.ended = 255, time.Now()
	switch {
	case err != nil:
	case status.Exited():
		p.status = uint32(status.ExitStatus())
	case status.Signaled():
		p.status = 128 + uint32(status.Signal())
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

// state returns the pid, 0 if there is none yet, and whether the process has been started.
func (p *process) state() (pid uint32, started bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return uint32(p.pid), p.started
}

func (p *process) setStarted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = true
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
	// Not Fd, which would make the descriptor blocking.
	conn, err := p.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), unix.Signal(number), nil, 0) })
	if err != nil {
		return err
	}
	return sent
}
