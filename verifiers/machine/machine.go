// Package machine decides what a checker sees of a machine that an agent changed: [Restore] keeps the image's
// own programs, libraries and settings, and [ForgingLinks] finds links that mislead the checker.
package machine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/workspace"
	"github.com/securebench/sbench/workspace/foreign"
)

const (
	// maxRestored bounds the restored paths that a record lists.
	maxRestored = 100
	// maxEntryPoints bounds what is searched of a file, in bytes.
	maxEntryPoints = 64 << 10
)

// Machine is an image with a candidate's changes over it.
type Machine struct {
	Image    runtime.Image
	Restored []string // absolute paths that are the image's again, or were left out
	PutBack  []string // the image's files among them
	Sealed   []string // absolute paths that nothing may change while the checker runs
}

// Restore puts the candidate's changes over the image, in a new volume, except for those to
// what the verdict depends on; see trust. done removes the volume.
func Restore(ctx context.Context, e verifiers.Engine, in verifiers.Input, eval family.TerminalEval) (m Machine, done func() error, err error) {
	env := in.Task.Environment()
	if !env.Machine || in.Candidate.Layer == "" {
		return Machine{Image: in.Image}, func() error { return nil }, nil
	}
	var t *trust
	m.Image, done, err = in.Candidate.Machine(ctx, e, in.Image, in.WorkspaceBytes, func(image *os.Root) func(*layer.Entry) (bool, error) {
		t = newTrust(image, slices.Concat(in.Image.Env, environment.Environ(env.Env)), eval)
		m.Sealed = t.sealed(env.Workdir)
		return t.shows
	})
	if err != nil {
		return m, nil, err
	}
	m.Restored, m.PutBack = t.restored, t.putBack
	if err := m.writeCache(mergeCaches(t.cache, t.changedCache, t.libraries)); err != nil {
		return m, nil, errors.Join(err, done())
	}
	return m, done, nil
}

// writeCache gives the machine the dynamic loader's cache; nil leaves the one that is there.
func (m *Machine) writeCache(cache []byte) error {
	if cache == nil {
		return nil
	}
	m.Restored = slices.DeleteFunc(m.Restored, func(p string) bool { return p == "/"+loaderCache })
	to, err := os.OpenRoot(m.Image.UpperDir)
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	_ = to.Remove(loaderCache) // a mark that it was removed
	return to.WriteFile(loaderCache, cache, 0o644)
}

// trust decides which changes of a candidate's machine the checker sees. What the verdict depends on is the
// image's: its loader, libraries, shells, programs and Python, and where these look for more code. A candidate
// may add programs, libraries and modules under names that the image does not have.
type trust struct {
	image    *os.Root
	trees    []string // below which the image's files stay
	closed   []string // below which nothing may be added either
	expected []string // that the task is about
	profiles []string // names of profiles that the task is about
	path     []string // the directories of PATH
	// programs, libraries and modules are the names of the image's; modules also has those that its Python
	// imports if they are there. pythons are the names of Pythons' library directories.
	programs, libraries, modules, pythons map[string]bool
	cache, changedCache                   []byte // the loader's, of the image and of the candidate

	restored, putBack []string // absolute paths, at most maxRestored; putBack are the image's files among them
}

// Paths on which a verdict depends in most images; see trust.
var (
	trustedTrees = []string{
		"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr/bin", "usr/sbin", "usr/lib", "usr/lib32", "usr/lib64", "usr/libexec",
		"usr/local/bin", "usr/local/sbin", "usr/local/lib", "usr/include", "usr/local/include", "usr/local/share/perl", "usr/share/python3", "usr/share/perl", "usr/share/perl5", "usr/share/nodejs", "usr/share/npm",
		"etc/alternatives",
	}
	// closedTrees configure the loader, shells and libraries that load code by configuration:
	// ld.so(8), bash(1), nsswitch.conf(5), config(5ssl), perlrun(1).
	closedTrees = []string{
		"etc/ld.so.preload", loaderCache, "etc/ld.so.conf", "etc/ld.so.conf.d", "etc/profile", "etc/profile.d", "etc/bash.bashrc", "etc/bashrc",
		"etc/environment", "etc/zsh", "etc/zshenv", "etc/zprofile", "etc/zshrc", "etc/nsswitch.conf", "etc/ssl/openssl.cnf", "usr/lib/ssl/openssl.cnf", "etc/perl",
	}
	// mountPoints are sbench's and the kernel's.
	mountPoints = []string{"tests", "logs", "opt/sbench", ".sbench", "sbench", "proc", "sys", "dev"}
	profiles    = []string{
		".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".zshenv", ".zshrc", ".zprofile", ".zlogin", ".cshrc", ".login",
		".pam_environment", ".pdbrc", ".pythonrc.py",
	}
	// testTools must be the image's even if it has none.
	testTools = []string{"pytest", "py.test", "_pytest", "pluggy", "iniconfig", "uv", "uvx", "tox", "nox", service.RunCandidate}
	// installers are modules that the standard library imports, and that candidates install.
	installers = []string{"pip", "setuptools", "pkg_resources", "wheel", "distutils"}
	// searchPaths are variables that list directories in which programs look for code.
	searchPaths = []string{"LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "NODE_PATH", "PERL5LIB", "RUBYLIB", "GOROOT"}
	// imports matches the modules that a line of Python imports.
	imports = regexp.MustCompile(`(?m)^[ \t]*(?:import|from)[ \t]+([A-Za-z_]\w*)`)

	// settings matches the directories of Python's system-wide settings on Debian, to which the
	// standard library has links, and the search path of musl's loader.
	settings = regexp.MustCompile(`^etc/(python3[0-9.]*(/|$)|ld-musl-)`)
	// modulePath matches a directory of a Python, one in it in which that looks for modules, and
	// the path of a module there.
	modulePath = regexp.MustCompile(`(?:^|/)lib(?:32|64)?/python3[0-9.]*/(lib-dynload/|(?:site|dist)-packages/)?(.*)$`)
	// headers and perlModules match what C compilers and Perl search before other directories: the directory of a compiler,
	// and a name in it.
	headers     = regexp.MustCompile(`^(?:(usr/lib/gcc/[^/]+/[^/]+|usr/include/(?:[^/]+-linux-[^/]+/)?c\+\+/[^/]+)(?:/include(?:-fixed(?:/[^/]+-linux-[^/]+)?)?|/backward)?|usr/local/include(?:/[^/]+-linux-[^/]+)?|usr/include/[^/]+-linux-[^/]+)/(.+)$`)
	perlModules = regexp.MustCompile(`^()usr/(?:local/)?(?:share|lib(?:/[^/]+)?)/perl(?:5?/(?:[0-9.]+/)?|-base/)(.+)$`)
	// codeByName are files that are loaded because of where they are: hooks of Python's start,
	// plug-ins of the C library, and libraries for certain processors (ld.so(8)).
	codeByName = regexp.MustCompile(`(^|/)(glibc-hwcaps|gconv)(/|$)|/libnss_[^/]*$|\.(pth|egg-link)$|(^|/)((site|user)customize(\.[^/]*)?|pyvenv\.cfg|pybuilddir\.txt|python3[0-9.]*\.(_pth|zip))(/|$)`)
)

func newTrust(image *os.Root, env []string, eval family.TerminalEval) *trust {
	t := &trust{image: image, programs: map[string]bool{}, libraries: map[string]bool{}, modules: map[string]bool{}, pythons: map[string]bool{}}
	shared, own := startFiles(eval)
	t.profiles = own
	both := func(p string) []string {
		return []string{strings.Trim(path.Clean(p), "/"), workspace.InImage(t.image, p)}
	}
	for _, p := range slices.Concat(eval.ExpectedChanges, shared) {
		t.expected = append(t.expected, both(p)...)
	}
	for _, p := range slices.Concat(closedTrees, eval.TrustedPaths) {
		t.closed = append(t.closed, both(p)...)
	}
	for _, p := range trustedTrees {
		t.trust(p)
	}
	search := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if name == "PATH" {
			search += ":" + value
		} else if slices.Contains(searchPaths, name) {
			for dir := range strings.SplitSeq(value, ":") {
				t.trust(dir)
			}
		}
	}
	for dir := range strings.SplitSeq(search, ":") {
		if path.IsAbs(dir) && path.Clean(dir) != "/" {
			t.trustPrograms(dir)
		}
	}
	slices.Sort(t.trees)
	t.trees, t.closed = slices.Compact(t.trees), append(t.closed, mountPoints...)
	for _, tool := range testTools {
		t.programs[tool], t.modules[tool] = true, true
	}
	for _, tree := range t.trees {
		t.learn(tree, 0)
	}
	for _, name := range installers {
		delete(t.modules, name)
	}
	t.cache, _ = foreign.Read(image, loaderCache, maxLoaderCache) // the image may have none
	for _, e := range readCache(t.cache) {
		t.libraries[e.name] = true
	}
	return t
}

// sealed returns what nothing in the checker's sandbox may change: the trusted trees and files
// that are no links, except in the directory workdir, and without those in another of them.
func (t *trust) sealed(workdir string) (sealed []string) {
	all := slices.Concat(t.trees, t.closed[:len(t.closed)-len(mountPoints)])
	slices.Sort(all)
	for _, p := range all {
		inside := func(dir string) bool { return paths.IsBelow("/"+p, dir) }
		info, err := t.image.Lstat(p)
		if err == nil && info.Mode()&fs.ModeSymlink == 0 && !inside(workdir) &&
			workspace.InImage(t.image, p) == p && !slices.ContainsFunc(sealed, inside) {
			sealed = append(sealed, "/"+p)
		}
	}
	return sealed
}

// trust adds a directory or file: where the path leads in the image, and the path itself, since
// a candidate could put something else in the place of a link.
func (t *trust) trust(p string) {
	if p = strings.Trim(path.Clean("/"+p), "/"); p != "" {
		t.trees = append(t.trees, p, workspace.InImage(t.image, p))
	}
}

// trustPrograms adds a directory of PATH, the libraries beside it, and the libraries of programs that it
// has links to. Virtual environments and other installations of Python are found by such links.
func (t *trust) trustPrograms(dir string) {
	at := workspace.InImage(t.image, dir)
	prefixes := []string{dir, at}
	entries, _ := fs.ReadDir(t.image.FS(), at) // the image may have no such directory
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		target := path.Dir(workspace.InImage(t.image, path.Join(at, e.Name())))
		if target != at && path.Base(target) == "bin" && !slices.Contains(prefixes, target) {
			prefixes = append(prefixes, target)
		}
	}
	t.path = append(t.path, at)
	for _, bin := range prefixes {
		t.trust(bin)
		prefix := strings.Trim(path.Dir(path.Clean("/"+bin)), "/")
		if shared := []string{"", "usr", "usr/local", "root", "home", "opt"}; path.Base(bin) == "bin" && !slices.Contains(shared, prefix) && path.Dir(prefix) != "home" {
			t.trust(prefix) // an installation of its own, such as of Go or conda
			continue
		}
		for _, name := range []string{"lib", "lib64", "pyvenv.cfg"} {
			t.trust(path.Join(prefix, name))
		}
	}
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
		m := modulePath.FindStringSubmatch(name)
		if m != nil && m[2] == e.Name() && !strings.Contains(e.Name(), "-") {
			t.modules[moduleOf(e.Name())] = true
		}
		if m != nil && m[1] == "" && strings.HasSuffix(name, ".py") && e.Type().IsRegular() {
			t.pythons[pythonOf(name)] = true
			t.learnImports(name)
		}
		if e.IsDir() && depth < 3 {
			t.learn(name, depth+1)
		}
	}
}

// learnImports notes which modules a file of the standard library imports, even if they are missing.
func (t *trust) learnImports(name string) {
	text, err := t.image.ReadFile(name)
	if err != nil {
		return
	}
	for _, m := range imports.FindAllSubmatch(text, -1) {
		t.modules[string(m[1])] = true
	}
}

// pythonOf returns the name of the directory of a Python's library in a path, such as python3.11.
func pythonOf(p string) string {
	_, rest, _ := strings.Cut("/"+p, "/python3")
	version, _, _ := strings.Cut(rest, "/")
	return "python3" + version
}

func moduleOf(name string) string {
	name, _, _ = strings.Cut(name, ".")
	return name
}

// shows reports whether the checker sees an entry of the candidate's machine.
func (t *trust) shows(e *layer.Entry) (bool, error) {
	if slices.ContainsFunc(t.expected, func(p string) bool { return paths.IsBelow(e.Path, p) }) {
		return true, nil
	}
	if e.Kind == layer.Directory && slices.ContainsFunc(t.expected, func(p string) bool { return paths.IsBelow(p, e.Path) }) {
		return true, nil
	}
	info, err := t.image.Lstat(e.Path)
	has := err == nil
	merged := has && info.IsDir() && e.Kind == layer.Directory // changed below at most
	trusted := slices.ContainsFunc(t.trees, func(p string) bool { return paths.IsBelow(e.Path, p) })
	closed := slices.ContainsFunc(t.closed, func(p string) bool { return paths.IsBelow(e.Path, p) }) ||
		isProfile(e.Path) && !slices.Contains(t.profiles, path.Base(e.Path)) || settings.MatchString(e.Path)
	above := slices.ContainsFunc(slices.Concat(t.trees, t.closed), func(p string) bool { return paths.IsBelow(p, e.Path) })
	// A link among modules could lead to what is not looked at here.
	link := e.Kind == layer.Symlink || e.Kind == layer.Hardlink
	hook := trusted && (codeByName.MatchString(e.Path) || link && modulePath.MatchString(e.Path))
	if trusted && !hook && e.Kind == layer.File && path.Base(e.Path) == "entry_points.txt" {
		text, err := e.Peek(maxEntryPoints)
		if err != nil {
			return false, err
		}
		hook = bytes.Contains(text, []byte("pytest11")) || e.Size > maxEntryPoints
	}
	if e.Path == loaderCache && e.Kind == layer.File {
		if t.changedCache, err = io.ReadAll(io.LimitReader(e, maxLoaderCache)); err != nil {
			return false, err
		}
	}
	switch {
	case hook, closed, candidate.Unreadable(e), trusted && (has || t.shadows(e.Path) || e.Kind != layer.Directory && t.later(e.Path)),
		above && (has || e.Kind != layer.Directory): // a directory on the way to trusted files is one
		if !merged {
			t.restore(e.Path, has && !info.IsDir())
		}
		return false, nil
	}
	return true, nil
}

// startFiles returns the files that shells read at their start and that a command is about: shared paths, and
// names of profiles. A command with hidden files is about something else.
func startFiles(eval family.TerminalEval) (shared, own []string) {
	if eval.Checker.Path != "" || len(eval.Files) > 0 {
		return nil, nil
	}
	for _, m := range startFile.FindAllStringSubmatch(strings.Join(eval.Checker.Args(), " "), -1) {
		switch {
		case m[1] != "":
			return nil, nil
		case m[2] != "":
			own = append(own, m[2])
		default:
			shared = append(shared, m[3])
		}
	}
	return shared, own
}

// startFile matches a profile or a file of all users, and what sources it.
var startFile = regexp.MustCompile(`((?:\bsource|(?:^|[\s;&|('"])\.)\s+[^\s;&|]*)?(?:/(\.[a-z_.]+)|(/etc/(?:profile\.d/[\w.-]+|(?:profile|environment|bash\.bashrc|zsh\w+)\b)))`)

// isProfile reports whether shells or debuggers read the file from a home directory.
func isProfile(p string) bool {
	dir, name := path.Split(p)
	return slices.Contains(profiles, name) && (dir == "root/" || strings.HasPrefix(dir, "home/"))
}

// shadows reports whether a file that the image lacks would be found in place of one of the image's.
func (t *trust) shadows(p string) bool {
	dir, name := path.Dir(p), path.Base(p)
	m := modulePath.FindStringSubmatch(p)
	switch {
	case slices.Contains(t.path, dir):
		return t.programs[name]
	case slices.ContainsFunc(t.path, func(bin string) bool { return paths.IsBelow(p, bin) }):
		return true // Python looks for its library there
	case m == nil:
		return t.libraries[name]
	}
	top := strings.TrimPrefix(m[2], "__pycache__/")
	if !strings.Contains(top, "/") { // of another version of Python, the standard library may be added
		return t.modules[moduleOf(top)] && (t.pythons[pythonOf(p)] || strings.HasSuffix(m[1], "-packages/"))
	}
	if path.Base(dir) == "__pycache__" {
		dir = path.Dir(dir)
	}
	return t.has(dir, moduleOf(name)) // of two files with one name, which is found depends on their endings
}

// later reports whether a C header or a module of Perl may be found in place of one of the image's with its name,
// which is in another directory. Only the image's compilers count.
func (t *trust) later(p string) bool {
	for _, search := range []struct {
		first *regexp.Regexp
		other []string
	}{
		{headers, []string{"usr/include", "usr/include/*", "usr/lib/gcc/*/*/include"}},
		{perlModules, []string{"usr/share/perl5", "usr/share/perl/*", "usr/lib/*/perl5/*", "usr/lib/*/perl/*", "usr/lib/*/perl-base"}},
	} {
		m := search.first.FindStringSubmatch(p)
		if m == nil || m[1] != "" && !t.exists(m[1]) {
			continue
		}
		for _, pattern := range search.other {
			dirs, _ := fs.Glob(t.image.FS(), pattern) // the patterns are well formed
			if slices.ContainsFunc(dirs, func(dir string) bool { return t.exists(path.Join(dir, m[2])) }) {
				return true
			}
		}
	}
	return false
}

func (t *trust) exists(p string) bool {
	_, err := t.image.Stat(p)
	return err == nil
}

func (t *trust) has(dir, module string) bool {
	entries, err := fs.ReadDir(t.image.FS(), dir)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return moduleOf(e.Name()) == module })
}

// restore notes a path that the checker sees as in the image, or not at all. file says that the image has a file there.
func (t *trust) restore(p string, file bool) {
	if len(t.restored) == maxRestored || slices.Contains(t.restored, "/"+p) {
		return
	}
	t.restored = append(t.restored, "/"+p)
	if file && p != loaderCache { // see writeCache
		t.putBack = append(t.putBack, "/"+p)
	}
}
