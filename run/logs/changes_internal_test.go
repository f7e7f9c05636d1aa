package logs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
)

// TestDiffs: changed texts of the image are compared. New files, large files, files that are no text, and
// targets of the image's links are not.
func TestDiffs(t *testing.T) {
	image, upper := t.TempDir(), t.TempDir()
	large := strings.Repeat("x", maxDiffed+1)
	for name, texts := range map[string][2]string{
		"etc/hosts":  {"127.0.0.1 localhost\nlast", "127.0.0.1 localhost here\nlast"},
		"etc/binary": {"\x00\x01", "\x00\x02"},
		"etc/was":    {large, "small"},
		"etc/is":     {"small", large},
		"etc/same":   {"same\n", "same\n"},
	} {
		filetest.Write(t, image, map[string]string{name: texts[0]})
		filetest.Write(t, upper, map[string]string{name: texts[1]})
	}
	filetest.Write(t, upper, map[string]string{"etc/new": "new\n", "etc/link": "text\n"})
	must.Do(t, os.Symlink("hosts", filepath.Join(image, "etc/link")))
	var text bytes.Buffer
	if _, err := layer.Write(t.Context(), &text, runtime.Changes{Dir: upper}, candidate.LayerBudget(1<<20)); err != nil {
		t.Fatal(err)
	}
	root := must.OpenRoot(t, image)
	const want = `--- a/etc/hosts
+++ b/etc/hosts
@@ -1,2 +1,2 @@
-127.0.0.1 localhost
+127.0.0.1 localhost here
 last
\ No newline at end of file
`
	if got, err := diffs(t.Context(), &text, root); err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
}
