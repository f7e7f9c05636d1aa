package machine

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
)

// makeTree makes files, directories (names that end with "/") and links (NAME -> TARGET).
func makeTree(t *testing.T, entries ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, e := range entries {
		name, target, link := strings.Cut(e, " -> ")
		at := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		switch {
		case err != nil:
		case link:
			err = os.Symlink(target, at)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(at, 0o755)
		default:
			text := "x"
			if name == "usr/lib/python3.11/os.py" {
				text = "try:\n    import msvcrt\nexcept ImportError: pass\nfrom org.python import core\nimport pip\n"
			}
			if strings.HasSuffix(name, "plugin-1.dist-info/entry_points.txt") {
				text = "[pytest11]\nx = x\n"
			}
			err = os.WriteFile(at, []byte(text), 0o644)
		}
		must.Do(t, err)
	}
	return dir
}

// TestTrust: which entries of a candidate's machine the checker sees.
func TestTrust(t *testing.T) {
	image, err := os.OpenRoot(makeTree(t, "bin -> usr/bin", "lib -> usr/lib", "usr/bin/python3.11", "usr/bin/python3 -> python3.11", "usr/bin/sh",
		"usr/lib/python3.11/os.py", "usr/lib/python3.11/json/__init__.py", "usr/lib/python3.11/lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so",
		"usr/lib/python3.11/sitecustomize.py -> /etc/python3.11/sitecustomize.py", "etc/python3.11/sitecustomize.py",
		"usr/lib/python3/dist-packages/pytest/__init__.py", "usr/lib/python3/dist-packages/six.py", "usr/lib/x86_64-linux-gnu/libc.so.6",
		"usr/local/lib/", "usr/include/assert.h", "usr/include/x86_64-linux-gnu/sys/types.h", "usr/lib/gcc/x86_64-linux-gnu/12/include/stddef.h", "usr/include/c++/12/cassert", "usr/share/perl/5.36.0/strict.pm", "usr/lib/x86_64-linux-gnu/perl-base/List/Util.pm", "etc/passwd", "etc/nsswitch.conf", "root/.bashrc", "opt/tool -> tool-1", "opt/tool-1/bin/run", "opt/py/bin/python3.12", "opt/py/lib/python3.12/os.py", "opt/py/etc/rc",
		"usr/local/bin/python3.12 -> /opt/py/bin/python3.12", "srv/"))
	must.Do(t, err)
	defer func() { _ = image.Close() }()
	for _, pipe := range []string{loaderCache, "usr/lib/python3.11/pipe.py"} { // an image can have anything
		must.Do(t, unix.Mkfifo(filepath.Join(image.Name(), pipe), 0o644))
	}
	seen := []string{
		"usr/local/include/mine.h", "usr/local/include/sys/mine.h", "usr/include/mine.h", "usr/include/x86_64-linux-gnu/mine.h", "usr/include/mine/assert.h", "usr/lib/gcc/x86_64-linux-gnu/13/include/assert.h", "usr/share/perl5/Mine.pm", "usr/local/share/perl/5.36.0/Mine.pm", "etc/passwd", "etc/new.conf", "usr/bin/new", "usr/local/bin/upper", "usr/local/lib/libanswer.so", "usr/lib/x86_64-linux-gnu/libnew.so.1", "tmp/x", "srv/json.py", "srv/model.pth",
		"usr/local/lib/python3.11/dist-packages/greet/__init__.py", "usr/local/lib/python3.11/dist-packages/greet-1.dist-info/entry_points.txt",
		"usr/lib/python3.11/distutils/core.py", "usr/lib/python3.13/os.py", "opt/venv/bin/python3 -> /usr/bin/python3", "opt/venv/pyvenv.cfg", "root/notes", "home/ada/.ssh/authorized_keys",
		"root/.local/lib/python3.11/site-packages/x/__init__.py", "usr/local/lib/python3.11/dist-packages/pip/__init__.py", "usr/share/doc/x", "var/lib/dpkg/status", "opt/venv/lib/python3.11/site-packages/x.pth", "etc/profile.d/asked.sh",
	}
	restored := []string{
		"usr/bin/sh", "usr/bin/python3 -> /bin/true", "usr/local/bin/sh", "usr/local/bin/python3", "usr/local/bin/pytest", "usr/lib/python3.11/os.py", "usr/lib/python3.11/os.cpython-311-x86_64-linux-gnu.so",
		"usr/lib/python3.11/__pycache__/os.cpython-311.pyc", "usr/lib/python3.11/json/__init__.cpython-311.so", "usr/lib/python3.11/json/__pycache__/__init__.cpython-311.pyc",
		"usr/lib/python3.11/pytest.py", "usr/lib/python3.11/lib-dynload/six.so", "usr/lib/python311.zip", "usr/pyvenv.cfg", "usr/bin/pyvenv.cfg",
		"usr/local/lib/python3.11/dist-packages/pytest/__init__.py", "usr/local/lib/python3.11/dist-packages/six.py", "usr/local/lib/python3.11/dist-packages/_pytest.py",
		"usr/local/lib/python3.11/dist-packages/__pycache__/six.cpython-311.pyc", "usr/local/lib/python3.11/dist-packages/x.pth", "usr/local/lib/python3.11/dist-packages/sitecustomize.py",
		"usr/local/lib/python3.11/dist-packages/usercustomize/__init__.py", "usr/local/lib/python3.11/dist-packages/plugin-1.dist-info/entry_points.txt",
		"etc/python3.11/sitecustomize.py", "etc/ld.so.preload", "etc/ld.so.cache", "etc/nsswitch.conf", "usr/local/lib/libc.so.6", "usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/libc.so.6",
		"usr/lib/x86_64-linux-gnu/libnss_evil.so.2", "usr/lib/x86_64-linux-gnu/gconv/gconv-modules", "root/.bashrc", "home/ada/.profile", "etc/profile.d/x.sh", "opt/tool/bin/run", "opt/tool-1/bin/run",
		"opt/py/bin/python3.12", "opt/py/lib/python3.12/os.py", "tests/test_outputs.py", "opt/sbench/python/sitecustomize.py", "nvidia/libc.so.6",
		"usr/bin/lib/python3.11/os.py", "usr/bin/Modules/Setup.local", "usr/local/lib/python3.11/dist-packages/msvcrt.py", "usr/local/lib/python3.11/dist-packages/org/__init__.py",
		"usr/local/lib/python3.11/dist-packages/f-1.dist-info -> /opt/x", "usr/local/lib/python3.11/dist-packages/f-1.dist-info/entry_points.txt -> /opt/x", "usr/lib/python3.11/new -> /opt/x",
		"usr/include/assert.h", "usr/include/x86_64-linux-gnu/sys/types.h", "usr/local/include/assert.h", "usr/local/include/sys/types.h", "usr/local/include/sys -> /opt/x",
		"usr/include/x86_64-linux-gnu/assert.h", "usr/local/include/x86_64-linux-gnu/assert.h", "usr/lib/gcc/x86_64-linux-gnu/12/include/assert.h", "usr/include/c++/12/assert.h", "usr/include/c++/12/backward/assert.h", "usr/lib/gcc/x86_64-linux-gnu/12/include-fixed/assert.h", "usr/lib/gcc/x86_64-linux-gnu/12/include-fixed/x86_64-linux-gnu/sys/types.h", "usr/share/perl5/strict.pm", "usr/lib/x86_64-linux-gnu/perl5/5.36/List/Util.pm", "usr/lib/x86_64-linux-gnu/perl-base/strict.pm",
		"usr/local/share/perl/5.36.0/strict.pm", "usr/local/lib/x86_64-linux-gnu/perl/5.36.0/List/Util.pm",
		"usr/local/sbin/run-candidate", "usr/local/bin/uv", "etc/ld-musl-x86_64.path", "usr/lib/python3.12/os.py", "opt/py/etc/rc",
	}
	check := func(names []string, want bool) {
		for _, name := range names {
			trust := newTrust(image, []string{"PATH=/usr/local/bin:/usr/bin:/opt/tool/bin", "LD_LIBRARY_PATH=/nvidia"}, family.TerminalEval{ExpectedChanges: []string{"/etc/profile.d/asked.sh"}})
			path, _, _ := strings.Cut(name, " -> ")
			if got := sees(t, trust, image, name, path); got != want {
				t.Errorf("%s: seen %v, restored %q", name, got, trust.restored)
			}
			if told := len(trust.restored) > 0; told == want && !slices.Contains(trust.restored, "/"+path) {
				t.Errorf("%s: restored %q", name, trust.restored)
			}
			if info, err := image.Lstat(path); slices.Contains(trust.restored, "/"+path) && slices.Contains(trust.putBack, "/"+path) != (err == nil && !info.IsDir() && path != loaderCache) {
				t.Errorf("%s: put back %q", name, trust.putBack)
			}
		}
	}
	check(seen, true)
	check(restored, false)
	trust := newTrust(image, nil, family.TerminalEval{})
	for _, kind := range []layer.Kind{layer.Directory, layer.Opaque} { // what a directory that is new has
		_, err = trust.shows(&layer.Entry{Path: "opt/sbench", Kind: kind})
		must.Do(t, err)
	}
	must.Equal(t, []string{"/opt/sbench"}, trust.restored)
}

func sees(t *testing.T, trust *trust, image *os.Root, entry, path string) bool {
	t.Helper()
	var text bytes.Buffer
	limits := layer.Budget{Bytes: 1 << 20, Entries: 1000}
	if _, err := layer.Write(context.Background(), &text, runtime.Changes{Dir: makeTree(t, entry)}, limits); err != nil {
		t.Fatal(err)
	}
	to := must.OpenRoot(t, t.TempDir())
	must.Do(t, layer.Apply(context.Background(), &text, to, image, limits, trust.shows))
	_, err := to.Lstat(path)
	return err == nil
}

// TestMergeCaches: the loader's cache gets what the candidate's has for new names, and keeps all
// that the image's has.
func TestMergeCaches(t *testing.T) {
	entry := func(name, path string) cacheEntry { return cacheEntry{flags: 0x303, name: name, path: path} }
	libc, libm := entry("libc.so.6", "/lib/libc.so.6"), entry("libm.so.6", "/lib/libm.so.6")
	image := []cacheEntry{libm, libc}
	seven := entry("libseven.so", "/usr/local/lib/libseven.so")
	for _, tt := range []struct {
		name      string
		candidate []cacheEntry
		want      []cacheEntry // nil if the image's stays
	}{
		{"a new library", []cacheEntry{seven, libm, libc}, []cacheEntry{seven, libm, libc}},
		{"another place of the image's", []cacheEntry{seven, libm, entry("libc.so.6", "/opt/libc.so.6"), libc}, []cacheEntry{seven, libm, libc}},
		{"one of the image's in another place", []cacheEntry{seven, libm, entry("libc.so.6", "/opt/libc.so.6")}, nil},
		{"one of the image's missing", []cacheEntry{seven, libm}, nil},
		{"a name of the image's that no cache has", []cacheEntry{entry("libz.so.1", "/opt/libz.so.1"), libm, libc}, nil},
		{"a service of names", []cacheEntry{entry("libnss_x.so.2", "/opt/libnss_x.so.2"), libm, libc}, nil},
		{"for certain processors", []cacheEntry{{flags: 0x303, hwcap: 1 << 62, name: "libx.so", path: "/opt/libx.so"}, libm, libc}, nil},
		{"relative", []cacheEntry{entry("libx.so", "libx.so"), libm, libc}, nil},
		{"nothing new", image, nil},
		{"nothing", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := mergeCaches(writeCache(image), writeCache(tt.candidate), map[string]bool{"libc.so.6": true, "libm.so.6": true, "libz.so.1": true})
			if all := readCache(got); !slices.Equal(all, tt.want) {
				t.Errorf("%+v", all)
			}
		})
	}
	// Many entries share one long text: four megabytes of them would take hundreds of gigabytes.
	bomb := writeCache(append(slices.Clip(image), make([]cacheEntry, 200)...))
	for i := len(image); i < 200; i++ {
		at := bomb[cacheHeader+i*cacheRecord:]
		binary.LittleEndian.PutUint32(at[4:], uint32(len(bomb)))
		binary.LittleEndian.PutUint32(at[8:], uint32(len(bomb)))
	}
	bomb = append(bomb, "/"+strings.Repeat("x", 64<<10)...)
	for _, text := range []string{"", cacheMagic, cacheMagic + strings.Repeat("\xff", 100), string(bomb)} {
		if got := mergeCaches(writeCache(image), []byte(text), nil); got != nil {
			t.Errorf("%.99q: %d bytes", text, len(got))
		}
	}
}

// TestStartFiles: which profiles a checker is about.
func TestStartFiles(t *testing.T) {
	for _, tt := range []struct {
		command, path string
		want          string
	}{
		{"grep -q 'alias ll=' /root/.bashrc && bash -ic 'alias ll'", "", ".bashrc"},
		{"grep -q PATH ~/.profile", "", ".profile"},
		{"bash -lc 'test $X = 1'", "", ""},
		{"grep -q JAVA /etc/profile.d/java.sh; grep EDITOR /etc/environment", "", "/etc/profile.d/java.sh /etc/environment"},
		{"grep -q /opt/lib /etc/ld.so.conf.d/opt.conf", "", ""},
		{". /etc/profile.d/java.sh && java", "", ""},
		{". ~/.bashrc; seven", "", ""},
		{"grep -q x ~/.bashrc; bash -c 'source $HOME/.bashrc && seven'", "", ""},
		{"grep -q x ~/.bashrc && python3 /tests/test_x.py", "x/test_x.py", ""},
	} {
		eval := family.TerminalEval{Checker: compiler.Checker{Command: schema.Command{Shell: tt.command}, Path: tt.path}}
		shared, own := startFiles(eval)
		if got := strings.Join(append(own, shared...), " "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.command, got, tt.want)
		}
	}
}

// viewed has one image, which is empty.
type viewed struct {
	verifiers.Engine
	root *os.Root
}

func (v viewed) View(context.Context, runtime.Image) (runtime.View, error) { return v, nil }
func (v viewed) Root() *os.Root                                            { return v.root }
func (v viewed) Close() error                                              { return nil }

// TestManyForgingLinks: a candidate with more forging links than fit into memory is denied.
func TestManyForgingLinks(t *testing.T) {
	engine, dir := viewed{root: must.OpenRoot(t, t.TempDir())}, t.TempDir()
	deep := strings.TrimSuffix(strings.Repeat(strings.Repeat("d", 250)+"/", 12), "/")
	root := must.OpenRoot(t, dir)
	must.Do(t, root.MkdirAll(deep, 0o755))
	bottom, err := root.OpenRoot(deep)
	must.Do(t, err)
	defer func() { _ = bottom.Close() }()
	for i := range maxNames/len(deep) + 100 {
		must.Do(t, bottom.Symlink("/proc/x", fmt.Sprint(i)))
		if i > 0 {
			continue
		}
		left, denied, err := ForgingLinks(t.Context(), engine, runtime.Image{}, dir, "/w", nil)
		if err != nil || len(left) != 1 || len(denied) != 0 {
			t.Errorf("one link: %d %d %v", len(left), len(denied), err)
		}
	}
	left, denied, err := ForgingLinks(t.Context(), engine, runtime.Image{}, dir, "/w", nil)
	if most := maxNames/len(deep) + 1; err != nil || len(left) != 0 || len(denied) == 0 || len(denied) > most {
		t.Errorf("many links: %d %d of %d, %v", len(left), len(denied), most, err)
	}
}
