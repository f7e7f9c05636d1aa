package run

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
)

// TestSidecarService: a sidecar's entry point and command replace the image's as in the reference of
// Dockerfiles (ENTRYPOINT, "Understand how CMD and ENTRYPOINT interact"), and so does its ready command the health check.
func TestSidecarService(t *testing.T) {
	image := runtime.Image{Entrypoint: []string{"entry"}, Command: []string{"image"}, Health: []string{"healthy"}}
	own := schema.Command{Argv: []string{"own"}}
	for want, s := range map[string]environment.Sidecar{
		"entry image, healthy": {}, "entry own, healthy": {Command: own}, "own, healthy": {Entrypoint: own}, "own own, healthy": {Entrypoint: own, Command: own},
		"entry sh -c x, own": {Command: schema.Command{Shell: "x"}, Ready: own},
	} {
		made := sidecarService(image, s)
		must.Equal(t, want, strings.Join(made.Args, " ")+", "+strings.Join(made.Ready, " "))
	}
}

// TestOracleWithoutDaemon: that a daemon cannot show an oracle's image is no fault of the image.
func TestOracleWithoutDaemon(t *testing.T) {
	c := config{Site: Site{Engine: noDaemon{}}}
	problems, err := c.resolveTask(t.Context(), plannedTask{oracle: "x"}, images{}, map[string]error{})
	if !errors.Is(err, runtime.ErrUnavailable) || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

type noDaemon struct{ harness.Engine }

func (noDaemon) View(context.Context, runtime.Image) (runtime.View, error) {
	return nil, runtime.ErrUnavailable
}

// TestMissingImage: a missing image is reported once, and its working directory is not reported.
func TestMissingImage(t *testing.T) {
	c := config{Plan: Plan{Inputs: Inputs{Pack: &compiler.Pack{}}}, Site: Site{Images: noImages{}}}
	task := plannedTask{inherits: true, files: true, images: []imageRef{{environment.Environment{Image: "x"}, "$.environment.image"}}}
	if problems, err := c.resolveTask(t.Context(), task, images{}, map[string]error{}); err != nil || len(problems) != 1 {
		t.Errorf("%v, %v", problems, err)
	}
}

type noImages struct{}

func (noImages) Resolve(context.Context, environment.Environment) (runtime.Image, error) {
	return runtime.Image{}, runtime.ErrNotFound
}
