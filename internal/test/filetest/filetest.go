// Package filetest writes and reads the files of tests.
package filetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/internal/test/must"
)

// Archive returns the texts of a txtar archive by their names.
func Archive(tb testing.TB, path string) map[string]string {
	tb.Helper()
	archive, err := txtar.ParseFile(path)
	must.Do(tb, err)
	texts := map[string]string{}
	for _, f := range archive.Files {
		texts[f.Name] = string(f.Data)
	}
	return texts
}

// Write writes texts below dir, by their slash-separated names. Scripts, which begin with "#!", and programs are executable.
func Write(tb testing.TB, dir string, texts map[string]string) {
	tb.Helper()
	for name, text := range texts {
		path, mode := filepath.Join(dir, name), os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") || strings.HasPrefix(text, "\x7fELF") {
			mode = 0o755
		}
		must.Do(tb, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(tb, os.WriteFile(path, []byte(text), mode))
	}
}
