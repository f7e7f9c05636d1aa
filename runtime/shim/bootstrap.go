// Package shim implements sbench's shim for containerd: the process between the daemon and
// the OCI runtime. It serves version 2 of the task API, which containerd 1.6 to 2.x speak,
// with far fewer executions of programs than containerd's own shim, and for all sandboxes of
// a run from one process.
//
// containerd executes the shim's program with an action for each sandbox: "start", which
// starts the server of the run or finds it, and prints its address; and "delete", once the
// connection to the server has ended for whatever reason. A server ends when it has had
// no sandbox for ten seconds.
//
// The shim does only what sbench needs: no terminals, root file systems that are mounted
// already, no checkpoints, no statistics, no events.
package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Program is the name of the shim's program, and Runtime the name by which a daemon that has
// it in its PATH knows it.
const (
	Program = "containerd-shim-sbench-v1"
	Runtime = "io.containerd.sbench.v1"
)

// linger is for how long a server without sandboxes waits for the next.
const linger = 10 * time.Second

// A Call is an execution of the program by containerd.
type Call struct {
	Namespace string // the daemon's
	ID        string // of the container: the run's id, a hyphen, and anything
	Address   string // of the daemon
	Bundle    string // the container's directory
}

// Socket returns the path of the socket of a run's server, beside that of the daemon.
func Socket(daemon, run string) string {
	return filepath.Join(filepath.Dir(strings.TrimPrefix(daemon, "unix://")), "sbench-"+run)
}

func (c Call) socket() string {
	run, _, _ := strings.Cut(c.ID, "-")
	return Socket(c.Address, run)
}

// locked calls f while no other process starts or ends a server of this daemon.
func (c Call) locked(f func(socket string) error) error {
	socket := c.socket()
	dir, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // and with it the lock
	for {
		if err = unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", dir.Name(), err)
	}
	return f(socket)
}

// Start writes the address of the run's server, which it starts unless it runs. The working
// directory is the bundle.
func (c Call) Start(w io.Writer) error {
	return c.locked(func(socket string) error {
		if !answers(socket) {
			if err := c.spawn(socket); err != nil {
				return err
			}
		}
		// The server sees by the time that it must wait for one more sandbox.
		now := time.Now()
		if err := os.Chtimes(socket, now, now); err != nil {
			return err
		}
		// containerd 1.6 does not keep the answer, and reads this file after a restart.
		address := "unix://" + socket
		if err := os.WriteFile("address", []byte(address), 0o600); err != nil {
			return err
		}
		_, err := io.WriteString(w, address)
		return err
	})
}

func answers(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// spawn starts the server, which serves the socket that it inherits.
func (c Call) spawn(socket string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// Whoever connects can have programs executed. The sandboxes inherit the old mask.
	mask := unix.Umask(0o077)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	unix.Umask(mask)
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	defer func() { _ = l.Close() }()
	inherited, err := l.File()
	if err != nil {
		return err
	}
	defer func() { _ = inherited.Close() }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-namespace", c.Namespace, "-address", c.Address, "-id", c.ID, "serve")
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{inherited}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, os.Remove(socket))
	}
	return cmd.Process.Release()
}

// Serve serves the socket that Start made, which is file descriptor 3, until it is idle.
func (c Call) Serve() error {
	// Memory matters more than time here: a host may run a server for each of many runs.
	debug.SetGCPercent(40)
	// Processes whose parents were OCI runtimes become this one's children.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	l, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	tasks := newService()
	taskapi.RegisterTTRPCTaskService(server, tasks)
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), l) }()
	for {
		select {
		case err := <-served:
			return err
		case <-time.After(linger / 2):
		}
		idle := false
		err := c.locked(func(socket string) error {
			info, err := os.Stat(socket)
			if err == nil && time.Since(info.ModTime()) <= linger || !tasks.empty() {
				return nil
			}
			idle = true
			return os.RemoveAll(socket) // which may be gone
		})
		if idle || err != nil && tasks.empty() {
			return err
		}
	}
}

// Delete removes what a server that died left of a sandbox, and writes how the sandbox
// ended. After the server's own deletion nothing is left.
func (c Call) Delete(w io.Writer) error {
	b := bundle(c.Bundle)
	runtime, err := b.runtime()
	if err != nil {
		return err
	}
	if runtime == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(b.state(), c.ID)); err == nil {
		out, err := exec.Command(runtime, "--root", b.state(), "delete", "--force", c.ID).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s delete: %w: %s", runtime, err, out)
		}
	}
	answer, err := proto.Marshal(&taskapi.DeleteResponse{ExitStatus: 128 + uint32(unix.SIGKILL), ExitedAt: timestamppb.Now()})
	if err != nil {
		return err
	}
	_, err = w.Write(answer)
	return err
}
