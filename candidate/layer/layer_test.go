package layer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/runtimetest"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/workspace"
)

var limits = layer.Budget{Bytes: 1 << 30, Entries: 1 << 20}

// A machine is an image, and an overlay of changes over it.
type machine struct{ dir string }

func (m machine) path(name string) string { return filepath.Join(m.dir, name) }

func newMachine(t *testing.T) machine {
	runtimetest.NeedMounts(t)
	m := machine{t.TempDir()}
	must.Do(t, unix.Mount("tmpfs", m.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64m"))
	t.Cleanup(func() { must.Report(t, unix.Unmount(m.dir, unix.MNT_DETACH)) })
	for _, dir := range []string{"image", "upper", "work", "merged", "applied", "work2", "again"} {
		must.Report(t, os.Mkdir(m.path(dir), 0o755))
	}
	return m
}

// mount mounts an overlay of upper over the image.
func (m machine) mount(t *testing.T, upper, work, at string, below ...string) {
	t.Helper()
	lower := m.path("image")
	for _, name := range below {
		lower = m.path(name) + ":" + lower
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=nofollow,index=off,metacopy=off", lower, m.path(upper), m.path(work))
	must.Do(t, unix.Mount("overlay", m.path(at), "overlay", unix.MS_NOSUID|unix.MS_NODEV, options))
	t.Cleanup(func() { must.Report(t, unix.Unmount(m.path(at), 0)) })
}

func (m machine) root(t *testing.T, name string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(m.path(name))
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, root.Close()) })
	return root
}

func (m machine) sh(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-euc", script)
	cmd.Dir = m.path(dir)
	must.Run(t, cmd)
}

const image = `
mkdir -p etc/conf.d usr/bin var/lib/old var/lib/deep var/www srv; echo s > srv/s
echo old > etc/passwd; echo a > etc/conf.d/a; echo b > etc/conf.d/b; ln -s passwd etc/link
mkdir -p var/lib/deep/a/b; echo d > var/lib/deep/a/b/d; echo e > var/lib/deep/a/e; echo x > var/lib/old/x; echo y > var/lib/old/y; echo tool > usr/bin/tool; chmod 755 usr/bin/tool; chown 7:8 var/www`

const changes = `
echo new > etc/passwd; rm etc/conf.d/a; echo c > etc/conf.d/c; rm etc/link; mkdir etc/link; echo in > etc/link/in
rm -r var/lib/old; mkdir var/lib/old; echo z > var/lib/old/z; rm -r var/lib/deep; mkdir -p var/lib/deep/a/b; echo n > var/lib/deep/a/b/n; mkdir shared; chmod 2775 shared
rm -r srv; echo file > srv
mkdir -p tmp/deep/er; chmod 1777 tmp; echo t > tmp/deep/er/t; chown 1000:1001 tmp/deep; chmod 700 tmp/deep
ln usr/bin/tool usr/bin/hard; echo 1 > one; ln one two; ln -s /etc/passwd abs
printf 'odd' > "$(printf 'a\nb\377')"; truncate -s 3M sparse; printf end >> sparse
chmod 4755 usr/bin/tool; mkfifo pipe; : > .wh.forged; touch -h -d '2001-02-03 04:05:06' etc/passwd etc/conf.d abs pipe`

// list describes a tree: type, mode, owner, time of files, and content.
func list(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command("sh", "-euc", `find . ! -name .wh.forged ! -type d -printf '%P %y %m %U:%G %l %T@\n' -o -type d -printf '%P %y %m %U:%G\n' | LC_ALL=C sort; find . -type f ! -name .wh.forged | LC_ALL=C sort | tr '\n' '\0' | xargs -0 sha256sum 2>/dev/null || true`)
	cmd.Dir = dir
	out, err := cmd.Output()
	must.Do(t, err)
	return string(out)
}

func write(t *testing.T, m machine) ([]byte, layer.Report) {
	t.Helper()
	var b bytes.Buffer
	report, err := layer.Write(t.Context(), &b, runtime.Changes{Dir: m.path("upper"), Mounts: []string{"/proc", "/mounted"}}, limits)
	must.Do(t, err)
	return b.Bytes(), report
}

// TestRoundTrip: the changes look the same after writing them as a layer and applying it.
func TestRoundTrip(t *testing.T) {
	m := newMachine(t)
	m.sh(t, "image", image)
	m.mount(t, "upper", "work", "merged")
	m.sh(t, "merged", changes+"; mkdir proc mounted; echo x > mounted/x")
	// Group 7 may write what is made in the directory (acl(5): the version, then tag, permissions and id of each entry).
	acl := "\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff\x04\x00\x05\x00\xff\xff\xff\xff\x08\x00\x06\x00\x07\x00\x00\x00\x10\x00\x07\x00\xff\xff\xff\xff\x20\x00\x05\x00\xff\xff\xff\xff"
	noted := map[string][2]string{"etc/passwd": {"user.note", "y"}, "shared": {"system.posix_acl_default", acl}}
	for name, a := range noted {
		if err := unix.Setxattr(filepath.Join(m.path("merged"), name), a[0], []byte(a[1]), 0); errors.Is(err, unix.ENOTSUP) { // tmpfs before Linux 6.6
			delete(noted, name)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if noted["etc/passwd"] != [2]string{} { // the layer goes without these
		must.Do(t, unix.Setxattr(m.path("merged/etc/passwd"), "user.a=b", []byte("y"), 0))            // which no archive can have
		must.Do(t, unix.Setxattr(m.path("merged/etc/conf.d"), "user.overlay.opaque", []byte("y"), 0)) // which hides nothing in this overlay
	}
	text, report := write(t, m)
	if again, same := write(t, m); !bytes.Equal(text, again) || report.Digest != same.Digest {
		t.Error("the same changes gave other bytes")
	}
	if want := []string{"/.wh.forged (no name for a layer)"}; !cmp.Equal(report.Dropped, want) || report.Size != int64(len(text)) {
		t.Errorf("dropped %q, size %d", report.Dropped, report.Size)
	}
	must.Report(t, layer.Apply(t.Context(), bytes.NewReader(text), m.root(t, "applied"), m.root(t, "image"), limits, nil))
	m.mount(t, "applied", "work2", "again")
	m.sh(t, "merged", "rmdir proc; rm -r mounted")
	must.Equal(t, list(t, m.path("merged")), list(t, m.path("again")))
	for name, a := range noted {
		value := make([]byte, 100)
		if n, err := unix.Lgetxattr(filepath.Join(m.path("again"), name), a[0], value); err != nil || string(value[:n]) != a[1] {
			t.Errorf("%s of %s: %q, %v", a[0], name, value[:max(n, 0)], err)
		}
	}
}

// TestBelow: changes over other changes to an image are one layer of it.
func TestBelow(t *testing.T) {
	const more = `
echo newer > etc/passwd; rm etc/conf.d/c; echo a > etc/conf.d/a; rm -r etc/link; ln -s passwd etc/link
echo y > var/lib/old/y; rm -r var/lib/deep; echo file > var/lib/deep; rm srv; mkdir srv; echo in > srv/in
rm -r tmp/deep; mkdir tmp/deep; echo u > tmp/deep/u; rm two; echo two > two; mkdir -p fresh/er; rm -r shared`
	m := newMachine(t)
	for _, dir := range []string{"upper2", "work3", "merged2", "applied2", "work4", "again2"} {
		must.Report(t, os.Mkdir(m.path(dir), 0o755))
	}
	m.sh(t, "image", image)
	m.mount(t, "upper", "work", "merged")
	m.sh(t, "merged", changes+"; rm -f .wh.forged")
	first, _ := write(t, m)
	must.Report(t, layer.Apply(t.Context(), bytes.NewReader(first), m.root(t, "applied"), m.root(t, "image"), limits, nil))
	m.mount(t, "upper2", "work3", "merged2", "applied")
	m.sh(t, "merged2", more)
	var both bytes.Buffer
	_, err := layer.Write(t.Context(), &both, runtime.Changes{Dir: m.path("upper2"), Below: m.path("applied")}, limits)
	must.Report(t, err)
	must.Report(t, layer.Apply(t.Context(), &both, m.root(t, "applied2"), m.root(t, "image"), limits, nil))
	m.mount(t, "applied2", "work4", "again2")
	must.Equal(t, list(t, m.path("merged2")), list(t, m.path("again2")))
}

// TestRefusedEntries: where accept refuses an entry, the image's file stays. Files can be added to a
// refused directory.
func TestRefusedEntries(t *testing.T) {
	m := newMachine(t)
	m.sh(t, "image", image)
	m.mount(t, "upper", "work", "merged")
	m.sh(t, "merged", changes)
	text, _ := write(t, m)
	accept := func(e *layer.Entry) (bool, error) {
		return !strings.HasPrefix(e.Path, "etc") || e.Path == "etc/conf.d/c", nil
	}
	must.Report(t, layer.Apply(t.Context(), bytes.NewReader(text), m.root(t, "applied"), m.root(t, "image"), limits, accept))
	m.mount(t, "applied", "work2", "again")
	m.sh(t, "again", `test "$(cat etc/passwd)" = old; test -L etc/link; test "$(ls etc/conf.d)" = "$(printf 'a\nb\nc')"; test -f srv`)
}

// TestLinkedParents: no entry is put where a link of the layer leads: accept was asked about another path.
func TestLinkedParents(t *testing.T) {
	m := newMachine(t)
	m.sh(t, "image", image)
	text := archive(t, tar.Header{Name: "usr/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "usr/bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "x", Typeflag: tar.TypeSymlink, Linkname: "usr"}, tar.Header{Name: "x/bin/tool", Typeflag: tar.TypeReg, Mode: 0o755})
	accept := func(e *layer.Entry) (bool, error) { return e.Path != "usr/bin/tool", nil }
	must.Report(t, layer.Apply(t.Context(), bytes.NewReader(text), m.root(t, "applied"), m.root(t, "image"), limits, accept))
	if _, err := os.Lstat(m.path("applied/usr/bin/tool")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused entry was put there: %v", err)
	}
}

// TestBounds: changes beyond a limit are too big, and Write notices it before it uses more than the limit.
func TestBounds(t *testing.T) {
	m := newMachine(t)
	m.mount(t, "upper", "work", "merged")
	m.sh(t, "merged", `truncate -s 10M hole; for i in $(seq 60); do : > $i; ln 1 link-$i; done; d=.; for i in $(seq 140); do d=$d/d; done; mkdir -p $d`)
	for name, l := range map[string]layer.Budget{
		"a hole": {Bytes: 9 << 20, Entries: 1000}, "many files": {Bytes: 1 << 30, Entries: 50}, "links": {Bytes: 1 << 30, Entries: 100}, "depth": limits,
	} {
		_, err := layer.Write(t.Context(), io.Discard, runtime.Changes{Dir: m.path("upper")}, l)
		if !errors.Is(err, workspace.ErrTooBig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func archive(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	must.Report(t, err)
	w := tar.NewWriter(z)
	for _, h := range headers {
		must.Report(t, w.WriteHeader(&h))
		_, err := w.Write(make([]byte, h.Size))
		must.Report(t, err)
	}
	must.Report(t, errors.Join(w.Close(), z.Close()))
	return b.Bytes()
}

// TestForged: Apply refuses an archive that Write would not write, and writes nothing outside the directory.
func TestForged(t *testing.T) {
	m := newMachine(t)
	m.sh(t, "image", image)
	dir, opaque := tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "etc/.wh..wh..opq", Typeflag: tar.TypeReg}
	bomb := func() []byte {
		var b bytes.Buffer
		z, _ := zstd.NewWriter(&b)
		w := tar.NewWriter(z)
		must.Report(t, w.WriteHeader(&tar.Header{Name: "bomb", Typeflag: tar.TypeReg, Size: 2 << 30}))
		_, _ = z.Write(make([]byte, 1<<20))
		must.Report(t, z.Close())
		return b.Bytes()
	}
	tests := map[string][]byte{
		"parent":           archive(t, tar.Header{Name: "../x", Typeflag: tar.TypeReg}),
		"absolute":         archive(t, tar.Header{Name: "/x", Typeflag: tar.TypeReg}),
		"dots":             archive(t, dir, tar.Header{Name: "d/../../x", Typeflag: tar.TypeReg}),
		"device":           archive(t, tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}),
		"twice":            archive(t, tar.Header{Name: "x", Typeflag: tar.TypeReg}, tar.Header{Name: "x", Typeflag: tar.TypeReg}),
		"hard link out":    archive(t, tar.Header{Name: "x", Typeflag: tar.TypeLink, Linkname: "../../image/etc/passwd"}),
		"whiteout of root": archive(t, tar.Header{Name: ".wh..", Typeflag: tar.TypeReg}),
		"opaque alone":     archive(t, opaque),
		"opaque twice":     archive(t, tar.Header{Name: "etc/", Typeflag: tar.TypeDir}, opaque, opaque),
		"opaque link":      archive(t, tar.Header{Name: "etc", Typeflag: tar.TypeSymlink, Linkname: "usr"}, opaque),
		"late opaque":      archive(t, tar.Header{Name: "etc/", Typeflag: tar.TypeDir}, tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg}, opaque),
		"long name":        archive(t, tar.Header{Name: strings.Repeat("x", 256), Typeflag: tar.TypeReg}),
		"long removal":     archive(t, tar.Header{Name: "d/.wh." + strings.Repeat("x", 256), Typeflag: tar.TypeReg}),
		"no target":        archive(t, tar.Header{Name: "x", Typeflag: tar.TypeSymlink}),
		"long target":      archive(t, tar.Header{Name: "x", Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("x/", 2048)}),
		"file, directory":  archive(t, tar.Header{Name: "d", Typeflag: tar.TypeReg}, dir),
		"there, removed":   archive(t, tar.Header{Name: "x", Typeflag: tar.TypeReg}, tar.Header{Name: ".wh.x", Typeflag: tar.TypeReg}),
		"bomb":             bomb(),
		"no archive":       []byte("text"),
		"cut":              archive(t, tar.Header{Name: "x", Typeflag: tar.TypeReg, Size: 1 << 20})[:30],
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			must.Report(t, os.RemoveAll(m.path("applied")))
			must.Report(t, os.Mkdir(m.path("applied"), 0o755))
			err := layer.Apply(t.Context(), bytes.NewReader(text), m.root(t, "applied"), m.root(t, "image"), limits, nil)
			if !errors.Is(err, layer.ErrInvalid) && !errors.Is(err, workspace.ErrTooBig) {
				t.Errorf("applied: %v", err)
			}
		})
	}
	link := archive(t, tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: m.path("image")}, tar.Header{Name: "out/etc/new", Typeflag: tar.TypeReg})
	must.Report(t, os.RemoveAll(m.path("applied")))
	must.Report(t, os.Mkdir(m.path("applied"), 0o755))
	if err := layer.Apply(t.Context(), bytes.NewReader(link), m.root(t, "applied"), m.root(t, "image"), limits, nil); err != nil {
		t.Log(err)
	}
	if _, err := os.Lstat(m.path("image/etc/new")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a link led out of the directory")
	}
}

type secrets struct{}

func (secrets) Text(s string) string {
	return strings.ReplaceAll(s, "hunter2-hunter2", "<redacted>")
}
func (secrets) In(r io.Reader, _ int64) (bool, error) {
	text, err := io.ReadAll(r)
	return bytes.Contains(text, []byte("hunter2-hunter2")), err
}

func TestRedact(t *testing.T) {
	m := newMachine(t)
	m.mount(t, "upper", "work", "merged")
	m.sh(t, "merged", `echo clean > clean; mkdir d-hunter2-hunter2; echo "key=hunter2-hunter2" > d-hunter2-hunter2/f; ln -s /x/hunter2-hunter2 l; echo noted > noted; touch -d @1.25 clean`)
	if err := unix.Setxattr(filepath.Join(m.path("merged"), "noted"), "user.key", []byte("hunter2-hunter2"), 0); errors.Is(err, unix.ENOTSUP) {
		m.sh(t, "merged", "echo hunter2-hunter2 >> noted") // tmpfs before Linux 6.6
	}
	text, before := write(t, m)
	var b bytes.Buffer
	after, changed, err := layer.Redact(t.Context(), bytes.NewReader(text), &b, limits, secrets{})
	if err != nil || changed != 4 || after.Digest == before.Digest {
		t.Fatalf("changed %d, %v", changed, err)
	}
	must.Report(t, layer.Apply(t.Context(), bytes.NewReader(b.Bytes()), m.root(t, "applied"), m.root(t, "image"), limits, nil))
	if _, err := unix.Lgetxattr(m.path("applied/noted"), "user.key", nil); err == nil {
		t.Error("an attribute kept the secret")
	}
	if info, err := os.Stat(m.path("applied/clean")); err != nil || info.ModTime().UnixMilli() != 1250 {
		t.Errorf("%v, %v", info, err)
	}
	var got []string
	for e, err := range layer.Entries(context.Background(), &b, limits) {
		must.Do(t, err)
		content, err := io.ReadAll(e)
		must.Report(t, err)
		got = append(got, e.Path+" "+e.Target+strings.TrimSpace(string(content)))
	}
	want := []string{"clean clean", "d-<redacted> ", "d-<redacted>/f key=<redacted>", "l /x/<redacted>", "noted noted"}
	must.Equal(t, want, got)
	if _, changed, err := layer.Redact(t.Context(), bytes.NewReader(text[:]), io.Discard, limits, none{}); changed != 0 || err != nil {
		t.Errorf("a clean layer: %d, %v", changed, err)
	}
}

// TestRedactSame: of a file and a directory with the same name without secrets, the first is kept.
func TestRedactSame(t *testing.T) {
	m := newMachine(t)
	text := archive(t, tar.Header{Name: "<redacted>", Typeflag: tar.TypeReg}, tar.Header{Name: "hunter2-hunter2/", Typeflag: tar.TypeDir},
		tar.Header{Name: "hunter2-hunter2/.wh..wh..opq", Typeflag: tar.TypeReg}, tar.Header{Name: "hunter2-hunter2/x", Typeflag: tar.TypeReg})
	var b bytes.Buffer
	_, _, err := layer.Redact(t.Context(), bytes.NewReader(text), &b, limits, secrets{})
	must.Do(t, err)
	must.Report(t, layer.Apply(t.Context(), bytes.NewReader(b.Bytes()), m.root(t, "applied"), m.root(t, "image"), limits, nil))
	m.sh(t, "applied", `test -f "<redacted>"`)
}

// TestRedactLonger: an entry is left out if its name or target becomes too long for a file system, and so is all that is
// below it. The rest can be applied.
func TestRedactLonger(t *testing.T) {
	m := newMachine(t)
	m.mount(t, "upper", "work", "merged")
	long := strings.Repeat("abc123", 42) // becomes longer than a file's name
	m.sh(t, "merged", `echo kept > kept; ln -s "$(printf %0600d 0 | sed s/0/abc123/g)" l; mkdir -p d/`+long+`/e; echo x > d/`+long+`/e/f; ln d/`+long+`/e/f hard; echo y > `+long+`
cd d; for i in $(seq 15); do mkdir `+strings.Repeat("abc123", 20)+`; cd `+strings.Repeat("abc123", 20)+`; done; mkdir -p `+strings.Repeat("abc123", 20)+`; : > x`)
	text, _ := write(t, m)
	var b bytes.Buffer
	_, _, err := layer.Redact(t.Context(), bytes.NewReader(text), &b, limits, longer{})
	must.Do(t, err)
	must.Report(t, layer.Apply(t.Context(), bytes.NewReader(b.Bytes()), m.root(t, "applied"), m.root(t, "image"), limits, nil))
	m.sh(t, "applied", `test "$(cat kept)" = kept; test ! -e hard; test "$(find . | grep -c abc123)" = 0`)
}

// longer replaces a secret by a longer text.
type longer struct{}

func (longer) Text(s string) string {
	return strings.ReplaceAll(s, "abc123", strings.Repeat("<redacted>", 2))
}
func (longer) In(io.Reader, int64) (bool, error) { return false, nil }

type none struct{}

func (none) Text(s string) string              { return s }
func (none) In(io.Reader, int64) (bool, error) { return false, nil }
