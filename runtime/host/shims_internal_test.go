package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/shim"
)

// TestFindShim: a daemon in another mount namespace gets a copy of the shim in the directory that it shares,
// and sbench without a shim is the shim itself.
func TestFindShim(t *testing.T) {
	programs, root := t.TempDir(), t.TempDir()
	t.Setenv("PATH", programs)
	installed, shared := filepath.Join(programs, shim.Program), filepath.Join(root, shim.Program)
	for _, text := range []string{"old", "new"} { // an upgrade replaces the copy
		must.Do(t, os.WriteFile(installed, []byte(text), 0o755))
		for apart, want := range map[bool]string{false: installed, true: shared} {
			h := kinds{opts: Options{Flags: Flags{Root: root}}, conn: &daemon.Conn{Inherited: daemon.Inherited{Apart: apart}}}
			path, err := h.findShim()
			got, readErr := os.ReadFile(path)
			if path != want || err != nil || readErr != nil || string(got) != text {
				t.Errorf("apart %v: %s %q, want %s %q: %v, %v", apart, path, got, want, text, err, readErr)
			}
		}
	}

	t.Setenv("PATH", t.TempDir())
	self, err := os.Executable()
	must.Do(t, err)
	h := kinds{opts: Options{Flags: Flags{Root: root}}, conn: &daemon.Conn{}}
	path, err := h.findShim()
	if is, linkErr := os.Readlink(path); path != shared || is != self || err != nil || linkErr != nil {
		t.Errorf("without a shim: %s is %q, want %s to be %s: %v, %v", path, is, shared, self, err, linkErr)
	}
}
