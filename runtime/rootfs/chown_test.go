package rootfs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/rootfs"
)

// TestChown: a user gets everything in a mount, even what has a path that is longer than the kernel takes.
func TestChown(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change owners")
	}
	dir := filepath.Join(t.TempDir(), "mount")
	name := strings.Repeat("d", 250)
	must.Do(t, os.Mkdir(dir, 0o755))
	make := exec.Command("sh", "-ec", "for i in $(seq 20); do mkdir "+name+"; cd -P "+name+"; done; echo > last")
	make.Dir = dir
	must.Run(t, make)
	f := rootfs.FS{Config: rootfs.Config{Mounts: []runtime.Mount{{Source: dir, Chown: true}}}}
	must.Report(t, f.Chown(4242, 4243))
	find := exec.Command("find", dir, "-not", "-uid", "4242")
	if out, err := find.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%.200s, %v", out, err)
	}
}
