package workspace_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/workspace"
)

const oddName = "od\"d\\ %41\xff\n\u00fc\x7f<"

// owned creates a tree that its owner cannot read or remove without changing modes. Some entries belong to other
// users. Only root can read the tree.
func owned(t *testing.T) string {
	t.Helper()
	needsRoot(t)
	dir := tempDir(t)
	write(t, filepath.Join(dir, "plain/file"), "f", 0o644)
	write(t, filepath.Join(dir, "deep/er/file"), "f", 0)
	write(t, filepath.Join(dir, "deep.er/file"), "f", 0o711)
	write(t, filepath.Join(dir, oddName, oddName), "f", 0o004)
	must.Do(t, os.Symlink("/etc/passwd", filepath.Join(dir, "deep/link")))
	must.Do(t, unix.Mkfifo(filepath.Join(dir, "deep/fifo"), 0))
	must.Do(t, unix.Mknod(filepath.Join(dir, "deep/socket"), unix.S_IFSOCK|0o640, 0))
	write(t, filepath.Join(dir, "plain/one"), "1", 0o600)
	must.Do(t, os.Link(filepath.Join(dir, "plain/one"), filepath.Join(dir, "plain/three")))
	must.Do(t, os.Link(filepath.Join(dir, "plain/one"), filepath.Join(dir, "deep/two")))
	must.Do(t, os.Lchown(filepath.Join(dir, "deep/link"), 12345, 0))
	must.Do(t, os.Lchown(filepath.Join(dir, "deep/er"), 0, 54321))
	must.Do(t, os.Lchown(filepath.Join(dir, "deep.er/file"), 65534, 65534))
	must.Do(t, os.Chmod(filepath.Join(dir, "deep/er"), 0o555))
	must.Do(t, os.Chmod(filepath.Join(dir, "deep"), 0))
	must.Do(t, os.Chmod(filepath.Join(dir, oddName), 0o077))
	must.Do(t, os.Lchown(dir, 12345, 54321))
	must.Do(t, os.Chmod(dir, 0o571|os.ModeSticky))
	must.Do(t, os.Chtimes(dir, time.Time{}, time.Unix(1, 2000)))
	return dir
}

// attributes describes a tree's entries and root without using the walk under test.
func attributes(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	must.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		must.Do(t, unix.Lstat(path, &st))
		all = append(all, fmt.Sprintf("%q %o %d %d", path[len(dir):], st.Mode, st.Uid, st.Gid))
		if !d.IsDir() {
			all = append(all, fmt.Sprint(st.Nlink))
		}
		if path == dir {
			all = append(all, fmt.Sprint(st.Mtim))
		}
		return nil
	}))
	return all
}

// removable checks that dir and everything below it belongs to this user, and can be read
// and removed.
func removable(t *testing.T, dir string) {
	t.Helper()
	must.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		must.Do(t, unix.Lstat(path, &st))
		needed := map[bool]uint32{true: 0o700, false: 0o400}[d.IsDir()]
		if int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid() || st.Mode&needed != needed {
			t.Errorf("%s: mode %o, owner %d:%d", path, st.Mode, st.Uid, st.Gid)
		}
		return nil
	}))
}

// keep copies a tree as a run does in a user namespace. Whenever attributes are lost, it
// checks that the partial copy is removable, since a process may be killed at any moment.
func keep(t *testing.T, src string) (kept workspace.StoredTree, dir string, report workspace.TreeReport) {
	t.Helper()
	parent := tempDir(t)
	dir = filepath.Join(parent, "kept")
	must.Do(t, os.Mkdir(dir, 0o755))
	list, err := workspace.NewAttributesWriter(dir + workspace.AttributesSuffix)
	must.Do(t, err)
	report, err = stored(t, src).Copy(t.Context(), must.OpenRoot(t, dir), workspace.TreeOptions{
		Lost: func(a workspace.Attributes) error {
			removable(t, dir)
			return list.Add(a)
		},
	})
	must.Do(t, err)
	digest, err := list.Close()
	must.Do(t, err)
	return workspace.StoredTree{Root: must.OpenRoot(t, parent), Name: "kept", List: digest}, dir, report
}

// stored returns a tree that has its owners and modes itself.
func stored(t *testing.T, dir string) workspace.StoredTree {
	t.Helper()
	return workspace.StoredTree{Root: must.OpenRoot(t, filepath.Dir(dir)), Name: filepath.Base(dir)}
}

func TestStoredTreeAndRestored(t *testing.T) {
	src := owned(t)
	want, err := stored(t, src).Copy(t.Context(), nil, workspace.TreeOptions{})
	must.Do(t, err)
	kept, dir, report := keep(t, src)
	if report.Digest != want.Digest {
		t.Errorf("digest of the source %s, reported %s", want.Digest, report.Digest)
	}
	removable(t, dir)
	again, err := kept.Copy(t.Context(), nil, workspace.TreeOptions{})
	must.Do(t, err)
	must.Equal(t, want.Digest, again.Digest) // digest of the kept tree
	restored := tempDir(t)
	back, err := kept.Restore(t.Context(), must.OpenRoot(t, restored), workspace.TreeOptions{Lost: func(workspace.Attributes) error { return errors.New("lost") }})
	must.Do(t, err)
	must.Equal(t, want.Digest, back.Digest) // digest of the restored tree
	must.Equal(t, attributes(t, src), attributes(t, restored))
}

// TestStoredTreePlain: if no attributes are lost, the list is empty. Owners that somebody gives the kept files
// do not count, and times do.
func TestStoredTreePlain(t *testing.T) {
	src := tempDir(t)
	write(t, filepath.Join(src, "d/file"), "f", 0o444)
	must.Do(t, os.Symlink("file", filepath.Join(src, "d/link")))
	kept, dir, report := keep(t, src)
	if os.Geteuid() == 0 {
		if text, err := os.ReadFile(dir + workspace.AttributesSuffix); len(text) > 0 || err != nil {
			t.Errorf("a list %q, %v", text, err)
		}
		must.Do(t, os.Chown(filepath.Join(dir, "d/file"), 12, 12))
	}
	if again, err := kept.Copy(t.Context(), nil, workspace.TreeOptions{}); err != nil || again.Digest != report.Digest {
		t.Errorf("digest %s, want %s, %v", again.Digest, report.Digest, err)
	}
	for _, name := range []string{"d/file", "."} {
		must.Do(t, os.Chtimes(filepath.Join(dir, name), time.Time{}, time.Unix(1, 0)))
		again, err := kept.Copy(t.Context(), nil, workspace.TreeOptions{})
		if err != nil || again.Digest == report.Digest {
			t.Errorf("the digest does not cover the time of %s: %v", name, err)
		}
		report = again
	}
}

// TestStoredTreeDamaged: a changed or malformed list is an error, even if its digest matches.
func TestStoredTreeDamaged(t *testing.T) {
	needsRoot(t)
	line := func(path string) string { return `{"path":"` + path + `","uid":1,"gid":1,"mode":"0600"}` + "\n" }
	text := func(text string) func(t *testing.T, list string) {
		return func(t *testing.T, list string) { must.Do(t, os.WriteFile(list, []byte(text), 0o644)) }
	}
	replaced := func(make func(list string) error) func(t *testing.T, list string) {
		return func(t *testing.T, list string) {
			must.Do(t, os.Remove(list))
			must.Do(t, make(list))
		}
	}
	was := `{"path":"d/f","uid":0,"gid":0,"mode":"0000"}` + "\n"
	tests := []struct {
		name   string
		damage func(t *testing.T, list string)
		forged bool // whether the digest matches the damaged list
	}{
		{"missing", func(t *testing.T, list string) { must.Do(t, os.Remove(list)) }, false},
		{"another", text(line("f")), false},
		{"empty", text(""), false},
		{"a directory", replaced(func(list string) error { return os.Mkdir(list, 0o755) }), false},
		{"a pipe", replaced(func(list string) error { return unix.Mkfifo(list, 0o644) }), false},
		{"a link that leads out", replaced(func(list string) error { return os.Symlink("/dev/zero", list) }), false},
		{"sparse", func(t *testing.T, list string) { must.Do(t, os.Truncate(list, 1<<40)) }, false},
		{"not there", text(line("d/g")), true},
		{"dropped", text(line("fifo")), true},
		{"out of order", text(line("f") + line("d")), true},
		{"twice", text(line("d") + line("d")), true},
		{"above", text(line("../f")), true},
		{"absolute", text(line("/etc/passwd")), true},
		{"the tree itself", text(line(".")), true},
		{"no path", text(line("")), true},
		{"not clean", text(line("d//f")), true},
		{"needless escape", text(line("%66")), true},
		{"other escape", text(line(`\u0066`)), true},
		{"half an escape", text(line("f%")), true},
		{"NUL", text(line("f%00")), true},
		{"no JSON", text("f\n"), true},
		{"not finished", text(strings.TrimSuffix(line("f"), "\n")), true},
		{"white space", text(" " + line("f")), true},
		{"empty line", text("\n"), true},
		{"more fields", text(`{"path":"f","uid":1,"gid":1,"mode":"0600","x":1}` + "\n"), true},
		{"more than a mode", text(`{"path":"f","uid":1,"gid":1,"mode":"20000"}` + "\n"), true},
		{"a pipe that has something", text(`{"path":"f","uid":1,"gid":1,"mode":"10000"}` + "\n"), true},
		{"a directory's links", text(`{"path":"d","uid":1,"gid":1,"mode":"0755","links":1}` + "\n" + was), true},
		{"no links", text(`{"path":"f","uid":1,"gid":1,"mode":"0600","links":0}` + "\n"), true},
		{"fewer than no links", text(`{"path":"f","uid":1,"gid":1,"mode":"0600","links":-1}` + "\n"), true},
		{"no owner", text(`{"path":"f","uid":4294967295,"gid":1,"mode":"0755"}` + "\n"), true},
		{"negative", text(`{"path":"f","uid":-1,"gid":1,"mode":"0755"}` + "\n"), true},
		{"a file's mode", func(t *testing.T, list string) {
			must.Do(t, os.Chmod(filepath.Join(strings.TrimSuffix(list, workspace.AttributesSuffix), "d/f"), 0o600))
		}, true},
		{"a directory's mode", text(`{"path":"d","uid":1,"gid":1,"mode":"0050"}` + "\n" + was), true},
		{"huge line", text(line(strings.Repeat("f", 1<<20))), true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			src := tempDir(t)
			write(t, filepath.Join(src, "d/f"), "f", 0)
			write(t, filepath.Join(src, "f"), "f", 0)
			kept, dir, _ := keep(t, src)
			must.Do(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
			list := dir + workspace.AttributesSuffix
			test.damage(t, list)
			if test.forged {
				data := must.Read(t, list)
				kept.List = fmt.Sprintf("sha256:%x", sha256.Sum256(data))
			}
			_, err := kept.Copy(t.Context(), nil, workspace.TreeOptions{})
			must.Is(t, err, workspace.ErrAttributes)
			if _, err := kept.Restore(t.Context(), must.OpenRoot(t, tempDir(t)), workspace.TreeOptions{}); err == nil {
				t.Error("restored")
			}
		})
	}
}

// TestStoredTreeRenamed: Renamed gives the list the new names, and sorts it by them.
func TestStoredTreeRenamed(t *testing.T) {
	src := tempDir(t)
	for _, name := range []string{"a/b/c", "a/b.c", "a.b/c", "z/" + oddName + "/c", "z/zz"} {
		write(t, filepath.Join(src, name), name, 0o600|os.ModeSetuid) // which the copy loses
	}
	kept, dir, _ := keep(t, src)
	names := map[string]string{"a": "y", "a/b": "x\x01", "z": "b", "z/" + oddName + "/c": "C"}
	for _, old := range slices.Backward(slices.Sorted(maps.Keys(names))) { // deeper entries first
		must.Do(t, os.Rename(filepath.Join(dir, old), filepath.Join(dir, filepath.Dir(old), names[old])))
		must.Do(t, os.Rename(filepath.Join(src, old), filepath.Join(src, filepath.Dir(old), names[old])))
	}
	for _, tree := range []string{src, dir} { // a new name changes the time of its directory
		must.Do(t, filepath.WalkDir(tree, func(name string, d fs.DirEntry, err error) error {
			return errors.Join(err, os.Chtimes(name, time.Time{}, time.Unix(1, 0)))
		}))
	}
	want, err := stored(t, src).Copy(t.Context(), nil, workspace.TreeOptions{})
	must.Do(t, err)
	_, err = kept.Copy(t.Context(), nil, workspace.TreeOptions{})
	must.Is(t, err, workspace.ErrAttributes) // with the old list
	kept.List, err = kept.Renamed(t.Context(), names)
	must.Do(t, err)
	if got, err := kept.Copy(t.Context(), nil, workspace.TreeOptions{}); err != nil || got.Digest != want.Digest {
		t.Errorf("digest %s, want %s, %v", got.Digest, want.Digest, err)
	}
}

// TestListBounded: a list refuses a path that is longer than any path of a walk.
func TestListBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "list")
	list, err := workspace.NewAttributesWriter(name)
	must.Do(t, err)
	must.Is(t, list.Add(workspace.Attributes{Path: strings.Repeat("x", 512<<10)}), workspace.ErrTooBig) // a long path
	must.Do(t, list.Discard())
	_, err = os.Lstat(name)
	must.Is(t, err, os.ErrNotExist)
}
