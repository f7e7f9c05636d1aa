package volume

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
)

// TestUsed: everything in a directory is counted, whatever its name, and no file twice.
func TestUsed(t *testing.T) {
	const mb = 1 << 20
	write := func(dir, name string, size int) error {
		return os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o644)
	}
	tests := []struct {
		name  string
		fill  func(dir string) error
		least int64
		most  int64
	}{
		{"empty", func(string) error { return nil }, 0, mb},
		{"a file", func(dir string) error { return write(dir, "big", 8*mb) }, 8 * mb, 9 * mb},
		{"one file of many names", func(dir string) error {
			err := write(dir, "big", 2*mb)
			for i := range 20 {
				err = errors.Join(err, os.Link(filepath.Join(dir, "big"), filepath.Join(dir, strings.Repeat("l", i+1))))
			}
			return err
		}, 2 * mb, 3 * mb},
		{"a path longer than the kernel takes", func(dir string) error {
			deep := strings.Repeat("d", 250)
			script := "for i in $(seq 20); do mkdir " + deep + " && cd -P " + deep + " || exit 1; done; cd \"$0\"; head -c 8388608 /dev/urandom >zz"
			cmd := exec.Command("sh", "-c", script, dir)
			cmd.Dir = dir
			return cmd.Run()
		}, 8 * mb, 9 * mb},
		{"a directory with any name", func(dir string) error {
			odd := filepath.Join(dir, "\xff")
			return errors.Join(os.Mkdir(odd, 0o700), write(odd, "big", 8*mb))
		}, 8 * mb, 9 * mb},
		{"a directory that nobody may read", func(dir string) error {
			closed := filepath.Join(dir, "closed")
			return errors.Join(os.Mkdir(closed, 0o700), write(closed, "big", 8*mb), os.Chmod(closed, 0))
		}, 8 * mb, 9 * mb},
	}
	deep := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(deep, strings.Repeat("d/", maxWatchDepth+2)), 0o755))
	_, _, err := (&Volume{data: deep, cfg: runtime.VolumeConfig{Bytes: mb * mb, Inodes: mb}}).used(nil)
	must.Is(t, err, errOverflow) // too deep
	if os.Geteuid() != 0 {
		t.Skip("root walks everything")
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("/var/tmp", "sbench-used-") // on disk, with a short name
			must.Do(t, err)
			t.Cleanup(func() { _ = exec.Command("rm", "-rf", dir).Run() })
			must.Do(t, tt.fill(dir))
			v := &Volume{data: dir, unbounded: true, cfg: runtime.VolumeConfig{Bytes: 16 * mb, Inodes: 100}}
			bytes, _, err := v.used(nil)
			if err != nil || bytes < tt.least || bytes > tt.most {
				t.Errorf("%d bytes, %v", bytes, err)
			}
			v.cfg.Bytes = mb
			full, err := v.Full()
			if _, _, over := v.used(nil); err != nil || full != (bytes > mb) || full != errors.Is(over, errOverflow) {
				t.Errorf("full of 1 MiB: %v, %v, %v", full, err, over)
			}
		})
	}
}
