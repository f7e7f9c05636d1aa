package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
)

// TestVolumeAgain: a volume on an image that has been used before is like a new one, and no
// other volume has the path of one that was closed.
func TestVolumeAgain(t *testing.T) {
	run, _ := containerdtest.NewRun(t, containerdtest.Open(t))
	cfg := runtime.VolumeConfig{Bytes: 128 << 20, Inodes: 2048}
	fresh := func() (runtime.Volume, unix.Statfs_t) {
		t.Helper()
		v, err := run.NewVolume(context.Background(), cfg)
		must.Do(t, err)
		var st unix.Statfs_t
		must.Report(t, unix.Statfs(v.Path(), &st))
		entries, err := os.ReadDir(v.Path())
		if err != nil || len(entries) > 0 {
			t.Errorf("a new volume holds %v, %v", entries, err)
		}
		info, err := os.Stat(v.Path())
		if err != nil || info.Mode() != os.ModeDir|0o755 || info.Sys() == nil {
			t.Errorf("a new volume is %v, %v", info, err)
		}
		return v, st
	}
	first, empty := fresh()
	for i := range 50 {
		directory := filepath.Join(first.Path(), fmt.Sprint("dir-", i))
		must.Report(t, os.Mkdir(directory, 0o700))
		must.Report(t, os.WriteFile(filepath.Join(directory, "secret"), make([]byte, 1<<20), 0))
		must.Report(t, os.Chmod(directory, 0))
	}
	must.Report(t, os.Symlink("/", filepath.Join(first.Path(), "link")))
	must.Report(t, os.Chmod(first.Path(), 0o1777))
	path := first.Path()
	must.Report(t, first.Close())
	second, again := fresh()
	if again.Bfree != empty.Bfree || again.Ffree != empty.Ffree {
		t.Errorf("%d blocks and %d inodes are free, of a new one %d and %d", again.Bfree, again.Ffree, empty.Bfree, empty.Ffree)
	}
	if _, err := os.Stat(path); err == nil || path == second.Path() {
		t.Errorf("%s is there after the end of its volume", path)
	}
	must.Report(t, first.Close()) // has no effect on the second
	must.Report(t, os.WriteFile(filepath.Join(second.Path(), "file"), nil, 0o644))
	third, _ := fresh()
	must.Report(t, third.Close())
	must.Report(t, second.Close())
	_, err := os.Stat("/usr")
	must.Report(t, err)
}
