package shim

import (
	"os"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// TestPipes: a pipe is opened by its name while its own descriptor is open, and no other file in
// its place.
func TestPipes(t *testing.T) {
	r, w, err := os.Pipe()
	must.Do(t, err)
	defer func() { _ = r.Close() }()
	name, err := StreamName(w)
	must.Do(t, err)
	f, err := openStream(name, os.O_WRONLY)
	must.Do(t, err)
	must.Do(t, w.Close())
	if _, err := openStream(name, os.O_WRONLY); err == nil {
		t.Error("a closed descriptor was opened")
	}
	other, err := os.Create(t.TempDir() + "/other") // has the number of the one that was closed
	must.Do(t, err)
	defer func() { _ = other.Close() }()
	path := func(name string) string { path, _, _ := strings.Cut(name, " "); return path }
	if got, err := StreamName(other); err != nil || path(got) != path(name) {
		t.Errorf("%s in place of %s, %v", got, name, err)
	}
	if _, err := openStream(name, os.O_WRONLY); err == nil {
		t.Error("another file was opened")
	}
	_, err = f.WriteString("x")
	must.Report(t, err)
	if n, err := r.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("read %d bytes: %v", n, err)
	}
	must.Report(t, f.Close())
}
