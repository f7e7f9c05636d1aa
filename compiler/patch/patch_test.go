package patch_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler/patch"
	"github.com/securebench/sbench/internal/test/corpus"
	"github.com/securebench/sbench/internal/test/must"
)

const hunk = "@@ -1 +1 @@\n-a\n+b\n"

func TestParse(t *testing.T) {
	tests := []struct {
		name, text string
		want       []patch.File
	}{
		{"change", "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n" + hunk, []patch.File{{Old: "x", New: "x", OldMode: 0o100644, NewMode: 0o100644, Added: 1, Removed: 1}}},
		{"new", "diff --git a/d/x b/d/x\nnew file mode 100755\nindex 0..2\n--- /dev/null\n+++ b/d/x\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n", []patch.File{{New: "d/x", NewMode: 0o100755, Added: 2}}},
		{"new and empty", "diff --git a/x b/x\nnew file mode 100644\nindex 0..0\n", []patch.File{{New: "x", NewMode: 0o100644}}},
		{"deleted", "diff --git a/x b/x\ndeleted file mode 100644\nindex 1..0\n--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", []patch.File{{Old: "x", OldMode: 0o100644, Removed: 1}}},
		{"mode", "diff --git a/x y b/x y\nold mode 100644\nnew mode 100755\n", []patch.File{{Old: "x y", New: "x y", OldMode: 0o100644, NewMode: 0o100755}}},
		{"rename", "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n", []patch.File{{Old: "x", New: "y", Rename: true}}},
		{"copy", "diff --git a/x b/y\nsimilarity index 100%\ncopy from x\ncopy to y\n", []patch.File{{Old: "x", New: "y", Copy: true}}},
		{"quoted", "diff --git \"a/\\303\\244\\t\" \"b/\\303\\244\\t\"\n--- \"a/\\303\\244\\t\"\n+++ \"b/\\303\\244\\t\"\n" + hunk, []patch.File{{Old: "ä\t", New: "ä\t", Added: 1, Removed: 1}}},
		{"symlink", "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n\\ No newline at end of file\n", []patch.File{{New: "l", NewMode: 0o120000, Added: 1}}},
		{"binary", "diff --git a/x b/x\nindex 1..2 100644\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\nliteral 0\nHcmV?d00001\n\n", []patch.File{{Old: "x", New: "x", OldMode: 0o100644, NewMode: 0o100644, Binary: true}}},
		{"plain", "--- a/x\t2024-01-01\n+++ b/x\t2024-01-02\n" + hunk, []patch.File{{Old: "x", New: "x", Added: 1, Removed: 1}}},
		{"mail", "From: a\nSubject: b\n\n---\n x | 1 +\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n" + hunk + "-- \n2.39\n", []patch.File{{Old: "x", New: "x", Added: 1, Removed: 1}}},
		{"two mails", "From: a\n\n---\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n" + hunk + "-- \n2.39\n\nFrom: b\n\n---\n y | 1 +\n\ndiff --git a/y b/y\n--- a/y\n+++ b/y\n" + hunk + "-- \n2.39\n", []patch.File{{Old: "x", New: "x", Added: 1, Removed: 1}, {Old: "y", New: "y", Added: 1, Removed: 1}}},
		{"lines that look like headers", "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/y\n+++ b/y\n diff --git a/z b/z\n", []patch.File{{Old: "x", New: "x", Added: 1, Removed: 1}}},
		{"empty context line", "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n\n-a\n+b\n", []patch.File{{Old: "x", New: "x", Added: 1, Removed: 1}}},
		{"two", "--- a/x\n+++ b/x\n" + hunk + "\n--- a/y\n+++ b/y\n" + hunk, []patch.File{{Old: "x", New: "x", Added: 1, Removed: 1}, {Old: "y", New: "y", Added: 1, Removed: 1}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := patch.Parse(test.text)
			must.Do(t, err)
			for i := range got {
				if part, err := patch.Parse(got[i].Text); err != nil || len(part) != 1 {
					t.Errorf("its text alone: %v %v", part, err)
				}
				got[i].Text = ""
			}
			must.Equal(t, test.want, got)
		})
	}
}

func TestClean(t *testing.T) {
	const one, two = "--- a/x\n+++ b/x\n" + hunk, "diff --git a/y b/y\n--- a/y\n+++ b/y\n" + hunk
	const stub = "diff --git a/z.pyc b/z.pyc\nnew file mode 100644\nindex 0..1\nBinary files /dev/null and b/z.pyc differ\n"
	tests := []struct {
		name, text, want string
		done             []string
	}{
		{"clean", one + two, one + two, nil},
		{"no line end", strings.TrimSuffix(one, "\n"), one, nil},
		{"code blocks", "Here:\n```diff\n" + one + "```\nand\n```\n" + two + "```\nDone.", one + two, []string{"text around the patch"}},
		{"a sentence after it", one + "That is all.\n", one, []string{"text around the patch"}},
		{"CR LF", strings.ReplaceAll(one, "\n", "\r\n"), one, []string{"CR LF"}},
		{"CR LF in lines of files", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\r\n+b\r\n", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\r\n+b\r\n", nil},
		{"no blank lines at the end of the last hunk", "--- a/x\n+++ b/x\n@@ -1,5 +1,5 @@\n-a\n+b\n c\n d", "--- a/x\n+++ b/x\n@@ -1,5 +1,5 @@\n-a\n+b\n c\n d\n \n \n", []string{"blank lines at the end of the last hunk"}},
		{"a binary file without content", one + stub + two, one + two, []string{`"z.pyc", a binary file without its content`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, done, err := patch.Clean(tt.text)
			if err != nil || got != tt.want {
				t.Errorf("%q, %v", got, err)
			}
			must.Equal(t, tt.done, done)
		})
	}
	_, _, err := patch.Clean("--- a/x\n+++ b/x\n@@ -1,5 +1,5 @@\n-a\n+b\n")
	must.Tells(t, err, "hunk ends early")
	_, _, err = patch.Clean("Here:\n```\n--- a/x\n+++ b/x\n@@ -1,3 +1 @@\n-a\n```\n")
	must.Tells(t, err, "line 7 of the patch: line of a hunk")
}

func TestParseRefuses(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"empty", "", "line 1 of the patch: no file"},
		{"prose", "please apply\n", "line 1 of the patch: no file"},
		{"names disagree", "diff --git a/x b/x\n--- a/x\n+++ b/y\n" + hunk, "line 4 of the patch: names of the file's header disagree"},
		{"header disagrees", "diff --git a/x b/x\n--- a/y\n+++ b/y\n" + hunk, "names of the file's header disagree"},
		{"rename disagrees", "diff --git a/x b/y\nrename from x\nrename to y\n--- a/x\n+++ b/z\n" + hunk, "names of the file's header disagree"},
		{"half a rename", "diff --git a/x b/y\nrename from x\n" + hunk, "half a rename or copy"},
		{"no prefix", "--- x\n+++ x\n" + hunk, `path "x" lacks the prefix a/ or b/`},
		{"no name", "diff --git a/x b/y\nold mode 100644\nnew mode 100755\n", "file without a name"},
		{"no change", "diff --git a/x b/x\nindex 1..2 100644\n", "file without a change"},
		{"short hunk", "--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n-a\n", "hunk ends early"},
		{"long hunk", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n+c\n", "text between files"},
		{"hunk with junk", "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-a\njunk\n", `line of a hunk begins with "j"`},
		{"hunk header", "--- a/x\n+++ b/x\n@@ -a +1 @@\n-a\n", "malformed hunk header"},
		{"binary differs", "diff --git a/x b/x\nindex 1..2\nBinary files a/x and b/x differ\n", "binary change without its content"},
		{"binary junk", "diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 1\nnonsense\n\n", "malformed binary patch"},
		{"binary line that is too short", "diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 13\nMcmZPo000310RR91\n\n", "line 5 of the patch: malformed binary patch"},
		{"binary line that is too long", "diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 1\nAcmZPo000310RR91\n\n", "line 5 of the patch: malformed binary patch"},
		{"binary line with CR", "diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\r\n\n", "line 5 of the patch: malformed binary patch"},
		{"setuid", "diff --git a/x b/x\nold mode 100644\nnew mode 104755\n", "setuid"},
		{"mode", "diff --git a/x b/x\nold mode 100644\nnew mode rwx\n", "malformed mode"},
		{"open quote", "--- \"a/x\n+++ b/x\n" + hunk, "malformed quoted path"},
		{"new with old name", "diff --git a/x b/x\nnew file mode 100644\n--- a/x\n+++ b/x\n" + hunk, "a new or deleted file has both names"},
		{"not new without old name", "diff --git a/x b/x\n--- /dev/null\n+++ b/x\n" + hunk, "neither new nor deleted"},
		{"malformed after a signature", "--- a/x\n+++ b/x\n" + hunk + "-- \n2.39\n\n--- /etc/x\n+++ b/y\n@@ -1 +1 @@\n-a\n", "hunk ends early"},
		{"escape that git does not know", "--- \"a/\\x41\"\n+++ \"b/\\x41\"\n" + hunk, "malformed quoted path"},
		{"text between", "--- a/x\n+++ b/x\n" + hunk + "hello\n--- a/y\n+++ b/y\n" + hunk, "text between files"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			files, err := patch.Parse(test.text)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v, error %v, want %q", files, err, test.want)
			}
		})
	}
}

func TestCheckPath(t *testing.T) {
	for _, path := range []string{"a", "a/b.py", ".github/workflows/x.yml", ".gitignore", "a b/ä", "gitx", "a/.gitattributes"} {
		must.Report(t, patch.CheckPath(path))
	}
	for _, path := range []string{
		"", "/a", "a//b", "./a", "a/.", "..", "a/../b", "a/", `a\b`, "a\nb", "a\xff", ".git", "a/.GIT/config", ".git/hooks/x", ".g\u200cit/x", ".git.", ".git ", ".git::$INDEX_ALLOCATION/x", "GIT~1/x", "...", " ",
	} {
		if err := patch.CheckPath(path); err == nil {
			t.Errorf("%q is fine", path)
		}
	}
}

// git runs git in dir without the host's configuration.
func git(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
	}
	out := must.Run(t, cmd)
	return out
}

// changedRepository makes a repository with every kind of change and name in
// its index, and returns its directory.
func changedRepository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	long := strings.Repeat("a line of text that stays\n", 30)
	git(t, dir, "init", "-q")
	put(t, dir, "change", "a\nb\n", 0o644)
	put(t, dir, "dir/with space", "a\n", 0o644)
	put(t, dir, "ünï\tcode \"q\" \\", "a\n", 0o644)
	put(t, dir, "delete me", "a\n", 0o644)
	put(t, dir, "mode", "a\n", 0o644)
	put(t, dir, "rename from", long, 0o644)
	put(t, dir, "copy", long+"other\n", 0o644)
	put(t, dir, "binary", "\x00\x01"+strings.Repeat("\x00\xff", 500), 0o644)
	put(t, dir, "no newline", "a", 0o644)
	put(t, dir, "crlf", "a\r\nb\r\n", 0o644)
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "base")
	put(t, dir, "change", "a\nc\n--- a/fake\n+++ b/fake\n@@ -1 +1 @@\n", 0o644)
	put(t, dir, "dir/with space", "b\n", 0o644)
	put(t, dir, "ünï\tcode \"q\" \\", "b\n", 0o644)
	put(t, dir, "mode", "a\n", 0o755)
	put(t, dir, "new\nline", "", 0o644)
	put(t, dir, "empty", "", 0o644)
	put(t, dir, "renamed to", long+"changed\n", 0o644)
	put(t, dir, "copied", long+"other\n", 0o644)
	put(t, dir, "binary", "\x00\x02"+strings.Repeat("\x00\xfe", 700), 0o644)
	put(t, dir, "no newline", "b", 0o644)
	put(t, dir, "crlf", "a\r\nc\r\n", 0o644)
	for _, name := range []string{"delete me", "rename from"} {
		must.Do(t, os.Remove(filepath.Join(dir, name)))
	}
	must.Do(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	git(t, dir, "add", "-A")
	return dir
}

func put(t *testing.T, dir, name, content string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(dir, name)
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode))
	must.Do(t, err)
}

// TestAgainstGit parses what git itself writes for a repository with every kind of
// change and name, and compares the paths with git's own list.
func TestAgainstGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("needs git, which CI must have")
		}
		t.Skip("no git")
	}
	dir := changedRepository(t)
	for name, args := range map[string][]string{
		"renames":    {"-M", "-C", "--find-copies-harder"},
		"no renames": {"--no-renames"},
	} {
		t.Run(name, func(t *testing.T) {
			text := git(t, dir, append([]string{"diff", "--cached", "--binary", "--full-index"}, args...)...)
			files, err := patch.Parse(string(text))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			var got []string
			for _, f := range files {
				got = append(got, f.Paths()...)
				if f.Irregular() != (f.New == "link") {
					t.Errorf("%q irregular: %v", f.New, f.Irregular())
				}
			}
			names := git(t, dir, "diff", "--cached", "--no-renames", "--name-only", "-z")
			want := strings.Split(strings.TrimRight(string(names), "\x00"), "\x00")
			slices.Sort(got)
			slices.Sort(want)
			must.Equal(t, want, got)
			if bytes.Contains(text, []byte("fake")) == slices.Contains(got, "fake") {
				t.Error("a line of a hunk became a file")
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	corpus.Seed[string](f)
	for _, seed := range []string{
		"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n" + hunk,
		"diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n",
		"diff --git \"a/\\303\\244\" \"b/\\303\\244\"\nold mode 100644\nnew mode 120000\n",
		"diff --git a/x b/x\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\nliteral 0\nHcmV?d00001\n\n",
		"--- a/../x\n+++ b/.git/config\n" + hunk,
		"mail\n\n--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n-- \n2\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		files, err := patch.Parse(text)
		if err != nil {
			return
		}
		if len(files) == 0 {
			t.Fatal("no files and no error")
		}
		for _, file := range files {
			paths := file.Paths()
			if len(paths) == 0 || slices.Contains(paths, "") {
				t.Fatalf("%+v has paths %q", file, paths)
			}
			for _, path := range paths {
				if patch.CheckPath(path) == nil && !filepath.IsLocal(path) {
					t.Fatalf("%q is allowed and leads outside", path)
				}
			}
		}
	})
}
