package hostcheck_test

import (
	"path/filepath"
	"testing"

	"github.com/securebench/sbench/runtime/hostcheck"
)

// TestRoom: a directory that is not there yet has the room of the one above it, and a warning names the cure.
func TestRoom(t *testing.T) {
	dir := t.TempDir()
	there, notYet := hostcheck.Room(dir), hostcheck.Room(filepath.Join(dir, "not", "yet"))
	if there.Severity != notYet.Severity || there.Severity == hostcheck.Error {
		t.Errorf("%+v, but %+v", there, notYet)
	}
	if none := hostcheck.Room("/proc"); none.Severity != hostcheck.Warn || none.Cure == "" {
		t.Errorf("/proc has no room: %+v", none)
	}
}
