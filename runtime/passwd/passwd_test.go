package passwd_test

import (
	"testing"

	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/runtime/passwd"
)

// TestLookupMalformed: a line with an id that is no number is nobody's, and never root's.
func TestLookupMalformed(t *testing.T) {
	root := t.TempDir()
	filetest.Write(t, root, map[string]string{"etc/passwd": "agent:x:1000:staff:::/bin/sh\nother:x:id:1000:::/bin/sh\n"})
	for _, name := range []string{"agent", "other"} {
		if u, err := passwd.Lookup(root, name); err == nil {
			t.Errorf("%s: %+v", name, u)
		}
	}
}
