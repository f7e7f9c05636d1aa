package rootfs_test

import (
	"os"
	"testing"

	"github.com/securebench/sbench/internal/test/runtimetest"
	"github.com/securebench/sbench/runtime/mounts"
	"github.com/securebench/sbench/runtime/rootfs"
)

// TestTry: the trial works here, twice, and leaves neither files nor mounts.
func TestTry(t *testing.T) {
	runtimetest.NeedMounts(t)
	dir := t.TempDir()
	for _, inMemory := range []bool{true, false, false} {
		if err := rootfs.Try(dir, inMemory); err != nil {
			t.Errorf("in memory %v: %v", inMemory, err)
		}
		left, err := os.ReadDir(dir)
		points, mountsErr := mounts.Below(dir)
		if len(left)+len(points) > 0 || err != nil || mountsErr != nil {
			t.Errorf("in memory %v: left %v and the mounts %v; %v, %v", inMemory, left, points, err, mountsErr)
		}
	}
}
