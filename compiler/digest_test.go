package compiler_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
)

// digestPack returns the files of a pack that uses everything digests cover.
func digestPack() map[string]string {
	return map[string]string{
		"manifest.yaml": "{\"id\": \"d\", \"version\": 1, \"defaults\": {\"family\": \"terminal_task\", \"environment\": {\"timeout_seconds\": 1.50}}}\n",
		"tasks.jsonl": `{"id":"a","input":{"instructions":"do"},"eval":{"checker":{"command":"true"},"run_tests":{"path":"a/run.sh"}},"assets":[{"path":"data/"},{"path":"x.txt"}]}` + "\n\n" +
			`{"id":"b","input":{"instructions":"dö \u001f \ud83d\ude00","context":{"b":-1.50,"a":[1,1.0,true,null,123456789012345678901234567890]}},"eval":{"checker":{"source":"pytest","path":"./b//test_b.py"}}}` + "\n" +
			`{"id":"c","family":"multimodal_qa","eval":{"answer":{"path":"a"},"also":{"path":"a/run.sh","mount":"securebench/evaluator/run"}}}` + "\n" +
			`{"id":"d","family":"tool_call"}` + "\n" +
			`{"id":"e","input":{"instructions":"e"},"eval":{"checker":{"source":"pytest","path":"b"}}}` + "\n",
		"assets/data/one": "1", "assets/data/two/three": "3", "assets/x.txt": "x",
		"hidden/a/run.sh": "#!/bin/sh\n", "hidden/b/test_b.py": "def test(): pass\n", "hidden/b/conftest.py": "", "hidden/unused": "u",
	}
}

func openDigestPack(t *testing.T, change func(files map[string]string)) (string, *compiler.Pack) {
	t.Helper()
	files := digestPack()
	if change != nil {
		change(files)
	}
	dir := t.TempDir()
	filetest.Write(t, dir, files)
	if err := os.Chmod(filepath.Join(dir, "hidden/a/run.sh"), 0o644); err != nil && files["hidden/a/run.sh"] != "" {
		t.Fatal(err)
	}
	pack, err := family.OpenPack(filepath.Join(dir, "manifest.yaml"), filepath.Join(dir, "tasks.jsonl"))
	must.Do(t, err)
	return dir, pack
}

func packDigest(t *testing.T, pack *compiler.Pack) string {
	t.Helper()
	d, err := pack.Digest(t.Context())
	must.Do(t, err)
	return d
}

// TestDigestGolden pins the format: if it changes, the labels have to change, too.
func TestDigestGolden(t *testing.T) {
	_, pack := openDigestPack(t, nil)
	must.Equal(t, "sha256:24cec3e5b373c068dd2539cfea75795f38b31c0a3d39ef6628b48a29dcf5b879", pack.ManifestDigest())
	must.Equal(t, "sha256:79467ffb618d43eed989f0fb3bfae7e36ce598ad1b9d5df4f9e6c95c5e141a59", packDigest(t, pack))
}

// TestDigestInPython computes the same digests with docs/design/digests.py.
func TestDigestInPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("NO python3 ON THIS HOST, so docs/design/digests.py is not tried")
	}
	dir, pack := openDigestPack(t, func(f map[string]string) { // a checker directly in the root, and a number in eval
		f["tasks.jsonl"] += `{"id":"f","input":{"instructions":"f"},"eval":{"checker":{"source":"pytest","path":"unused","timeout_seconds":1.50}}}` + "\n"
	})
	must.Do(t, os.Chmod(filepath.Join(dir, "hidden/a/run.sh"), 0o755))
	cmd := exec.CommandContext(t.Context(), python, "../docs/design/digests.py", dir)
	cmd.Stdin = strings.NewReader(digestPack()["manifest.yaml"])
	out := must.Run(t, cmd)
	if got, want := string(bytes.TrimSpace(out)), packDigest(t, pack); got != want {
		t.Errorf("python %s, sbench %s", got, want)
	}
}

func TestDigestErrors(t *testing.T) {
	for name, change := range map[string]func(f map[string]string){
		"missing eval file": func(f map[string]string) { delete(f, "hidden/a/run.sh") },
		"missing asset":     func(f map[string]string) { delete(f, "assets/x.txt") },
		"bad row":           func(f map[string]string) { f["tasks.jsonl"] += "{}\n" },
	} {
		t.Run(name, func(t *testing.T) {
			_, pack := openDigestPack(t, change)
			if d, err := pack.Digest(t.Context()); err == nil {
				t.Errorf("digest %s", d)
			}
		})
	}
	dir, pack := openDigestPack(t, nil)
	must.Do(t, os.Remove(filepath.Join(dir, "assets/x.txt")))
	must.Do(t, os.Symlink("data/one", filepath.Join(dir, "assets/x.txt")))
	_, err := pack.Digest(t.Context())
	must.Tells(t, err, "symbolic link")
}
