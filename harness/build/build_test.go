package build_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/harness/build"
	"github.com/securebench/sbench/internal/test/must"
)

// TestDockerfileOutside: no file outside the build context becomes its Dockerfile.
func TestDockerfileOutside(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "file")
	must.Do(t, errors.Join(os.WriteFile(outside, []byte("secret\n"), 0o600), os.Symlink(outside, filepath.Join(dir, "Dockerfile"))))
	if _, err := (build.Builder{}).Build(t.Context(), dir, "Dockerfile", "x"); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("%v", err)
	}
}

// TestPipes: pipes in a build context are empty files.
func TestPipes(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, errors.Join(unix.Mkfifo(filepath.Join(dir, "Dockerfile"), 0o644), unix.Mkfifo(filepath.Join(dir, ".dockerignore"), 0o644)))
	_, err := (build.Builder{}).Build(t.Context(), dir, "Dockerfile", "x")
	must.Tells(t, err, "no instructions")
}
