package containerd

import (
	"context"
	"errors"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
)

// reconnectTimeout is how long a daemon may be away before its sandboxes are given up. A
// restarted one still knows them.
const reconnectTimeout = 10 * time.Second

// daemonTask is a task that the daemon's shim makes.
type daemonTask struct{ client.Process }

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

func (t daemonTask) Kill(ctx context.Context) error { return t.Process.Kill(ctx, unix.SIGKILL) }

func (t daemonTask) CloseInput(ctx context.Context) error {
	return t.CloseIO(ctx, client.WithStdinCloser)
}

func (t daemonTask) Delete(ctx context.Context) error {
	_, err := t.Process.Delete(ctx)
	if errdefs.IsNotFound(err) {
		return nil
	}
	return native(err)
}

// daemonContainer is a container in the daemon's database.
type daemonContainer struct {
	daemonTask
	c         *Client
	container client.Container
	task      client.Task // nil if it could not be made
}

// newDaemonContainer makes a container and its task. Unless it returns nil, the caller
// deletes the container, also after an error.
func (s *Sandbox) newDaemonContainer(ctx context.Context, spec *specs.Spec, creator cio.Creator) (*daemonContainer, error) {
	c := s.run.c
	made, err := c.c.NewContainer(ctx, s.id,
		client.WithSpec(spec),
		client.WithRuntime(c.shim, s.shimOptions()),
		client.WithImageName(s.cfg.Image.Ref),
		client.WithContainerLabels(s.run.labels(s.cfg.Name)),
	)
	if err != nil {
		return nil, native(err)
	}
	d := &daemonContainer{c: c, container: made}
	// The daemon mounts nothing: the root in the specification is mounted already.
	d.task, err = made.NewTask(ctx, creator)
	d.Process = d.task
	return d, err
}

func (d *daemonContainer) Add(ctx context.Context, id string, p *specs.Process, creator cio.Creator) (task, error) {
	added, err := d.task.Exec(ctx, id, p, creator)
	if err != nil {
		return nil, err
	}
	return daemonTask{added}, nil
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
	return d.c.removeContainer(ctx, d.container)
}
