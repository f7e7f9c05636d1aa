package volume_test

import (
	"os"
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
