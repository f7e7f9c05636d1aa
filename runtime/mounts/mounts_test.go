package mounts_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/runtimetest"
	"github.com/securebench/sbench/runtime/mounts"
)

// TestBelow: mounts are found at and below a directory, whatever its name holds, not
// beside it, and are detached together.
func TestBelow(t *testing.T) {
	runtimetest.NeedMounts(t)
	top := t.TempDir()
	dir, beside := filepath.Join(top, "a b\\c"), filepath.Join(top, "a b\\c more")
	inner := filepath.Join(dir, "inner")
	for _, d := range []string{dir, beside} {
		must.Do(t, os.Mkdir(d, 0o755))
		source := t.TempDir()
		must.Do(t, os.Mkdir(filepath.Join(source, "inner"), 0o755))
		must.Do(t, mounts.Bind(source, d))
		t.Cleanup(func() { must.Report(t, mounts.Detach(d)) })
	}
	must.Do(t, mounts.Bind(t.TempDir(), inner))
	if err := os.WriteFile(filepath.Join(inner, "file"), nil, 0o644); err == nil {
		t.Error("a read-only mount was written to")
	}
	if got, err := mounts.Below(dir); !slices.Equal(got, []string{dir, inner}) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	must.Report(t, mounts.DetachBelow(dir))
	if got, err := mounts.Below(top); !slices.Equal(got, []string{beside}) || err != nil {
		t.Errorf("left: %q, %v", got, err)
	}
}
