package remove_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/remove"
)

// chain makes depth directories inside one another below dir, each with a file.
func chain(t *testing.T, dir string, depth int) {
	t.Helper()
	deep, err := os.OpenRoot(dir)
	must.Do(t, err)
	for range depth {
		must.Do(t, deep.Mkdir("d", 0o755))
		must.Do(t, deep.WriteFile("file", nil, 0o644))
		next, err := deep.OpenRoot("d")
		must.Do(t, err)
		must.Do(t, deep.Close())
		deep = next
	}
	must.Do(t, deep.Close())
}

func TestAll(t *testing.T) {
	outside, parent := t.TempDir(), t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(outside, "keep"), nil, 0o644))
	root := must.OpenRoot(t, parent)
	must.Do(t, os.MkdirAll(filepath.Join(parent, "ws/.sbench-remove-1/full"), 0o755)) // the names are taken
	must.Do(t, os.WriteFile(filepath.Join(parent, "ws/.sbench-remove-2"), nil, 0o644))
	must.Do(t, os.Symlink(outside, filepath.Join(parent, "ws/out")))
	must.Do(t, os.Symlink(outside, filepath.Join(parent, "link")))
	chain(t, filepath.Join(parent, "ws"), 400)
	for _, name := range []string{"ws/d/d/d", "ws/d/d", "ws/d"} {
		must.Do(t, os.Chmod(filepath.Join(parent, name), 0))
	}
	for _, name := range []string{"ws", "link", "absent", "absent/below"} {
		if err := remove.All(root, name); err != nil {
			t.Errorf("remove %s: %v", name, err)
		}
	}
	if left, _ := os.ReadDir(parent); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	_, err := os.Stat(filepath.Join(outside, "keep"))
	must.Report(t, err)
	for _, name := range []string{"", ".", "..", "/etc", "a/../../b"} {
		if err := remove.All(root, name); err == nil {
			t.Errorf("remove %q: no error", name)
		}
	}
}

// TestFewDescriptors: a tree that is deeper than this process may have files open.
// os.RemoveAll holds a descriptor for each level.
func TestFewDescriptors(t *testing.T) {
	var limit unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	few := limit
	few.Cur = 64
	must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer func() { must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	dir := filepath.Join(t.TempDir(), "layer")
	must.Do(t, os.Mkdir(dir, 0o755))
	chain(t, dir, 300)
	if err := os.RemoveAll(dir); err == nil {
		t.Error("os.RemoveAll removed it: the test proves nothing")
	}
	must.Do(t, remove.Path(dir))
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("left: %v", err)
	}
	must.Do(t, remove.Path(dir))
	must.Do(t, remove.Path(filepath.Join(dir, "below")))
}
