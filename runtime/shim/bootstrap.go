// Package shim implements sbench's shim for containerd: the process between the daemon and
// the OCI runtime.
//
// A run has one server. containerd starts, watches and ends it as any shim: the daemon knows one
// container of the run, the anchor, and the task of the anchor is the server itself. The daemon
// knows nothing of the run's sandboxes. sbench makes them by calling the server, with version 2 of
// containerd's task API and bundles of its own. So a sandbox costs neither an entry in the daemon's
// database nor an execution of the shim. What containerd promises about a shim holds for all
// sandboxes of the run:
//
//   - They survive a restart of the daemon.
//   - When the server has ended, for whatever reason, the daemon executes the program once more,
//     with the action "delete", which removes them.
//
// The shim does only what sbench needs: no terminals, root file systems that are mounted
// already, no checkpoints, no statistics, no events. It does not use containerd's library for
// shims: containerd 1.6 to 2.3 cannot read what the library of containerd 2.4 prints at its start.
package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/securebench/sbench/runtime/proc"
)

// Program is the name of the shim's program, and Runtime the name by which a daemon that has
// it in its PATH knows it.
const (
	Program = "containerd-shim-sbench-v1"
	Runtime = "io.containerd.sbench.v1"
)

// Look returns the absolute path of the program: beside the running one, in PATH, or the running one itself, which
// is the shim, too, when it is executed by the name [Program].
func Look() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, name := range []string{filepath.Join(filepath.Dir(self), Program), Program} {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
	}
	return self, nil
}

// A Call is an execution of the program by containerd.
type Call struct {
	Namespace string // the daemon's
	ID        string // of the anchor
	Address   string // of the daemon
	Bundle    string // the anchor's directory
}

// Socket returns the path of a server's socket by the id of the server's anchor. The socket is beside
// the daemon's. With an id of up to 20 bytes, its path is no longer than the path of
// containerd.sock.ttrpc, which the daemon makes there, and so short enough (unix(7)).
func Socket(daemon, anchor string) string {
	return filepath.Join(filepath.Dir(strings.TrimPrefix(daemon, "unix://")), "s"+anchor)
}

// Start starts the server and writes its address. The working directory is the bundle.
func (c Call) Start(w io.Writer) error {
	socket := Socket(c.Address, c.ID)
	if err := c.spawn(socket); err != nil {
		return err
	}
	// containerd 1.6 does not keep the answer, and reads this file after a restart.
	address := "unix://" + socket
	if err := os.WriteFile("address", []byte(address), 0o600); err != nil {
		return err
	}
	_, err := io.WriteString(w, address)
	return err
}

// spawn starts the server, which serves the socket that it inherits.
func (c Call) spawn(socket string) error {
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
	cmd := exec.Command(self)
	cmd.Args = []string{Program, "-namespace", c.Namespace, "-address", c.Address, "-id", c.ID, "serve"}
	cmd.Dir = "/"
	// Not NOTIFY_SOCKET, which systemd gives to containerd: runc would mount a socket for it in
	// every sandbox, and pass on to systemd what sandboxes say there.
	cmd.Env = proc.Environment("GOMAXPROCS")
	cmd.ExtraFiles = []*os.File{inherited}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, os.Remove(socket))
	}
	return cmd.Process.Release()
}

// Serve serves the socket that Start made, which is file descriptor 3, until the daemon shuts
// the server down.
func (c Call) Serve() error {
	// Memory matters more than time here: a host may run a server for each of many runs.
	debug.SetGCPercent(40)
	// When an OCI runtime ends, its child processes become children of this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	inherited := os.NewFile(3, "socket")
	l, err := net.FileListener(inherited)
	if err = errors.Join(err, inherited.Close()); err != nil { // OCI runtimes would inherit it
		return err
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	shutdown := make(chan struct{})
	s := newService(c.ID, sync.OnceFunc(func() { close(shutdown) }))
	childEnded := make(chan os.Signal, 1)
	signal.Notify(childEnded, unix.SIGCHLD)
	go s.reapThreads(childEnded)
	taskapi.RegisterTTRPCTaskService(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), l) }()
	select {
	case err := <-served:
		return err
	case <-shutdown:
		// The daemon has its answer, or takes the end of the connection for one.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return server.Shutdown(ctx)
	}
}

// serverFile is the file, in the anchor's bundle, that names the server's process.
const serverFile = "server"

// Delete removes what a server that has ended left: its socket, and sandboxes that it did not
// delete. It writes how the anchor's task ended. A restarted daemon also calls it for a server that
// did not answer in time: Delete kills that server first, which would otherwise report that its
// sandboxes ended by themselves.
func (c Call) Delete(w io.Writer) error {
	errs := []error{os.Remove(Socket(c.Address, c.ID))}
	if errors.Is(errs[0], os.ErrNotExist) {
		errs[0] = nil
	}
	server := bundle(c.Bundle).file(serverFile)
	serves := func(pid int) bool { is, ok := proc.ReadFile(server); return ok && is == pid }
	if pid, ok := proc.ReadFile(server); ok {
		errs = append(errs, proc.SignalAll([]int{pid}, 0, unix.SIGKILL, serves))
		for deadline := time.Now().Add(time.Second); serves(pid) && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	}
	left, err := leftIn(c.Bundle)
	errs = append(errs, err)
	removed := make([]error, len(left))
	var each sync.WaitGroup // the daemon waits five seconds for all of them
	for i, sandbox := range left {
		each.Go(func() { removed[i] = sandbox.remove() })
	}
	each.Wait()
	answer, err := proto.Marshal(&taskapi.DeleteResponse{ExitStatus: killed, ExitedAt: timestamppb.Now()})
	if err == nil {
		_, err = w.Write(answer)
	}
	return errors.Join(append(slices.Concat(errs, removed), err)...)
}
