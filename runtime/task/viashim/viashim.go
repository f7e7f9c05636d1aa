// Package viashim makes containers with sbench's own shim, which it talks to without the daemon.
//
// A [Driver] belongs to one run. Its first container starts a server of the shim. The daemon knows
// the server's anchor, and nothing of the containers; see package shim. When the server ends, the
// next container starts another one.
package viashim

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
	"github.com/securebench/sbench/runtime/task"
)

// Config says for which run the containers are, and what makes them.
type Config struct {
	Conn    *daemon.Conn
	Run     string            // the run's id
	Labels  map[string]string // of what the run has in the daemon
	Shim    string            // the path of the shim's program
	Program string            // the OCI runtime; "" leaves it to the shim
	Flags   []string          // of Program, before its command
}

// A Driver implements [task.Driver]. Make one with [New].
type Driver struct {
	cfg     Config
	serving *semaphore.Weighted // of one, for what follows; starting a server takes time
	server  *server             // nil until a container needs it
	servers int                 // how many there have been
}

// New returns a driver for one run. There is nothing to close: the run's removal ends the server.
func New(cfg Config) *Driver { return &Driver{cfg: cfg, serving: semaphore.NewWeighted(1)} }

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
			if err := d.cfg.Conn.RemoveContainer(ctx, s.anchor); err != nil {
				return nil, err
			}
		default:
			return s, nil
		}
	}
	s, err := d.start(ctx)
	if err != nil {
		return nil, task.Refusal{Err: fmt.Errorf("start sbench's shim: %w", daemon.Native(err))}
	}
	d.server = s
	return s, nil
}

func (d *Driver) start(ctx context.Context) (*server, error) {
	conn := d.cfg.Conn
	if err := conn.Ready(ctx); err != nil {
		return nil, err
	}
	id := fmt.Sprintf("%s-%d", d.cfg.Run, d.servers) // short, see shim.Socket
	d.servers++
	anchor, err := conn.Client.NewContainer(ctx, id, client.WithSpec(&specs.Spec{Version: specs.Version}),
		client.WithRuntime(d.cfg.Shim, nil), client.WithContainerLabels(d.cfg.Labels))
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

// container is a container that a server has made, with its first process.
type container struct {
	process
	pid int
}

// process is a process of a container.
type process struct {
	server *server
	id     string // of the container
	added  string // of a process beside the first; "" for the first
	io     *pipes
}

// Create implements [task.Driver].
func (d *Driver) Create(ctx context.Context, c task.Config, std *task.Streams) (task.Container, error) {
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
	options, err := json.Marshal(shim.Options{Program: d.cfg.Program, Flags: d.cfg.Flags, Owner: c.Base})
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
		return nil, errors.Join(err, io.Close())
	}
	std.Copies = io
	return &container{process{server: server, id: c.ID, io: io}, int(made.Pid)}, nil
}

// writeBundle writes the bundle of a container, and returns its directory.
func writeBundle(c task.Config) (string, error) {
	dir := filepath.Join(c.Dir, "bundle")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), c.JSON, 0o600)
}

// First implements [task.Container].
func (c *container) First() (task.Process, int) { return &c.process, c.pid }

// Start implements [task.Container].
func (c *container) Start(ctx context.Context) error {
	_, err := c.start(ctx)
	return err
}

// Exec implements [task.Container].
func (c *container) Exec(ctx context.Context, id string, p *specs.Process, std *task.Streams) (task.Process, int, error) {
	spec, err := json.Marshal(p)
	if err != nil {
		return nil, 0, err
	}
	null, err := openNull(std, c.pid, "")
	if err != nil && std.In == nil { // the sandbox may have removed it
		std.In = strings.NewReader("")
	}
	io, err := newPipes(std, null)
	if err != nil {
		return nil, 0, err
	}
	_, err = c.server.tasks.Exec(ctx, &taskapi.ExecProcessRequest{
		ID: c.id, ExecID: id, Stdin: io.stdin, Stdout: io.stdout, Stderr: io.stderr, Spec: &anypb.Any{Value: spec},
	})
	if err != nil {
		return nil, 0, errors.Join(errgrpc.ToNative(err), io.Close())
	}
	std.Copies = io
	added := &process{server: c.server, id: c.id, added: id, io: io}
	pid, err := added.start(ctx)
	return added, pid, err
}

func (p *process) start(ctx context.Context) (pid int, err error) {
	started, err := p.server.tasks.Start(context.WithoutCancel(ctx), &taskapi.StartRequest{ID: p.id, ExecID: p.added})
	p.io.opened()
	if err != nil {
		p.io.Cancel()
		return 0, errgrpc.ToNative(err)
	}
	return int(started.Pid), nil
}

// Wait implements [task.Process].
func (p *process) Wait(ctx context.Context) (uint32, error) {
	type end struct {
		status uint32
		err    error
	}
	done := make(chan end, 1)
	go func() { // until the process ends: the answer to a call that was given up would be logged as an error
		exited, err := p.server.tasks.Wait(context.WithoutCancel(ctx), &taskapi.WaitRequest{ID: p.id, ExecID: p.added})
		done <- end{exited.GetExitStatus(), daemon.Native(errgrpc.ToNative(err))}
	}()
	select {
	case e := <-done:
		return e.status, e.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// Signal implements [task.Process].
func (p *process) Signal(ctx context.Context, sig unix.Signal, others bool) error {
	_, err := p.server.tasks.Kill(ctx, &taskapi.KillRequest{ID: p.id, ExecID: p.added, Signal: uint32(sig), All: others})
	return errgrpc.ToNative(err)
}

// Delete implements [task.Process].
func (p *process) Delete(ctx context.Context) error {
	p.io.Cancel()
	p.io.Wait()
	_, err := p.server.tasks.Delete(ctx, &taskapi.DeleteRequest{ID: p.id, ExecID: p.added})
	if errors.Is(err, ttrpc.ErrClosed) {
		err = nil
	}
	err = errgrpc.ToNative(err)
	if errdefs.IsNotFound(err) {
		err = nil
	}
	return errors.Join(daemon.Native(err), p.io.Close())
}
