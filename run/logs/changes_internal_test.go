package logs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/runtime"
)

// TestDiffs: changed texts of the image are compared. New files, large files, files that are no text, and
// targets of the image's links are not.
func TestDiffs(t *testing.T) {
	image, upper := t.TempDir(), t.TempDir()
	large := strings.Repeat("x", maxDiffed+1)
	write := func(dir, name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, texts := range map[string][2]string{
		"etc/hosts":  {"127.0.0.1 localhost\nlast", "127.0.0.1 localhost here\nlast"},
		"etc/binary": {"\x00\x01", "\x00\x02"},
		"etc/was":    {large, "small"},
		"etc/is":     {"small", large},
		"etc/same":   {"same\n", "same\n"},
	} {
		write(image, name, texts[0])
		write(upper, name, texts[1])
	}
	write(upper, "etc/new", "new\n")
	write(upper, "etc/link", "text\n")
	if err := os.Symlink("hosts", filepath.Join(image, "etc/link")); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := layer.Write(t.Context(), &text, runtime.Changes{Dir: upper}, candidate.LayerBudget(1<<20)); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(image)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
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
