// Package filetest writes the files of tests.
package filetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// Write writes texts below dir, by their slash-separated names. A text that begins with "#!" is executable.
func Write(tb testing.TB, dir string, texts map[string]string) {
	tb.Helper()
	for name, text := range texts {
		path, mode := filepath.Join(dir, name), os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		must.Do(tb, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(tb, os.WriteFile(path, []byte(text), mode))
	}
}
