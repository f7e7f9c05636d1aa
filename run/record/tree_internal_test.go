package record

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// TestLinkTree: files and links of a tree become hard links and, between file systems, copies.
func TestLinkTree(t *testing.T) {
	for name, dir := range map[string]string{"the same file system": "", "another one": "/dev/shm"} {
		t.Run(name, func(t *testing.T) {
			source := t.TempDir()
			target, err := os.MkdirTemp(dir, "")
			if dir == "" {
				target, err = t.TempDir(), nil
			}
			if err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(target) })
			at := func(name string) string { return filepath.Join(source, name) }
			err = errors.Join(os.MkdirAll(at("w/t/a/b"), 0o755), os.WriteFile(at("w/t/a/b/f"), []byte("text"), 0o640), os.Symlink("/nowhere", at("w/t/l")), os.Chmod(at("w/t/a"), 0o500),
				os.WriteFile(at("w/log"), []byte("log"), 0o644), os.MkdirAll(filepath.Join(target, "w/t/old"), 0o755))
			must.Do(t, err)
			from, err := os.OpenRoot(source)
			to, also := os.OpenRoot(target)
			err = errors.Join(err, also, linkTree(t.Context(), from, to, "w/t"), linkTree(t.Context(), from, to, "w/log"))
			must.Do(t, err)
			for name, text := range map[string]string{"w/t/a/b/f": "text", "w/log": "log"} {
				got, err := to.ReadFile(name)
				before, _ := from.Lstat(name)
				after, _ := to.Lstat(name)
				if string(got) != text || before.Mode() != after.Mode() {
					t.Errorf("%s: %q, %s, %v", name, got, after.Mode(), err)
				}
				if dir == "" && !os.SameFile(before, after) {
					t.Errorf("%s is a copy", name)
				}
			}
			link, _ := to.Readlink("w/t/l")
			info, err := to.Lstat("w/t/a")
			if _, old := to.Lstat("w/t/old"); err != nil || link != "/nowhere" || info.Mode().Perm() != 0o500 || old == nil {
				t.Error(link, info, old)
			}
			if os.Getuid() != 0 {
				_ = errors.Join(from.Chmod("w/t/a", 0o700), to.Chmod("w/t/a", 0o700))
			}
		})
	}
}
