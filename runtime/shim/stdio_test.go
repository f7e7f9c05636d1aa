package shim

import (
	"os"
	"strings"
	"testing"
)

// TestPipes: a pipe is opened by its name while its own descriptor is open, and no other file in
// its place.
func TestPipes(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	name, err := StreamName(w)
	if err != nil {
		t.Fatal(err)
	}
	f, err := openStream(name, os.O_WRONLY)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := openStream(name, os.O_WRONLY); err == nil {
		t.Error("a closed descriptor was opened")
	}
	other, err := os.Create(t.TempDir() + "/other") // has the number of the one that was closed
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	path := func(name string) string { path, _, _ := strings.Cut(name, " "); return path }
	if got, err := StreamName(other); err != nil || path(got) != path(name) {
		t.Errorf("%s in place of %s, %v", got, name, err)
	}
	if _, err := openStream(name, os.O_WRONLY); err == nil {
		t.Error("another file was opened")
	}
	if _, err := f.WriteString("x"); err != nil {
		t.Error(err)
	}
	if n, err := r.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("read %d bytes: %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
