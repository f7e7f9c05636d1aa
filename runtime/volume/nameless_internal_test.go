package volume

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/runtimetest"
)

// TestNamelessInMovedMount: an agent cannot hide its open files by moving the mount point of
// their overlay to where its path is longer than a line of the mount table usually is.
func TestNamelessInMovedMount(t *testing.T) {
	runtimetest.NeedMounts(t)
	top := t.TempDir()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // for good: the thread ends with its mount namespace
		hideOverlay(t, top)
	}()
	<-ended
}

func hideOverlay(t *testing.T, top string) {
	try := func(err error) {
		if err != nil {
			t.Error(err)
			runtime.Goexit()
		}
	}
	try(unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS))
	try(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	try(unix.Mount("tmpfs", top, "tmpfs", 0, ""))
	for _, dir := range []string{"lower", "upper", "work", "parent/point"} {
		try(os.MkdirAll(filepath.Join(top, dir), 0o755))
	}
	point := filepath.Join(top, "parent", "point")
	try(unix.Mount("overlay", point, "overlay", 0, strings.NewReplacer("TOP", top).Replace("lowerdir=TOP/lower,upperdir=TOP/upper,workdir=TOP/work")))
	f, err := os.Create(filepath.Join(point, "file"))
	try(err)
	defer func() { _ = f.Close() }()
	try(os.Remove(f.Name()))
	if found := nameless(unix.Gettid()); len(found) != 1 {
		t.Errorf("before: %d files", len(found))
	}
	above, err := os.OpenRoot(top)
	try(err)
	deep, space := above, strings.Repeat(" ", 255) // each is four bytes in the table
	for range 70 {
		try(deep.Mkdir(space, 0o755))
		deep, err = deep.OpenRoot(space)
		try(err)
		defer func() { _ = deep.Close() }()
	}
	to, err := deep.Open(".")
	try(err)
	defer func() { _ = to.Close() }()
	try(unix.Renameat(unix.AT_FDCWD, filepath.Join(top, "parent"), int(to.Fd()), "parent"))
	if found := nameless(unix.Gettid()); len(found) != 1 {
		t.Errorf("after: %d files", len(found))
	}
}
