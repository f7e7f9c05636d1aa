package workspace_test

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/remove"
	"github.com/securebench/sbench/runtime/volume"
	"github.com/securebench/sbench/workspace"
)

// tempDir is like t.TempDir, but also removes trees that the testing package cannot remove.
func tempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root := must.OpenRoot(t, dir)
	t.Cleanup(func() {
		_ = os.Chmod(dir, 0o700)
		entries, _ := os.ReadDir(dir) // the test may have removed it
		for _, entry := range entries {
			must.Do(t, remove.All(root, entry.Name()))
		}
	})
	return dir
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	must.Do(t, os.Chmod(path, mode))
}

// needsRoot skips the test unless root runs it. Only root can read the tree of the test.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// hostile creates a tree with everything that an agent may leave behind. Its path is short,
// because the length of a socket's path is limited.
func hostile(t *testing.T) string {
	t.Helper()
	needsRoot(t)
	dir, err := os.MkdirTemp("", "ws")
	must.Do(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	write(t, filepath.Join(dir, "a.txt"), "alpha", 0o644)
	write(t, filepath.Join(dir, "bin/run"), "#!/bin/sh\n", 0o755|os.ModeSetuid|os.ModeSetgid)
	write(t, filepath.Join(dir, "locked/secret"), "s", 0)
	must.Do(t, os.Chmod(filepath.Join(dir, "locked"), 0))
	must.Do(t, os.Symlink("/etc/passwd", filepath.Join(dir, "escape")))
	must.Do(t, os.Symlink("..", filepath.Join(dir, "bin/up")))
	must.Do(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
	must.Do(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	for _, name := range []string{"a.txt", "bin", "bin/run"} {
		if err := unix.Setxattr(filepath.Join(dir, name), "user.note", []byte("y"), 0); err != nil && !errors.Is(err, unix.ENOTSUP) { // tmpfs before Linux 6.6
			t.Fatal(err)
		}
	}
	// CAP_SETUID for whoever runs it (capabilities(7), "File capabilities")
	must.Do(t, unix.Setxattr(filepath.Join(dir, "bin/run"), "security.capability", []byte("\x01\x00\x00\x02\x80\x00\x00\x00"+strings.Repeat("\x00", 12)), 0))
	return dir
}

func TestCopyTreeHostile(t *testing.T) {
	src, dst := hostile(t), tempDir(t)
	report, err := workspace.CopyTree(t.Context(), must.OpenRoot(t, src), must.OpenRoot(t, dst), workspace.TreeOptions{})
	must.Do(t, err)
	if got := strings.Join(report.Dropped, ", "); got != "fifo (fifo), socket (socket)" || report.Bytes != 16 {
		t.Errorf("dropped %q, %d bytes", got, report.Bytes)
	}
	if target, err := os.Readlink(filepath.Join(dst, "escape")); err != nil || target != "/etc/passwd" {
		t.Errorf("link: %q, %v", target, err)
	}
	info, err := os.Lstat(filepath.Join(dst, "bin/run"))
	must.Do(t, err)
	if info.Mode() != 0o755 {
		t.Errorf("mode %v, want no setuid", info.Mode())
	}
	for _, name := range []string{"a.txt", "bin", "bin/run"} {
		if n, err := unix.Llistxattr(filepath.Join(dst, name), nil); err != nil || n > 0 {
			t.Errorf("%s has %d bytes of names of extended attributes, %v", name, n, err)
		}
	}
	same, err := workspace.DigestTree(t.Context(), must.OpenRoot(t, dst), workspace.TreeOptions{})
	must.Do(t, err)
	if same.Digest != report.Digest {
		t.Errorf("digest of copy %s, of source %s", same.Digest, report.Digest)
	}
	for _, dir := range []string{src, dst} {
		must.Do(t, remove.All(must.OpenRoot(t, filepath.Dir(dir)), filepath.Base(dir)))
	}
}

func TestTreeBounds(t *testing.T) {
	dir := tempDir(t)
	write(t, filepath.Join(dir, "a/b/c/one"), strings.Repeat("x", 100), 0o644)
	write(t, filepath.Join(dir, "a/two"), "2", 0o644)
	sparse := tempDir(t)
	write(t, filepath.Join(sparse, "disk"), "", 0o644)
	must.Do(t, os.Truncate(filepath.Join(sparse, "disk"), 1<<40))
	striped := tempDir(t) // with a byte in each page
	stripes, err := os.Create(filepath.Join(striped, "disk"))
	must.Do(t, err)
	for at := range int64(512) {
		_, err = stripes.WriteAt([]byte("x"), at<<12)
		must.Do(t, err)
	}
	must.Do(t, stripes.Truncate(4<<20))
	must.Do(t, stripes.Close())
	names := tempDir(t) // three on each of two levels
	for _, name := range []string{"a/x", "a/y", "a/z", "y", "z"} {
		write(t, filepath.Join(names, name), "", 0o644)
	}
	deep := tempDir(t)
	must.Do(t, os.MkdirAll(filepath.Join(deep, strings.Repeat("d/", 512)), 0o755))
	longest := dir // on tmpfs, where a file can have any size, if that can be mounted
	if at := tempDir(t); unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m") == nil {
		t.Cleanup(func() { must.Do(t, unix.Unmount(at, 0)) })
		longest = at
		write(t, filepath.Join(at, "a"), "1", 0o644)
		write(t, filepath.Join(at, "b"), "", 0o644)
		must.Do(t, os.Truncate(filepath.Join(at, "b"), math.MaxInt64))
	}
	tests := []struct {
		name string
		dir  string
		opts workspace.TreeOptions
		want string
	}{
		{"bytes", dir, workspace.TreeOptions{MaxBytes: 100}, "more than 100 bytes"},
		{"a sum that no integer has", longest, workspace.TreeOptions{MaxBytes: 100}, "more than 400 bytes, holes included"},
		{"a bound that no integer has", longest, workspace.TreeOptions{MaxBytes: math.MaxInt64}, "bytes, holes included"},
		{"holes", sparse, workspace.TreeOptions{}, "more than 34359738368 bytes, holes included"},
		{"data between holes", striped, workspace.TreeOptions{MaxBytes: 1 << 20}, "more than 1048576 bytes"},
		{"files", dir, workspace.TreeOptions{MaxFiles: 4}, "more than 4 files"},
		{"names of all levels", names, workspace.TreeOptions{MaxFiles: 5}, "more than 5 files"},
		{"depth", deep, workspace.TreeOptions{}, "more than 512 directories deep"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := workspace.CopyTree(t.Context(), must.OpenRoot(t, test.dir), must.OpenRoot(t, tempDir(t)), test.opts)
			if !errors.Is(err, workspace.ErrTooBig) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			_, err = workspace.DigestTree(t.Context(), must.OpenRoot(t, test.dir), test.opts)
			must.Is(t, err, workspace.ErrTooBig)
		})
	}
	t.Run("a link to which the destination gives less room", func(t *testing.T) {
		links := tempDir(t)
		must.Do(t, os.Symlink(strings.Repeat("x", 1500), filepath.Join(links, "link")))
		_, err := workspace.CopyTree(t.Context(), must.OpenRoot(t, links), must.OpenRoot(t, shortLinks(t)), workspace.TreeOptions{})
		must.Is(t, err, workspace.ErrTooBig)
	})
}

// shortLinks returns a directory on a file system whose links have targets of less than 1 KiB, as those of XFS.
func shortLinks(t *testing.T) string {
	t.Helper()
	if !volume.Images() {
		t.Skip("no image files can be mounted")
	}
	dir, image := tempDir(t), filepath.Join(tempDir(t), "image")
	write(t, image, strings.Repeat("\x00", 1<<20), 0o600)
	for _, command := range []string{"mke2fs -q -F -t ext2 -b 1024 " + image, "mount -o loop " + image + " " + dir} {
		args := strings.Fields(command)
		must.Run(t, exec.Command(args[0], args[1:]...))
	}
	t.Cleanup(func() { must.Do(t, unix.Unmount(dir, 0)) })
	return dir
}

func TestCopyTreeKeepsHoles(t *testing.T) {
	src, dst := tempDir(t), tempDir(t)
	const size = 64 << 20
	f, err := os.Create(filepath.Join(src, "disk"))
	must.Do(t, err)
	_, err = f.WriteAt([]byte("middle"), size/2)
	must.Do(t, err)
	must.Do(t, f.Truncate(size))
	must.Do(t, f.Close())
	_, err = workspace.CopyTree(t.Context(), must.OpenRoot(t, src), must.OpenRoot(t, dst), workspace.TreeOptions{MaxBytes: size / 4})
	must.Do(t, err)
	var st unix.Stat_t
	must.Do(t, unix.Stat(filepath.Join(dst, "disk"), &st))
	if st.Size != size || st.Blocks*512 > size/8 {
		t.Errorf("copy has %d bytes on %d blocks", st.Size, st.Blocks)
	}
	got := must.Read(t, filepath.Join(dst, "disk"))
	if string(got[size/2:size/2+6]) != "middle" {
		t.Error("content lost")
	}
	dense := tempDir(t)
	must.Do(t, os.WriteFile(filepath.Join(dense, "disk"), got, 0o644))
	want, err := workspace.DigestTree(t.Context(), must.OpenRoot(t, dense), workspace.TreeOptions{MaxBytes: size / 4})
	must.Do(t, err)
	if again, err := workspace.DigestTree(t.Context(), must.OpenRoot(t, dst), workspace.TreeOptions{}); err != nil || again.Digest != want.Digest {
		t.Errorf("sparse %v (%v), dense %v", again.Digest, err, want.Digest)
	}
}

func TestDigestTreeSees(t *testing.T) {
	base := func(t *testing.T) string {
		dir := tempDir(t)
		write(t, filepath.Join(dir, "d/file"), "content", 0o644)
		must.Do(t, os.Symlink("file", filepath.Join(dir, "d/link")))
		return dir
	}
	digest := func(t *testing.T, dir string) string {
		report, err := workspace.DigestTree(t.Context(), must.OpenRoot(t, dir), workspace.TreeOptions{})
		must.Do(t, err)
		return report.Digest
	}
	want := digest(t, base(t))
	tests := []struct {
		name   string
		change func(t *testing.T, dir string)
		same   bool
	}{
		{"nothing", func(*testing.T, string) {}, true},
		{"times", func(t *testing.T, dir string) {
			must.Do(t, unix.Utimes(filepath.Join(dir, "d/file"), []unix.Timeval{{Sec: 1}, {Sec: 1}}))
		}, true},
		{"fifo", func(t *testing.T, dir string) { must.Do(t, unix.Mkfifo(filepath.Join(dir, "p"), 0o644)) }, true},
		{"content", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "d/file"), "Content", 0o644) }, false},
		{"mode", func(t *testing.T, dir string) { must.Do(t, os.Chmod(filepath.Join(dir, "d/file"), 0o600)) }, false},
		{"name", func(t *testing.T, dir string) {
			must.Do(t, os.Rename(filepath.Join(dir, "d/file"), filepath.Join(dir, "d/File")))
		}, false},
		{"empty directory", func(t *testing.T, dir string) { must.Do(t, os.Mkdir(filepath.Join(dir, "e"), 0o755)) }, false},
		{"link target", func(t *testing.T, dir string) {
			must.Do(t, os.Remove(filepath.Join(dir, "d/link")))
			must.Do(t, os.Symlink("./file", filepath.Join(dir, "d/link")))
		}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := base(t)
			test.change(t, dir)
			if got := digest(t, dir); (got == want) != test.same {
				t.Errorf("digest %s, base %s", got, want)
			}
		})
	}
}

func TestCopyTreeStops(t *testing.T) {
	dir := tempDir(t)
	write(t, filepath.Join(dir, "file"), "content", 0o644)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	_, err := workspace.CopyTree(ctx, must.OpenRoot(t, dir), must.OpenRoot(t, tempDir(t)), workspace.TreeOptions{})
	must.Is(t, err, why)
}

func TestTaskDir(t *testing.T) {
	long := strings.Repeat("ab-", 60)
	tests := []struct{ name, id, want string }{
		{"plain", "task-1", "task-1-"},
		{"slash", "pack/task 1", "pack_task_1-"},
		{"dots", "../..", "task-"},
		{"hidden", ".git", "git-"},
		{"unicode", "täsk/ü", "t_sk-"},
		{"empty", "", "task-e3b0c44298fc1c14"},
		{"long", long, strings.TrimRight(long[:80], "-") + "-"},
	}
	seen := map[string]string{}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := workspace.TaskDir(test.id)
			if !strings.HasPrefix(got, test.want) || len(got) != len(strings.TrimSuffix(test.want, "e3b0c44298fc1c14"))+16 {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if !filepath.IsLocal(got) || filepath.Base(got) != got {
				t.Errorf("%q is no single component", got)
			}
			if other, ok := seen[got]; ok {
				t.Errorf("shared with %q", other)
			}
			seen[got] = test.id
		})
	}
}
