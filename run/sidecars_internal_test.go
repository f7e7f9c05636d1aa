package run

import (
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
)

// TestSidecarArgs: what a sidecar's entry point and command replace of its image's, as the
// reference of Dockerfiles has it (ENTRYPOINT, "Understand how CMD and ENTRYPOINT interact").
func TestSidecarArgs(t *testing.T) {
	image := runtime.Image{Entrypoint: []string{"entry"}, Command: []string{"image"}}
	own := compiler.Command{Argv: []string{"own"}}
	for want, s := range map[string]compiler.Sidecar{
		"entry image": {}, "entry own": {Command: own}, "own": {Entrypoint: own}, "own own": {Entrypoint: own, Command: own},
		"entry sh -c x": {Command: compiler.Command{Shell: "x"}},
	} {
		if got := strings.Join(sidecarArgs(image, s), " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
