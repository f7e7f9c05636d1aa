package foreign_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/workspace/foreign"
)

// TestOpen: only regular files of bounded size are opened, and directories as directories.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(dir, "d", "e"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, "d", "e", "file"), []byte("four"), 0o644))
	must.Do(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	must.Do(t, os.Symlink("d", filepath.Join(dir, "link")))
	must.Do(t, os.Symlink("d/e/file", filepath.Join(dir, "filelink")))
	must.Do(t, os.Symlink("/dev/zero", filepath.Join(dir, "zero")))
	must.Do(t, os.WriteFile(filepath.Join(dir, "sparse"), nil, 0o644))
	must.Do(t, os.Truncate(filepath.Join(dir, "sparse"), 300<<30))
	root := must.OpenRoot(t, dir)
	for _, tt := range []struct {
		name string
		err  error // nil for a file that can be read
		dir  bool  // is a directory
	}{
		{"d/e/file", nil, false},
		{"./d//e/file", nil, false},
		{"d/e", foreign.ErrKind, true},
		{".", foreign.ErrKind, true},
		{"fifo", foreign.ErrKind, false},
		{"fifo/x", foreign.ErrKind, false},
		{"link", foreign.ErrKind, false},
		{"link/e", foreign.ErrKind, false},
		{"link/e/file", foreign.ErrKind, false},
		{"filelink", foreign.ErrKind, false},
		{"zero", foreign.ErrKind, false},
		{"sparse", foreign.ErrBig, false},
		{"missing", fs.ErrNotExist, false},
		{"../" + filepath.Base(dir) + "/d/e/file", fs.ErrInvalid, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, err := foreign.Read(root, tt.name, 4)
			if !errors.Is(err, tt.err) || err == nil && string(text) != "four" {
				t.Errorf("%q, %v, want %v", text, err, tt.err)
			}
			d, err := foreign.OpenDir(root, tt.name)
			if (err == nil) != tt.dir {
				t.Errorf("as a directory: %v", err)
			}
			if err == nil {
				must.Do(t, d.Close())
			}
		})
	}
	for name, want := range map[string]error{ // of the host, where links are followed
		"d/e/file": nil, "link/e/file": nil, "filelink": nil, "d": foreign.ErrKind, "fifo": foreign.ErrKind, "zero": foreign.ErrKind, "sparse": foreign.ErrBig, "missing": fs.ErrNotExist,
	} {
		if text, err := foreign.ReadPath(filepath.Join(dir, name), 4); !errors.Is(err, want) || err == nil && string(text) != "four" {
			t.Errorf("%s as a path: %q, %v, want %v", name, text, err, want)
		}
	}
}

// TestWalkMeanwhile: whoever replaces a directory again and again while it is walked causes no error.
func TestWalkMeanwhile(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, errors.Join(os.Mkdir(filepath.Join(dir, "a"), 0o755), os.Symlink("/", filepath.Join(dir, "b"))))
	root := must.OpenRoot(t, dir)
	var swaps sync.WaitGroup
	done := make(chan struct{})
	swaps.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				must.Report(t, unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "a"), unix.AT_FDCWD, filepath.Join(dir, "b"), unix.RENAME_EXCHANGE))
			}
		}
	})
	var err error
	for i := 0; i < 5000 && err == nil; i++ {
		err = foreign.Walk(root, 1, func(foreign.Entry) error { return nil })
	}
	must.Report(t, err)
	close(done)
	swaps.Wait()
}
