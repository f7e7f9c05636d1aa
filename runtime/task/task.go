// Package task is how sandboxes run their processes. A sandbox describes a container to a [Driver],
// which makes the container, and processes in it, with sbench's shim. It talks to the shim without the
// daemon.
//
// A Driver belongs to one run. Its first container starts a server of the shim. The daemon knows
// the server's anchor, and nothing of the containers; see package shim. When the server ends, the
// next container starts another one.
//
// The package knows processes and their streams. What a sandbox is made of, and what the end of a
// process means, is for package sandbox.
package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/shim"
)

// Options say for which run the containers are, and what makes them.
type Options struct {
	Conn    *daemon.Conn
	Run     string            // the run's id
	Labels  map[string]string // of what the run has in the daemon
	Shim    string            // the path of the shim's program
	Program string            // the OCI runtime; "" leaves it to the shim
	Flags   []string          // of Program, before its command
}

// A Driver makes containers. Its methods are safe for concurrent use. Make one with [New].
type Driver struct {
	opts    Options
	serving *semaphore.Weighted // of one, for what follows; starting a server takes time
	server  *server             // nil until a container needs it
	servers int                 // how many there have been
}

// New returns a driver for one run. There is nothing to close: the run's removal ends the server.
func New(opts Options) *Driver { return &Driver{opts: opts, serving: semaphore.NewWeighted(1)} }

// A server is a server of the shim for one run.
type server struct {
	anchor client.Container
	conn   *ttrpc.Client
	tasks  taskapi.TTRPCTaskService
	gone   chan struct{} // closed once the connection has ended
}

// Ready starts the run's server if there is none.
func (d *Driver) Ready(ctx context.Context) error {
	s, err := d.reach(ctx)
	if err != nil {
		return err
	}
	// The server may have ended a moment ago, which must not cost the sandbox.
	if _, err := s.tasks.Connect(ctx, &taskapi.ConnectRequest{ID: s.anchor.ID()}); errors.Is(err, ttrpc.ErrClosed) {
		<-s.gone
		_, err = d.reach(ctx)
		return err
	}
	return nil
}

// reach returns the run's server, which it starts if there is none, or if it has ended.
func (d *Driver) reach(ctx context.Context) (*server, error) {
	if err := d.serving.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	defer d.serving.Release(1)
	if s := d.server; s != nil {
		select {
		case <-s.gone:
			d.server = nil
			if err := d.opts.Conn.RemoveContainer(ctx, s.anchor); err != nil {
				return nil, err
			}
		default:
			return s, nil
		}
	}
	s, err := d.start(ctx)
	if err != nil {
		return nil, Refusal{Err: fmt.Errorf("start sbench's shim: %w", daemon.Native(err))}
	}
	d.server = s
	return s, nil
}

func (d *Driver) start(ctx context.Context) (*server, error) {
	conn := d.opts.Conn
	if err := conn.Ready(ctx); err != nil {
		return nil, err
	}
	id := fmt.Sprintf("%s-%d", d.opts.Run, d.servers) // short, see shim.Socket
	d.servers++
	anchor, err := conn.Client.NewContainer(ctx, id, client.WithSpec(&specs.Spec{Version: specs.Version}),
		client.WithRuntime(d.opts.Shim, nil), client.WithContainerLabels(d.opts.Labels))
	if err != nil {
		return nil, daemon.Native(err)
	}
	if _, err := anchor.NewTask(ctx, cio.NullIO); err != nil {
		return nil, errors.Join(err, conn.RemoveContainer(ctx, anchor))
	}
	socket, err := net.Dial("unix", shim.Socket(conn.Address, id))
	if err != nil {
		return nil, errors.Join(err, conn.RemoveContainer(ctx, anchor))
	}
	s := &server{anchor: anchor, gone: make(chan struct{})}
	s.conn = ttrpc.NewClient(boundedConn{socket, conn.Timeout}, ttrpc.WithOnClose(func() { close(s.gone) }), ttrpc.WithUnaryClientInterceptor(daemon.BoundShim(conn.Timeout)))
	s.tasks = taskapi.NewTTRPCTaskClient(s.conn)
	return s, nil
}

// boundedConn ends a connection whose other end does not read: ttrpc writes with a lock, whatever
// the caller's deadline.
type boundedConn struct {
	net.Conn
	limit time.Duration
}

func (c boundedConn) Write(b []byte) (int, error) {
	err := c.SetWriteDeadline(time.Now().Add(c.limit))
	n := 0
	if err == nil {
		n, err = c.Conn.Write(b)
	}
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

// A Config describes a container.
type Config struct {
	ID   string
	Dir  string // the sandbox's directory, for files of the container
	Spec []byte // the OCI specification, as JSON
	// Base is the host's id of the sandbox's root, 0 if the sandbox has the ids of this process.
	Base uint32
	// OutputNetwork is the path of the sandbox's network namespace if standard output is to be a socket, which no process
	// can open anew. "" makes it a pipe.
	OutputNetwork string
	// Devices is the host path of the sandbox's own /dev, "" if it has none.
	Devices string
}

// A Process is a process that the shim has made: the first of a container, or one beside it. Deleting the first
// deletes the container.
type Process struct {
	PID    int // the host's id; 0 if the process was not started
	server *server
	id     string // of the container
	added  string // of a process beside the first; "" for the first
	io     *pipes
}

// Create makes a container, and returns its first process, which does not execute its program before Start. The
// caller deletes it.
func (d *Driver) Create(ctx context.Context, c Config, std *Streams) (*Process, error) {
	bundle, err := writeBundle(c)
	if err != nil {
		return nil, err
	}
	server, err := d.reach(ctx)
	if err != nil {
		return nil, err
	}
	// The pipes of standard output must belong to the sandbox's root, or a process could
	// not open /dev/stdout.
	options, err := json.Marshal(shim.Options{Program: d.opts.Program, Flags: d.opts.Flags, Owner: c.Base, OutputNetwork: c.OutputNetwork})
	if err != nil {
		return nil, err
	}
	null, err := openNull(std, 0, c.Devices)
	if err != nil {
		return nil, err
	}
	io, err := newPipes(std, null)
	if err != nil {
		return nil, err
	}
	// The server cannot be told that ctx is done. What it makes then would come after the sandbox's removal.
	made, err := server.tasks.Create(context.WithoutCancel(ctx), &taskapi.CreateTaskRequest{
		ID: c.ID, Bundle: bundle, Stdin: io.stdin, Stdout: io.stdout, Stderr: io.stderr, Options: &anypb.Any{Value: options},
	})
	io.opened()
	if err != nil {
		err = errgrpc.ToNative(err)
		if errdefs.IsFailedPrecondition(err) { // the anchor has ended, or was removed: the next sandbox needs another
			err = errors.Join(err, server.conn.Close(), server.conn.UserOnCloseWait(ctx))
		}
		io.close()
		return nil, err
	}
	std.pipes = io
	return &Process{PID: int(made.Pid), server: server, id: c.ID, io: io}, nil
}

// writeBundle writes the bundle of a container, and returns its directory.
func writeBundle(c Config) (string, error) {
	dir := filepath.Join(c.Dir, "bundle")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), c.Spec, 0o600)
}

// Exec makes and starts a process beside p, the first. If it returns a process together with an error, the process
// may run, and the caller kills and deletes it.
func (p *Process) Exec(ctx context.Context, id string, spec *specs.Process, std *Streams) (*Process, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	null, err := openNull(std, p.PID, "")
	if err != nil && std.In == nil { // the sandbox may have removed it
		std.In = strings.NewReader("")
	}
	io, err := newPipes(std, null)
	if err != nil {
		return nil, err
	}
	_, err = p.server.tasks.Exec(ctx, &taskapi.ExecProcessRequest{
		ID: p.id, ExecID: id, Stdin: io.stdin, Stdout: io.stdout, Stderr: io.stderr, Spec: &anypb.Any{Value: data},
	})
	if err != nil {
		io.close()
		return nil, errgrpc.ToNative(err)
	}
	std.pipes = io
	added := &Process{server: p.server, id: p.id, added: id, io: io}
	return added, added.Start(ctx)
}

// Start lets the process execute its program.
func (p *Process) Start(ctx context.Context) error {
	started, err := p.server.tasks.Start(context.WithoutCancel(ctx), &taskapi.StartRequest{ID: p.id, ExecID: p.added})
	p.io.opened()
	if err != nil {
		p.io.close()
		return errgrpc.ToNative(err)
	}
	p.PID = int(started.Pid)
	return nil
}

// An End is how a process ended: its exit status, or why that is unknown.
type End struct {
	Status uint32
	Err    error
}

// Wait returns a channel that gets the end of the process.
func (p *Process) Wait(ctx context.Context) <-chan End {
	ended := make(chan End, 1)
	go func() { // until the process ends: the answer to a call that was given up would be logged as an error
		exited, err := p.server.tasks.Wait(context.WithoutCancel(ctx), &taskapi.WaitRequest{ID: p.id, ExecID: p.added})
		ended <- End{exited.GetExitStatus(), daemon.Native(errgrpc.ToNative(err))}
	}()
	return ended
}

// Signal sends a signal by way of the shim. With others, it goes instead to each process of a sandbox
// with a kernel of its own except the first, and the error is nil only if there was none.
func (p *Process) Signal(ctx context.Context, sig unix.Signal, others bool) error {
	_, err := p.server.tasks.Kill(ctx, &taskapi.KillRequest{ID: p.id, ExecID: p.added, Signal: uint32(sig), All: others})
	return errgrpc.ToNative(err)
}

// Delete makes the shim forget the process, which must have ended. It is no error if there is none (nil), or if the shim
// does not know it, or is gone.
func (p *Process) Delete(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.io.close()
	p.io.copies.Wait()
	_, err := p.server.tasks.Delete(ctx, &taskapi.DeleteRequest{ID: p.id, ExecID: p.added})
	if errors.Is(err, ttrpc.ErrClosed) {
		err = nil
	}
	err = errgrpc.ToNative(err)
	if errdefs.IsNotFound(err) {
		err = nil
	}
	return daemon.Native(err)
}
