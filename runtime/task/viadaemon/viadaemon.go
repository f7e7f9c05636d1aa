// Package viadaemon makes containers with the daemon's help, and with any shim of containerd.
//
// The daemon's database has each container. A container outlives a daemon that restarts, which
// still knows it then.
package viadaemon

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/task"
)

// A Driver implements [task.Driver].
type Driver struct {
	Conn *daemon.Conn
	Shim string // the daemon's name of the shim
	// Runc means that the shim takes the options of containerd's shim for runc. Program is then
	// the OCI runtime, "" to leave it to the shim.
	Runc    bool
	Program string
}

// Ready waits for a restarting daemon.
func (d *Driver) Ready(ctx context.Context) error { return d.Conn.Ready(ctx) }

// container is a container in the daemon's database, with its first process.
type container struct {
	process
	conn *daemon.Conn
	dir  string // for FIFOs
	made client.Container
	task client.Task // nil if it could not be made
}

// process is a process of a container.
type process struct {
	client.Process
	input *input // nil if it has none
}

// Create implements [task.Driver].
func (d *Driver) Create(ctx context.Context, c task.Config, std *task.Streams) (task.Container, error) {
	var options any
	if d.Runc {
		// The pipes of standard output must belong to the sandbox's root, or a process could
		// not open /dev/stdout.
		options = &runcoptions.Options{BinaryName: d.Program, IoUid: c.Base, IoGid: c.Base}
	}
	made, err := d.Conn.Client.NewContainer(ctx, c.ID,
		client.WithSpec(c.Spec),
		client.WithRuntime(d.Shim, options),
		client.WithImageName(c.Image),
		client.WithContainerLabels(c.Labels),
	)
	if err != nil {
		return nil, daemon.Native(err)
	}
	first := &container{conn: d.Conn, dir: c.Dir, made: made}
	creator, in := first.fifos(std)
	// The daemon mounts nothing: the root in the specification is mounted already.
	first.task, err = made.NewTask(ctx, creator)
	first.Process, first.input = first.task, in
	if err == nil {
		std.Copies = first.task.IO()
	}
	return first, err
}

// fifos returns what makes the FIFOs of a process's streams, and its input.
func (c *container) fifos(std *task.Streams) (cio.Creator, *input) {
	if std.Out == nil {
		return cio.NullIO, nil
	}
	var in *input
	var reader io.Reader // not in, or it would not be nil
	if std.In != nil {
		in = &input{Reader: std.In, eof: make(chan struct{}), ended: std.Ended}
		reader = in
	}
	return cio.NewCreator(cio.WithStreams(reader, std.Out, std.Err), cio.WithFIFODir(c.dir)), in
}

// First implements [task.Container].
func (c *container) First() (task.Process, int) {
	if c.task == nil {
		return c, 0
	}
	return c, int(c.task.Pid())
}

// Start implements [task.Container].
func (c *container) Start(ctx context.Context) error { return c.start(ctx) }

// Exec implements [task.Container].
func (c *container) Exec(ctx context.Context, id string, p *specs.Process, std *task.Streams) (task.Process, int, error) {
	if std.In == nil {
		std.In = strings.NewReader("") // the shim would take the host's /dev/null
	}
	creator, in := c.fifos(std)
	added, err := c.task.Exec(ctx, id, p, creator)
	if err != nil {
		return nil, 0, err
	}
	std.Copies = added.IO()
	next := process{added, in}
	err = next.start(ctx)
	return next, int(added.Pid()), err
}

// Delete implements [task.Process]. It removes the container from the daemon, too.
func (c *container) Delete(ctx context.Context) error {
	if c.task != nil { // it was killed, so its status need not be asked for
		if err := c.process.Delete(ctx); err == nil {
			if err = c.made.Delete(ctx); err == nil || errdefs.IsNotFound(err) {
				return nil
			}
		}
	}
	return c.conn.RemoveContainer(ctx, c.made)
}

// start starts the process, and closes its standard input once that has been read to its end: until
// then, the shim holds it open.
func (p process) start(ctx context.Context) error {
	err := p.Process.Start(ctx)
	if err == nil && p.input != nil {
		go func() {
			select {
			case <-p.input.eof:
			case <-p.input.ended:
				return
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), daemon.CleanupTimeout)
			defer cancel()
			_ = p.CloseIO(ctx, client.WithStdinCloser) // the process may be gone
		}()
	}
	return err
}

// An input is the standard input of a process.
type input struct {
	io.Reader
	once  sync.Once
	eof   chan struct{} // closed when the reader has ended or failed
	ended <-chan struct{}
}

func (i *input) Read(p []byte) (int, error) {
	n, err := i.Reader.Read(p)
	if err != nil {
		i.once.Do(func() { close(i.eof) })
	}
	return n, err
}

// Wait implements [task.Process]. The daemon may restart meanwhile.
func (p process) Wait(ctx context.Context) (uint32, error) {
	var lost time.Time
	for {
		exited, err := p.Process.Wait(ctx)
		if err == nil {
			st := <-exited
			if err = st.Error(); err == nil {
				return st.ExitCode(), nil
			}
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		err = daemon.Native(err)
		if !errors.Is(err, runtime.ErrUnavailable) {
			return 0, err
		}
		if lost.IsZero() {
			lost = time.Now()
		}
		if time.Since(lost) > daemon.ReconnectTimeout {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Signal implements [task.Process]. No shim of the daemon's brings a kernel of its own.
func (p process) Signal(ctx context.Context, sig unix.Signal, others bool) error {
	if others {
		return errdefs.ErrNotImplemented
	}
	return p.Kill(ctx, sig)
}

// Delete implements [task.Process].
func (p process) Delete(ctx context.Context) error {
	_, err := p.Process.Delete(ctx)
	if errdefs.IsNotFound(err) {
		return nil
	}
	return daemon.Native(err)
}
