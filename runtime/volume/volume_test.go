package volume_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/volume"
)

// TestDeepLayer: a sandbox cannot keep its layer on disk from being removed with directories
// that lie deeper than sbench may have files open.
func TestDeepLayer(t *testing.T) {
	root := t.TempDir()
	v, err := volume.NewStore(t.TempDir(), root, "run").NewDirectory(runtime.VolumeConfig{Bytes: 1 << 30, Inodes: 1000})
	must.Do(t, err)
	deep, err := os.OpenRoot(v.Path())
	for range 300 {
		must.Do(t, err)
		above := deep
		if err = above.Mkdir("d", 0o755); err == nil {
			deep, err = above.OpenRoot("d")
		}
		_ = above.Close()
	}
	_ = deep.Close()
	var limit unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	few := unix.Rlimit{Cur: 128, Max: limit.Max}
	must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	must.Report(t, v.Close())
	left, err := os.ReadDir(volume.Files(root, "run"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// TestOrder: all images list the same names in the same order, so that what depends on the order ends alike in each sandbox.
func TestOrder(t *testing.T) {
	if !volume.Images() {
		t.Skip("this host cannot mount images")
	}
	store := volume.NewStore(t.TempDir(), t.TempDir(), "run")
	defer func() { must.Report(t, store.Close()) }()
	var first []string
	for range 2 {
		v, err := store.New(t.Context(), runtime.VolumeConfig{Bytes: 80 << 20, Inodes: 1000}, true)
		must.Do(t, err)
		for i := range 20 {
			must.Do(t, os.WriteFile(filepath.Join(v.Path(), fmt.Sprint("test_", i, ".py")), nil, 0o600))
		}
		dir, err := os.Open(v.Path())
		must.Do(t, err)
		names, err := dir.Readdirnames(-1)
		must.Do(t, err)
		must.Do(t, dir.Close())
		if first == nil {
			first = names
		}
		if !slices.Equal(names, first) {
			t.Errorf("%q, and then %q", first, names)
		}
		at := filepath.Dir(v.Path())
		defer func() { must.Report(t, errors.Join(v.Close(), unix.Unmount(at, unix.MNT_DETACH))) }() // late, so that no image is used again
	}
}
