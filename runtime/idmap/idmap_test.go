package idmap_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/runtimetest"
	"github.com/securebench/sbench/runtime/idmap"
	"github.com/securebench/sbench/runtime/userns"
)

// needRoot skips the test, or fails it in CI, unless this is the host's root.
func needRoot(tb testing.TB) {
	tb.Helper()
	if userns.Inside() {
		tb.Skip("ids are shifted by the host's root alone; sandboxes have nested namespaces here")
	}
	runtimetest.NeedMounts(tb)
}

func take(tb testing.TB, hostOwned bool) *idmap.Range {
	tb.Helper()
	p, err := idmap.NewPool(filepath.Join(tb.TempDir(), "locks"), hostOwned)
	must.Do(tb, err)
	r, err := p.Take()
	must.Do(tb, err)
	tb.Cleanup(func() { must.Report(tb, r.Close()) })
	return r
}

// mountPoint mounts a tmpfs for the test, and returns two empty directories in it.
func mountPoint(tb testing.TB) (source, target string) {
	tb.Helper()
	dir := tb.TempDir()
	must.Do(tb, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0711"))
	tb.Cleanup(func() { must.Report(tb, unix.Unmount(dir, unix.MNT_DETACH)) })
	must.Do(tb, idmap.MountPrivate(dir))
	tb.Cleanup(func() { must.Report(tb, unix.Unmount(dir, unix.MNT_DETACH)) })
	source, target = filepath.Join(dir, "source"), filepath.Join(dir, "target")
	for _, d := range []string{source, target} {
		must.Do(tb, os.Mkdir(d, 0o755))
	}
	return source, target
}

func TestRangesAreApart(t *testing.T) {
	needRoot(t)
	p, err := idmap.NewPool(filepath.Join(t.TempDir(), "locks"), false)
	must.Do(t, err)
	bases := map[uint32]bool{}
	for range 20 {
		r, err := p.Take()
		must.Do(t, err)
		defer func() {
			must.Report(t, r.Close())
		}()
		base := r.Base()
		if bases[base] || base%idmap.Size != 0 || base < 524288 || base > 1879048191-idmap.Size+1 {
			t.Errorf("base %d", base)
		}
		bases[base] = true
	}
}

func TestMountShiftsIDs(t *testing.T) {
	needRoot(t)
	r := take(t, false)
	source, target := mountPoint(t)
	for name, id := range map[string]int{"root": 0, "user": 1000, "last": 65535, "beyond": 65536} {
		path := filepath.Join(source, name)
		must.Do(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, id, id)))
	}
	must.Do(t, r.Mount(source, target, true))
	for name, want := range map[string]uint32{"root": r.Base(), "user": r.Base() + 1000, "last": r.Base() + 65535, "beyond": 65534} {
		if got := owner(t, filepath.Join(target, name)); got != want {
			t.Errorf("%s shows as %d, want %d", name, got, want)
		}
	}
	made := filepath.Join(target, "made")
	must.Is(t, os.WriteFile(made, nil, 0o600), unix.EOVERFLOW) // a file of the host's root
	must.Do(t, idmap.As(r.Base(), func() error { return os.WriteFile(made, nil, 0o600) }))
	if got := owner(t, filepath.Join(source, "made")); got != 0 {
		t.Errorf("what the range's root made belongs to %d on disk", got)
	}
}

func TestMountReadOnly(t *testing.T) {
	needRoot(t)
	r := take(t, false)
	source, target := mountPoint(t)
	must.Do(t, r.Mount(source, target, false))
	err := idmap.As(r.Base(), func() error { return os.WriteFile(filepath.Join(target, "made"), nil, 0o600) })
	must.Is(t, err, unix.EROFS)
}

// TestShiftsTmpfs compares the result with that of a mount.
func TestShiftsTmpfs(t *testing.T) {
	needRoot(t)
	p, err := idmap.NewPool(filepath.Join(t.TempDir(), "locks"), false)
	must.Do(t, err)
	can, err := p.ShiftsTmpfs()
	must.Do(t, err)
	source, target := mountPoint(t) // on a tmpfs
	if err := take(t, false).Mount(source, target, true); (err == nil) != can || err != nil && !errors.Is(err, idmap.ErrCannotShift) {
		t.Errorf("ShiftsTmpfs says %v, and a mount %v", can, err)
	}
}

func owner(t *testing.T, name string) uint32 {
	t.Helper()
	var st unix.Stat_t
	must.Do(t, unix.Lstat(name, &st))
	return st.Uid
}
