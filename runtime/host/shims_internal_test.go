package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/shim"
)

// TestFindShim: a daemon in another mount namespace gets a copy of the shim in the directory that it shares.
func TestFindShim(t *testing.T) {
	programs, root := t.TempDir(), t.TempDir()
	t.Setenv("PATH", programs)
	installed, shared := filepath.Join(programs, shim.Program), filepath.Join(root, shim.Program)
	for _, text := range []string{"old", "new"} { // an upgrade replaces the copy
		if err := os.WriteFile(installed, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		for apart, want := range map[bool]string{false: installed, true: shared} {
			h := Host{opts: Options{Root: root}, conn: &daemon.Conn{Inherited: daemon.Inherited{Apart: apart}}}
			path, err := h.findShim()
			got, readErr := os.ReadFile(path)
			if path != want || err != nil || readErr != nil || string(got) != text {
				t.Errorf("apart %v: %s %q, want %s %q: %v, %v", apart, path, got, want, text, err, readErr)
			}
		}
	}
}
