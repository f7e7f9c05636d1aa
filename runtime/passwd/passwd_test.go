package passwd_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/passwd"
)

// TestLookupMalformed: a line with an id that is no number is nobody's, and never root's.
func TestLookupMalformed(t *testing.T) {
	root := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("agent:x:1000:staff:::/bin/sh\nother:x:id:1000:::/bin/sh\n"), 0o644))
	for _, name := range []string{"agent", "other"} {
		if u, err := passwd.Lookup(root, name); err == nil {
			t.Errorf("%s: %+v", name, u)
		}
	}
}
