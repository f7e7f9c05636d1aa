package terminal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// TestArtifactLinks: links that lead out of their artifact are left out, also those that lead out only by another link.
// An artifact is taken whatever its names are, and left out if it is too deep.
func TestArtifactLinks(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(dir, "w/out/a/b/c"), 0o755))
	links := map[string]string{
		"a/b/c/top": "../../..", "b": "a/b/c", "c": "./a", "d": "missing", "e": "../out/a",
		"v": "a/b/c/top/../../tests/want", "w": "b/../../../../tests/want", "x": "/tests/want", "y": "../want", "z": "missing/../../x",
	}
	for name, target := range links {
		must.Do(t, os.Symlink(target, filepath.Join(dir, "w/out", name)))
	}
	must.Do(t, os.MkdirAll(filepath.Join(dir, "w/out/zz\xff/names may be anything"), 0o755))
	must.Do(t, os.Symlink("..", filepath.Join(dir, "w/out/zz\xff/in")))
	must.Do(t, os.Symlink("../..", filepath.Join(dir, "w/out/zz\xff/out")))
	must.Do(t, os.MkdirAll(filepath.Join(dir, "deep", strings.Repeat("d/", maxDepth+1)), 0o755))
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	defer func() { _ = root.Close() }()
	found, left, err := artifactsIn(root, []string{"/w/out", "/deep", "/w/out"}, 1<<20)
	if want := []string{"/w/out/v", "/w/out/w", "/w/out/x", "/w/out/y", "/w/out/z", "/w/out/zz\xff/out", "/deep"}; err != nil || len(found) != 1 || !slices.Equal(left, want) {
		t.Errorf("%v %v %q, want %q", err, found, left, want)
	}
	must.Do(t, os.Mkdir(filepath.Join(dir, "many"), 0o755))
	for i := range 2 * maxLeftOut {
		must.Do(t, os.Symlink("/x", filepath.Join(dir, "many", fmt.Sprint(i))))
	}
	_, left, err = artifactsIn(root, []string{"/many"}, 1<<20)
	if kept, readErr := os.ReadDir(filepath.Join(dir, "many")); err != nil || readErr != nil || len(left) != maxLeftOut || len(kept) > 0 {
		t.Errorf("many links: %v %v, %d named, %d kept", err, readErr, len(left), len(kept))
	}
}

// TestCollectScript: the commands run, each within its time, and the artifacts are copied, with bash or without.
func TestCollectScript(t *testing.T) {
	for _, tt := range []struct {
		shells       []string
		timeout      string // "" is the host's
		late, failed string
	}{
		{[]string{"sh"}, "", "sleep 100", "failed: false\nfailed: sleep 100\n"},
		{[]string{"sh", "bash"}, "", "sleep 100", "failed: false\nfailed: sleep 100\n"},
		{[]string{"sh"}, "#!/bin/sh\necho 'timeout: unrecognized option: k' >&2; exit 1\n", "sleep 0", "failed: false\n"},
	} {
		dir := t.TempDir()
		for _, name := range append([]string{"mkdir", "chmod", "cp", "dirname", "timeout", "sleep"}, tt.shells...) {
			at, err := exec.LookPath(name)
			must.Do(t, err)
			must.Do(t, os.Symlink(at, filepath.Join(dir, name)))
		}
		if tt.timeout != "" {
			must.Do(t, os.Remove(filepath.Join(dir, "timeout")))
			must.Do(t, os.WriteFile(filepath.Join(dir, "timeout"), []byte(tt.timeout), 0o755))
		}
		logged, mount, made := filepath.Join(dir, "logged"), filepath.Join(dir, "mount"), filepath.Join(dir, "made")
		script := strings.NewReplacer(loggedDir, logged, artifactsMount, mount).Replace(collectScript)
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "collect", "", "60", "echo x > "+made, "", "60", "false", "", "1", tt.late, "--", logged, made, filepath.Join(dir, "missing"))
		cmd.Env = []string{"PATH=" + dir}
		out, err := cmd.CombinedOutput()
		if text, readErr := os.ReadFile(mount + made); err != nil || readErr != nil || string(text) != "x\n" || string(out) != tt.failed {
			t.Errorf("%v: %v %v %q %q", tt.shells, err, readErr, text, out)
		}
		_, err = os.Lstat(mount + logged)
		must.Report(t, err)
	}
}
