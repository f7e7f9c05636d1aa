package run

import (
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/runtime"
)

// TestSidecarArgs: a sidecar's entry point and command replace the image's as in the reference of
// Dockerfiles (ENTRYPOINT, "Understand how CMD and ENTRYPOINT interact").
func TestSidecarArgs(t *testing.T) {
	image := runtime.Image{Entrypoint: []string{"entry"}, Command: []string{"image"}}
	own := schema.Command{Argv: []string{"own"}}
	for want, s := range map[string]environment.Sidecar{
		"entry image": {}, "entry own": {Command: own}, "own": {Entrypoint: own}, "own own": {Entrypoint: own, Command: own},
		"entry sh -c x": {Command: schema.Command{Shell: "x"}},
	} {
		if got := strings.Join(sidecarArgs(image, s), " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
