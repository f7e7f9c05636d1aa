package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/securebench/sbench/runtime"
)

const emptyChain = "empty"

// EmptyImage returns an image without files, for processes that need only what is mounted.
func EmptyImage() runtime.Image {
	return runtime.Image{Ref: "sbench.local/empty", ChainID: emptyChain}
}

// Trial creates a sandbox of the image, starts a process in it, ends that process, and removes the sandbox,
// to find out whether the attempts of a run can work with at least the given isolation. The error is the
// error of the step that failed.
func (e *Engine) Trial(ctx context.Context, image runtime.Image, least runtime.Isolation) error {
	sandbox, err := e.Create(ctx, runtime.Config{
		Name: "trial", Image: image, Isolation: least, User: "0:0", Workdir: "/tmp", Persistent: true, Limits: runtime.DefaultLimits(),
	})
	if err != nil {
		return err
	}
	exit, err := sandbox.Exec(ctx, runtime.Process{Args: []string{pauseDest}, Wall: time.Millisecond})
	if err == nil && exit.Reason != runtime.WallTime {
		err = fmt.Errorf("%w: sandbox %q: a program that only waits: %v", runtime.ErrUnavailable, "trial", exit)
	}
	return errors.Join(err, sandbox.Close(ctx))
}
