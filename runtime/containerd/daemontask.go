package containerd

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/daemon"
)

// daemonTask is a task that the daemon's shim makes.
type daemonTask struct {
	client.Process
	input *input // nil if it has none
}

// Start starts the task, and closes its standard input once that has been read to its end: until
// then, the shim holds it open.
func (t daemonTask) Start(ctx context.Context) error {
	err := t.Process.Start(ctx)
	if err == nil && t.input != nil {
		go func() {
			select {
			case <-t.input.eof:
			case <-t.input.ended:
				return
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), daemon.CleanupTimeout)
			defer cancel()
			_ = t.CloseIO(ctx, client.WithStdinCloser) // the process may be gone
		}()
	}
	return err
}

// An input is the standard input of a task.
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

// fifos returns what makes the FIFOs of a task's streams, and its input.
func (s *Sandbox) fifos(std *streams) (cio.Creator, *input) {
	if std.out == nil {
		return cio.NullIO, nil
	}
	var in *input
	var reader io.Reader // not in, or it would not be nil
	if std.in != nil {
		in = &input{Reader: std.in, eof: make(chan struct{}), ended: std.ended}
		reader = in
	}
	return cio.NewCreator(cio.WithStreams(reader, std.out, std.err), cio.WithFIFODir(s.dir)), in
}

func (t daemonTask) Wait(ctx context.Context) (uint32, error) {
	var lost time.Time
	for {
		exited, err := t.Process.Wait(ctx)
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

func (t daemonTask) Kill(ctx context.Context) error { return t.Process.Kill(ctx, unix.SIGKILL) }

func (t daemonTask) Delete(ctx context.Context) error {
	_, err := t.Process.Delete(ctx)
	if errdefs.IsNotFound(err) {
		return nil
	}
	return daemon.Native(err)
}

// daemonContainer is a container in the daemon's database.
type daemonContainer struct {
	daemonTask
	s         *Sandbox
	container client.Container
	task      client.Task // nil if it could not be made
}

// newDaemonContainer makes a container and its task. Unless it returns nil, the caller
// deletes the container, also after an error.
func (s *Sandbox) newDaemonContainer(ctx context.Context, spec *specs.Spec, std *streams) (*daemonContainer, error) {
	c := s.run.c
	made, err := c.conn.Client.NewContainer(ctx, s.id,
		client.WithSpec(spec),
		client.WithRuntime(c.shim, s.shimOptions()),
		client.WithImageName(s.cfg.Image.Ref),
		client.WithContainerLabels(s.run.Labels(s.cfg.Name)),
	)
	if err != nil {
		return nil, daemon.Native(err)
	}
	d := &daemonContainer{s: s, container: made}
	creator, in := s.fifos(std)
	// The daemon mounts nothing: the root in the specification is mounted already.
	d.task, err = made.NewTask(ctx, creator)
	d.Process, d.input = d.task, in
	return d, err
}

func (d *daemonContainer) Add(ctx context.Context, id string, p *specs.Process, std *streams) (task, error) {
	creator, in := d.s.fifos(std)
	added, err := d.task.Exec(ctx, id, p, creator)
	if err != nil {
		return nil, err
	}
	return daemonTask{added, in}, nil
}

// Delete removes the container from the daemon, too.
func (d *daemonContainer) Delete(ctx context.Context) error {
	if d.task != nil { // it was killed, so its status need not be asked for
		if err := d.daemonTask.Delete(ctx); err == nil {
			if err = d.container.Delete(ctx); err == nil || errdefs.IsNotFound(err) {
				return nil
			}
		}
	}
	return d.s.run.c.conn.RemoveContainer(ctx, d.container)
}
