package containerd

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDeepLayer: a sandbox cannot keep its layer on disk from being removed with directories
// that lie deeper than sbench may have files open.
func TestDeepLayer(t *testing.T) {
	v := &volume{folder: true, mountPoint: filepath.Join(t.TempDir(), "layer")}
	if err := os.Mkdir(v.mountPoint, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := v.open(); err != nil {
		t.Fatal(err)
	}
	deep, err := os.OpenRoot(v.data)
	for range 300 {
		if err != nil {
			t.Fatal(err)
		}
		above := deep
		if err = above.Mkdir("d", 0o755); err == nil {
			deep, err = above.OpenRoot("d")
		}
		_ = above.Close()
	}
	_ = deep.Close()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: 128, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(v.mountPoint); !os.IsNotExist(err) {
		t.Errorf("left: %v", err)
	}
}
