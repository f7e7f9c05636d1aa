package verifiers

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
)

const (
	// The volume for a machine has room for what the file system itself needs: a block for each
	// entry, and a mark for each entry of the image in a directory that hides it.
	machineBlock = 4 << 10
	machineMarks = 1 << 18
	// maxRestored bounds the restored paths that a record lists.
	maxRestored = 100
	// maxEntryPoints bounds what is searched of a file, in bytes.
	maxEntryPoints = 64 << 10
)

// machine puts the candidate's changes over the image, in a new volume, except for those to
// what the verdict stands on; see trust. It returns the image with them, what was restored, and
// a function that removes the volume.
func machine(ctx context.Context, e Engine, in Input, eval compiler.TerminalEval) (image runtime.Image, restored []string, done func() error, err error) {
	image = in.Image
	if !in.Task.Environment().Machine || in.Candidate.Layer == "" {
		return image, nil, func() error { return nil }, nil
	}
	limits := candidate.LayerLimits(in.WorkspaceBytes)
	vol, err := e.NewVolume(ctx, runtime.VolumeConfig{Bytes: limits.Bytes + (limits.Entries+machineMarks)*machineBlock, Inodes: limits.Entries + machineMarks})
	if err != nil {
		return image, nil, nil, err
	}
	image.Over = filepath.Join(vol.Path(), "machine")
	if restored, err = applyMachine(ctx, e, in, eval, image.Over, limits); err != nil {
		return image, nil, nil, errors.Join(err, vol.Close())
	}
	return image, restored, vol.Close, nil
}

func applyMachine(ctx context.Context, e Engine, in Input, eval compiler.TerminalEval, over string, limits layer.Limits) ([]string, error) {
	view, err := e.View(ctx, in.Image)
	if err != nil {
		return nil, err
	}
	defer func() { _ = view.Close() }()
	if err := os.Mkdir(over, 0o755); err != nil {
		return nil, err
	}
	to, err := os.OpenRoot(over)
	if err != nil {
		return nil, err
	}
	defer func() { _ = to.Close() }()
	changes, err := in.Candidate.OpenLayer()
	if err != nil {
		return nil, err
	}
	defer func() { _ = changes.Close() }()
	t := newTrust(view.Root(), slices.Concat(in.Image.Env, compiler.Environ(in.Task.Environment().Env)), eval)
	if err := layer.Apply(ctx, changes, to, view.Root(), limits, t.keep); err != nil {
		return nil, err
	}
	return t.restored, nil
}

// trust decides which changes of a candidate's machine the checker sees. What the verdict
// stands on is the image's: the files that it has of the loader, libraries, shells, programs and
// Python, and where these look for more code when they start. A candidate may add programs,
// libraries and modules, but none that would be found in place of the image's.
type trust struct {
	image    *os.Root
	trees    []string // below which the image's files stay
	closed   []string // below which nothing may be added either
	expected []string // that the task is about
	path     []string // the directories of PATH
	// programs, libraries and modules are the names of the image's.
	programs, libraries, modules map[string]bool

	restored []string // absolute paths, at most maxRestored
}

// Paths on which a verdict stands in most images; see trust.
var (
	trustedTrees = []string{
		"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr/bin", "usr/sbin", "usr/lib", "usr/lib32", "usr/lib64", "usr/libexec",
		"usr/local/bin", "usr/local/sbin", "usr/local/lib", "usr/share/python3", "usr/share/perl", "usr/share/perl5", "usr/share/nodejs", "usr/share/npm",
		"etc/alternatives",
	}
	// closedTrees configure the loader, shells and libraries that load code by configuration:
	// ld.so(8), bash(1), nsswitch.conf(5), config(5ssl), perlrun(1).
	closedTrees = []string{
		"etc/ld.so.preload", "etc/ld.so.cache", "etc/ld.so.conf", "etc/ld.so.conf.d", "etc/profile", "etc/profile.d", "etc/bash.bashrc", "etc/bashrc",
		"etc/environment", "etc/zsh", "etc/zshenv", "etc/zprofile", "etc/zshrc", "etc/nsswitch.conf", "etc/ssl/openssl.cnf", "usr/lib/ssl/openssl.cnf", "etc/perl",
		"tests", "logs", "opt/sbench", ".sbench", "sbench", "proc", "sys", "dev",
	}
	profiles = []string{
		".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".zshenv", ".zshrc", ".zprofile", ".zlogin", ".cshrc", ".login",
		".pam_environment", ".pdbrc", ".pythonrc.py",
	}
	// testTools must be the image's even if it has none.
	testTools = []string{"pytest", "py.test", "_pytest", "pluggy", "iniconfig"}

	// pythonSettings matches the directories of Python's system-wide settings on Debian, to which
	// the standard library has links.
	pythonSettings = regexp.MustCompile(`^etc/python3[0-9.]*(/|$)`)
	// modulePath matches a directory of a Python, one in it in which that looks for modules, and
	// the path of a module there.
	modulePath = regexp.MustCompile(`(?:^|/)lib(?:32|64)?/python3[0-9.]*/(lib-dynload/|(?:site|dist)-packages/)?(.*)$`)
	// codeByName are files that are loaded because of where they are: hooks of Python's start,
	// plug-ins of the C library, and libraries for certain processors (ld.so(8)).
	codeByName = regexp.MustCompile(`(^|/)(glibc-hwcaps|gconv)(/|$)|/libnss_[^/]*$|\.(pth|egg-link)$|(^|/)((site|user)customize(\.[^/]*)?|pyvenv\.cfg|pybuilddir\.txt|python3[0-9.]*\.(_pth|zip))(/|$)`)
)

func newTrust(image *os.Root, env []string, eval compiler.TerminalEval) *trust {
	t := &trust{image: image, closed: slices.Clone(closedTrees), programs: map[string]bool{}, libraries: map[string]bool{}, modules: map[string]bool{}}
	for _, p := range eval.ExpectedChanges {
		t.expected = append(t.expected, t.resolve(p))
	}
	for _, p := range eval.TrustedPaths {
		t.closed = append(t.closed, t.resolve(p))
	}
	for _, p := range trustedTrees {
		t.trust(p)
	}
	paths := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			paths += ":" + value
		} else if value, ok := strings.CutPrefix(e, "LD_LIBRARY_PATH="); ok {
			for dir := range strings.SplitSeq(value, ":") {
				t.trust(dir)
			}
		}
	}
	for dir := range strings.SplitSeq(paths, ":") {
		if path.IsAbs(dir) && path.Clean(dir) != "/" {
			t.trustPrograms(dir)
		}
	}
	slices.Sort(t.trees)
	t.trees = slices.Compact(t.trees)
	for _, tool := range testTools {
		t.programs[tool], t.modules[tool] = true, true
	}
	for _, tree := range t.trees {
		t.learn(tree, 0)
	}
	return t
}

// trust adds a directory or file: where the path leads in the image, and the path itself, since
// a candidate could put something else in the place of a link.
func (t *trust) trust(p string) {
	if p = strings.Trim(path.Clean("/"+p), "/"); p != "" {
		t.trees = append(t.trees, p, t.resolve(p))
	}
}

// trustPrograms adds a directory of PATH, the libraries beside it, and those of programs that it
// has links to: virtual environments and other installations of Python are found so.
func (t *trust) trustPrograms(dir string) {
	at := t.resolve(dir)
	prefixes := []string{dir, at}
	entries, _ := fs.ReadDir(t.image.FS(), at) // the image may have no such directory
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		if target := path.Dir(t.resolve(path.Join(at, e.Name()))); target != at && path.Base(target) == "bin" && !slices.Contains(prefixes, target) {
			prefixes = append(prefixes, target)
		}
	}
	t.path = append(t.path, at)
	for _, bin := range prefixes {
		t.trust(bin)
		prefix := path.Dir(bin)
		for _, name := range []string{"lib", "lib64", "pyvenv.cfg"} {
			t.trust(path.Join(prefix, name))
		}
	}
}

// resolve returns the path in the image to which p leads, relative to its root.
func (t *trust) resolve(p string) string {
	plain := &linkResolver{image: t.image}
	return strings.TrimPrefix(plain.follow(path.Join("/", p), nil), "/")
}

// learn notes the names of the image's programs, libraries and modules in dir and up to three
// levels below it, which is where they are in file-hierarchy(7).
func (t *trust) learn(dir string, depth int) {
	entries, err := fs.ReadDir(t.image.FS(), dir)
	if err != nil {
		return // the image has none
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if slices.Contains(t.path, dir) {
			t.programs[e.Name()] = true
		}
		if strings.Contains(e.Name(), ".so") {
			t.libraries[e.Name()] = true
		}
		if m := modulePath.FindStringSubmatch(name); m != nil && m[2] == e.Name() && !strings.Contains(e.Name(), "-") {
			t.modules[moduleOf(e.Name())] = true
		}
		if e.IsDir() && depth < 3 {
			t.learn(name, depth+1)
		}
	}
}

// moduleOf returns the name of the Python module in a file or directory.
func moduleOf(name string) string {
	name, _, _ = strings.Cut(name, ".")
	return name
}

// keep reports whether the checker sees an entry of the candidate's machine.
func (t *trust) keep(e *layer.Entry) (bool, error) {
	if slices.ContainsFunc(t.expected, func(p string) bool { return isBelow(e.Path, p) }) {
		return true, nil
	}
	if e.Kind == layer.Directory && slices.ContainsFunc(t.expected, func(p string) bool { return isBelow(p, e.Path) }) {
		return true, nil
	}
	info, err := t.image.Lstat(e.Path)
	has := err == nil
	merged := has && info.IsDir() && e.Kind == layer.Directory // changed below at most
	trusted := slices.ContainsFunc(t.trees, func(p string) bool { return isBelow(e.Path, p) })
	closed := slices.ContainsFunc(t.closed, func(p string) bool { return isBelow(e.Path, p) }) || isProfile(e.Path) || pythonSettings.MatchString(e.Path)
	above := slices.ContainsFunc(slices.Concat(t.trees, t.closed), func(p string) bool { return isBelow(p, e.Path) })
	hook := trusted && codeByName.MatchString(e.Path)
	if trusted && !hook && e.Kind == layer.File && path.Base(e.Path) == "entry_points.txt" {
		text, err := e.Peek(maxEntryPoints)
		if err != nil {
			return false, err
		}
		hook = bytes.Contains(text, []byte("pytest11")) || e.Size > maxEntryPoints
	}
	switch {
	case hook, closed, trusted && (has || t.shadows(e.Path)),
		above && (has || e.Kind != layer.Directory): // a directory on the way to trusted files is one
		if !merged {
			t.restore(e.Path)
		}
		return false, nil
	}
	return true, nil
}

func isBelow(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// isProfile reports whether a path is a file that shells or debuggers read from a home
// directory.
func isProfile(p string) bool {
	dir, name := path.Split(p)
	return slices.Contains(profiles, name) && (dir == "root/" || strings.HasPrefix(dir, "home/"))
}

// shadows reports whether a file that the image lacks, in a trusted tree, would be found in
// place of one of the image's.
func (t *trust) shadows(p string) bool {
	dir, name := path.Dir(p), path.Base(p)
	m := modulePath.FindStringSubmatch(p)
	switch {
	case slices.Contains(t.path, dir):
		return t.programs[name]
	case m == nil:
		return t.libraries[name]
	}
	top := strings.TrimPrefix(m[2], "__pycache__/")
	if !strings.Contains(top, "/") { // of another version of Python, the standard library may be added
		_, err := t.image.Lstat(strings.TrimSuffix(p[:len(p)-len(m[2])], "/"))
		return t.modules[moduleOf(top)] && (err == nil || strings.HasSuffix(m[1], "-packages/"))
	}
	if path.Base(dir) == "__pycache__" {
		dir = path.Dir(dir)
	}
	return t.has(dir, moduleOf(name)) // of two files with one name, which is found depends on their endings
}

// has reports whether the image has a module in a directory.
func (t *trust) has(dir, module string) bool {
	entries, err := fs.ReadDir(t.image.FS(), dir)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return moduleOf(e.Name()) == module })
}

func (t *trust) restore(p string) {
	if len(t.restored) < maxRestored {
		t.restored = append(t.restored, "/"+p)
	}
}
