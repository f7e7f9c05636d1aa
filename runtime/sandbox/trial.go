package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/program"
)

const emptyChain = "empty"

// EmptyImage returns an image without files, for processes that need only what is mounted.
func EmptyImage() runtime.Image {
	return runtime.Image{Ref: "sbench.local/empty", ChainID: emptyChain}
}

// Trial creates a sandbox of the image, runs a program in it that does nothing, and removes
// it, to find out whether the attempts of a run can work with at least the given isolation. The error is the error of the step that
// failed.
func (e *Engine) Trial(ctx context.Context, image runtime.Image, least runtime.Isolation) error {
	const dest = "/.sbench/true"
	at := filepath.Join(e.claim.Dir(), "trial", "true")
	text, err := program.True(goruntime.GOARCH)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(at), 0o711)
	}
	if err == nil {
		err = os.WriteFile(at, text, 0o555)
	}
	if err != nil {
		return err
	}
	sandbox, err := e.Create(ctx, runtime.Config{
		Name: "trial", Image: image, Isolation: least, User: "0:0", Workdir: "/tmp", Persistent: true, Limits: runtime.DefaultLimits(),
		Mounts: []runtime.Mount{{Source: at, Dest: dest}},
	})
	if err != nil {
		return err
	}
	exit, err := sandbox.Exec(ctx, runtime.Process{Args: []string{dest}, Wall: e.platform.Conn.Timeout})
	if err == nil && !exit.Success() {
		err = fmt.Errorf("%w: sandbox %q: a program that does nothing: %v", runtime.ErrUnavailable, "trial", exit)
	}
	return errors.Join(err, sandbox.Close(ctx))
}
