package containerd

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
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/shim"
)

// A server is the server of sbench's own shim for one run. The daemon knows its anchor, and
// nothing of the sandboxes; see package shim.
type server struct {
	anchor client.Container
	conn   *ttrpc.Client
	tasks  taskapi.TTRPCTaskService
	gone   chan struct{} // closed once the connection has ended
}

// reach waits for what the next sandbox needs: the daemon, which may be restarting, or with
// sbench's own shim only the run's server, which it starts if there is none.
func (r *Run) reach(ctx context.Context) error {
	if !isOwn(r.c.shim) {
		return r.c.conn.Ready(ctx)
	}
	s, err := r.shimServer(r.Context(ctx))
	if err != nil {
		return err
	}
	// The server may have ended a moment ago, which must not cost the sandbox.
	if _, err := s.tasks.Connect(ctx, &taskapi.ConnectRequest{ID: s.anchor.ID()}); errors.Is(err, ttrpc.ErrClosed) {
		<-s.gone
		_, err = r.shimServer(r.Context(ctx))
		return err
	}
	return nil
}

// shimServer returns the run's server, which it starts if there is none, or if it has ended.
func (r *Run) shimServer(ctx context.Context) (*server, error) {
	if err := r.serving.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	defer r.serving.Release(1)
	if s := r.server; s != nil {
		select {
		case <-s.gone:
			r.server = nil
			if err := r.c.conn.RemoveContainer(ctx, s.anchor); err != nil {
				return nil, err
			}
		default:
			return s, nil
		}
	}
	s, err := r.startServer(ctx)
	if err != nil {
		return nil, refusal{fmt.Errorf("start sbench's shim: %w", daemon.Native(err))}
	}
	r.server = s
	return s, nil
}

func (r *Run) startServer(ctx context.Context) (*server, error) {
	if err := r.c.conn.Ready(ctx); err != nil {
		return nil, err
	}
	id := fmt.Sprintf("%s-%d", r.ID(), r.servers) // short, see shim.Socket
	r.servers++
	anchor, err := r.c.conn.Client.NewContainer(ctx, id, client.WithSpec(&specs.Spec{Version: specs.Version}),
		client.WithRuntime(r.c.shim, nil), client.WithContainerLabels(r.Labels("shim")))
	if err != nil {
		return nil, daemon.Native(err)
	}
	if _, err := anchor.NewTask(ctx, cio.NullIO); err != nil {
		return nil, errors.Join(err, r.c.conn.RemoveContainer(ctx, anchor))
	}
	conn, err := net.Dial("unix", shim.Socket(r.c.conn.Address, id))
	if err != nil {
		return nil, errors.Join(err, r.c.conn.RemoveContainer(ctx, anchor))
	}
	s := &server{anchor: anchor, gone: make(chan struct{})}
	s.conn = ttrpc.NewClient(boundedConn{conn, r.c.opts.Timeout}, ttrpc.WithOnClose(func() { close(s.gone) }), ttrpc.WithUnaryClientInterceptor(daemon.BoundShim(r.c.opts.Timeout)))
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

// ownTask is a task that the server of sbench's own shim makes.
type ownTask struct {
	s      *Sandbox
	server *server
	id     string // of the container
	added  string // id of a process beside the first; "" for the first
	pid    uint32
	io     *pipes
}

// newOwnContainer makes a container. The specification must be in the bundle.
func (s *Sandbox) newOwnContainer(ctx context.Context, bundle string, std *streams) (*ownTask, error) {
	server, err := s.run.shimServer(ctx)
	if err != nil {
		return nil, err
	}
	options, err := typeurl.MarshalAnyToProto(s.shimOptions())
	if err != nil {
		return nil, err
	}
	null, err := s.null(std)
	if err != nil {
		return nil, err
	}
	io, err := newPipes(std, null)
	if err != nil {
		return nil, err
	}
	// The server cannot be told that ctx is done. What it makes then would come after the sandbox's removal.
	made, err := server.tasks.Create(context.WithoutCancel(ctx), &taskapi.CreateTaskRequest{
		ID: s.id, Bundle: bundle, Stdin: io.config.Stdin, Stdout: io.config.Stdout, Stderr: io.config.Stderr, Options: options,
	})
	io.opened()
	if err != nil {
		err = errgrpc.ToNative(err)
		if errdefs.IsFailedPrecondition(err) { // the anchor has ended, or was removed: the next sandbox needs another
			err = errors.Join(err, server.conn.Close(), server.conn.UserOnCloseWait(ctx))
		}
		return nil, errors.Join(err, io.Close())
	}
	return &ownTask{s: s, server: server, id: s.id, pid: made.Pid, io: io}, nil
}

func (t *ownTask) Add(ctx context.Context, id string, p *specs.Process, std *streams) (task, error) {
	spec, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	null, err := t.s.null(std)
	if err != nil && std.in == nil { // the sandbox may have removed it
		std.in = strings.NewReader("")
	}
	io, err := newPipes(std, null)
	if err != nil {
		return nil, err
	}
	_, err = t.server.tasks.Exec(ctx, &taskapi.ExecProcessRequest{
		ID: t.id, ExecID: id, Stdin: io.config.Stdin, Stdout: io.config.Stdout, Stderr: io.config.Stderr, Spec: &anypb.Any{Value: spec},
	})
	if err != nil {
		return nil, errors.Join(errgrpc.ToNative(err), io.Close())
	}
	return &ownTask{s: t.s, server: t.server, id: t.id, added: id, io: io}, nil
}

func (t *ownTask) Pid() uint32 { return t.pid }

func (t *ownTask) IO() cio.IO { return t.io }

func (t *ownTask) Start(ctx context.Context) error {
	started, err := t.server.tasks.Start(context.WithoutCancel(ctx), &taskapi.StartRequest{ID: t.id, ExecID: t.added})
	t.io.opened()
	if err != nil {
		t.io.Cancel()
		return errgrpc.ToNative(err)
	}
	t.pid = started.Pid
	return nil
}

func (t *ownTask) Wait(ctx context.Context) (uint32, error) {
	done := make(chan end, 1)
	go func() { // until the process ends: the answer to a call that was given up would be logged as an error
		exited, err := t.server.tasks.Wait(context.WithoutCancel(ctx), &taskapi.WaitRequest{ID: t.id, ExecID: t.added})
		done <- end{exited.GetExitStatus(), daemon.Native(errgrpc.ToNative(err))}
	}()
	select {
	case e := <-done:
		return e.status, e.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

func (t *ownTask) Kill(ctx context.Context) error {
	_, err := t.server.tasks.Kill(ctx, &taskapi.KillRequest{ID: t.id, ExecID: t.added, Signal: uint32(unix.SIGKILL)})
	return errgrpc.ToNative(err)
}

func (t *ownTask) Delete(ctx context.Context) error {
	t.io.Cancel()
	t.io.Wait()
	_, err := t.server.tasks.Delete(ctx, &taskapi.DeleteRequest{ID: t.id, ExecID: t.added})
	if errors.Is(err, ttrpc.ErrClosed) {
		err = nil
	}
	err = errgrpc.ToNative(err)
	if errdefs.IsNotFound(err) {
		err = nil
	}
	return errors.Join(daemon.Native(err), t.io.Close())
}

// writeBundle writes the bundle of a sandbox's container, and returns its directory.
func (s *Sandbox) writeBundle(spec []byte) (string, error) {
	dir := filepath.Join(s.dir, "bundle")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), spec, 0o600)
}
