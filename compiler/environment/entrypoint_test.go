package environment_test

import (
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/schema"
)

// TestEntrypointOf: an image's entry point runs with the task's command, and its health check shows that it can be used unless
// the task has a check of its own.
func TestEntrypointOf(t *testing.T) {
	own := schema.Command{Argv: []string{"own"}}
	for _, tt := range []struct {
		entrypoint    *environment.Entrypoint
		image, health string
		want          string
	}{
		{nil, "serve", "up", ", "},
		{&environment.Entrypoint{}, "", "", ", "},
		{&environment.Entrypoint{}, "serve", "", "serve sh -c sleep infinity, "},
		{&environment.Entrypoint{}, "serve", "up", "serve sh -c sleep infinity, up"},
		{&environment.Entrypoint{}, "", "up", "sh -c sleep infinity, up"},
		{&environment.Entrypoint{Command: own, Ready: own}, "serve", "up", "serve own, own"},
	} {
		args, ready := tt.entrypoint.Of(strings.Fields(tt.image), strings.Fields(tt.health))
		if got := strings.Join(args, " ") + ", " + strings.Join(ready, " "); got != tt.want {
			t.Errorf("%v of %q and %q: %q, want %q", tt.entrypoint, tt.image, tt.health, got, tt.want)
		}
	}
}
