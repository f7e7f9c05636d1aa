package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/patch"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/suite"
	"github.com/securebench/sbench/workspace"
	"github.com/securebench/sbench/workspace/foreign"
)

// judge applies the policy to a candidate's patch. It returns the changes to apply and the
// paths left out or, if the patch is denied, the verdict.
func (p pathPolicy) judge(files []patch.File) (kept []patch.File, left []string, denied *verifiers.Verdict) {
	deny := func(format string, args ...any) ([]patch.File, []string, *verifiers.Verdict) {
		return nil, nil, new(verifiers.Fail("candidate_policy_denied", fmt.Sprintf(format, args...)))
	}
	for _, f := range files {
		if f.Irregular() || f.Old == "" && !printable(f.New) {
			if p.Strict {
				return deny("the patch creates or changes a link that leads out of the repository, a submodule, a special file or a name with a control character, a backslash or invalid UTF-8")
			}
			left = append(left, f.Paths()...)
			continue
		}
		if name := p.ofTests(f); name != "" {
			if p.Strict && !patch.Match(p.PatchPreservedPaths, name) {
				return deny("%q belongs to the tests, and is not in allow_sensitive_paths", name)
			}
			left = append(left, f.Paths()...)
			continue
		}
		for _, name := range f.Paths() {
			if reason := p.denies(name); reason != "" {
				return deny("%q: %s", name, reason)
			}
		}
		kept = append(kept, f)
	}
	if len(kept) == 0 {
		return nil, nil, new(verifiers.Fail("empty_patch", "the candidate changed only what is left out: what belongs to the tests, keeps the repository's version, or is no file of it"))
	}
	return kept, left, nil
}

// pathPolicy is a task's policy with what its command, its tests and its gold patch add to it.
type pathPolicy struct {
	family.CandidatePolicy
	steering []patch.Rule
	runners  []string // files that the tests' command runs
	tests    []string // paths that test_patch touches
	gold     []string // paths that the gold patch touches
	// packages and modules are directories and files that are named like ones of tests, but are the product's.
	packages, modules []string
	imports           []string // words of the lines by which the candidate's patch imports modules
	// shadowed are top-level modules that the tests import and the gold patch does not bring.
	// Without a gold patch there are none: the task may ask for any of them.
	shadowed []string
}

var (
	importLine = regexp.MustCompile(`(?m)^[+ ]\s*(?:from|import)\s+(\w+(?:\s*,\s*\w+)*)`)
	// usesModule also matches a line of an import declaration of Go.
	usesModule = regexp.MustCompile(`(?m)^\+(?:.*\b(?:from|import|require|include|use|mod)\b.*|[ \t]*(?:\w+ )?"[^"\n]+")$`)
	nameWord   = regexp.MustCompile(`[\w-]+`)
)

func newPathPolicy(eval family.RepoPatchEval, candidate []patch.File) pathPolicy {
	args := eval.Command.Args()
	p := pathPolicy{CandidatePolicy: eval.Policy, steering: patch.Steering(args), runners: patch.Runners(args)}
	touched, _ := patch.Parse(eval.TestPatch) // verifyPatch has parsed it before
	p.tests = pathsOf(touched)
	for _, f := range candidate {
		if !patch.TestFile(f.New) {
			p.imports = append(p.imports, nameWord.FindAllString(strings.Join(usesModule.FindAllString(f.Text, -1), "\n"), -1)...)
		}
	}
	gold, err := patch.Parse(eval.GoldPatch.Reveal())
	if err != nil || len(gold) == 0 {
		return p
	}
	p.gold = pathsOf(gold)
	var brought []string
	for _, f := range gold {
		brought = append(brought, topModule(f.New))
	}
	for _, m := range importLine.FindAllStringSubmatch(eval.TestPatch, -1) {
		for name := range strings.SplitSeq(m[1], ",") {
			if name = strings.TrimSpace(name); !slices.Contains(brought, name) {
				p.shadowed = append(p.shadowed, name)
			}
		}
	}
	return p
}

// look finds which of the changed files and their directories are named like ones of tests, but are the product's in the
// image's repository: directories that hold no test, and are Python packages or have a name with another meaning; and
// files that hold no test, and that other files of the product name, or the rest of the patch imports and no test names.
func (p *pathPolicy) look(ctx context.Context, e verifiers.Engine, in verifiers.Input, changes []patch.File) (err error) {
	var directories, files []string
	for _, name := range pathsOf(changes) {
		dir := patch.TestDirectory(name)
		if dir != "" && patch.CheckPath(dir) == nil && !slices.Contains(directories, dir) {
			directories = append(directories, dir)
		}
		if dir == "" && patch.TestFile(name) && patch.CheckPath(name) == nil && !slices.Contains(p.tests, name) {
			files = append(files, name)
		}
	}
	if len(directories)+len(files) == 0 {
		return nil
	}
	view, err := e.View(ctx, in.Image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	root, err := view.Root().OpenRoot(strings.TrimPrefix(in.Task.Environment().Workdir, "/"))
	if err != nil {
		return nil // prepare.sh says so
	}
	defer func() { _ = root.Close() }()
	for _, dir := range directories {
		_, missing := root.Lstat(path.Join(dir, "__init__.py"))
		tests := missing != nil && !slices.Contains([]string{"spec", "t"}, strings.ToLower(path.Base(dir)))
		_ = fs.WalkDir(root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
			if tests = tests || err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && !d.IsDir() && patch.TestFile(name); tests {
				return fs.SkipAll
			}
			return nil
		})
		if !tests {
			p.packages = append(p.packages, dir)
		}
	}
	for _, name := range files {
		if text, err := foreign.Read(root, workspace.InImage(root, name), maxSeen); err == nil && !holdsTest.Match(text) && ofProduct(root, name, slices.Contains(p.imports, module(name))) {
			p.modules = append(p.modules, name)
		}
	}
	return nil
}

// holdsTest matches what test files of the common languages have.
var holdsTest = regexp.MustCompile(`(?m)\b(?:def test|func Test|unittest|pytest|doctest|assert|describe\(|it\(|TEST(?:_F)?\()|@Test\b|\[(?:Test|Fact)\b|#\[test\]|^\s*(?:class \w*Test|test\b)`)

// ofProduct reports whether a file of the product of the same language names the module of this file or, if the patch
// imports it, no test does.
func ofProduct(root *os.Root, file string, imported bool) bool {
	all, _ := suite.Below(root, ".") // what can be read counts
	word := regexp.MustCompile(`\b` + regexp.QuoteMeta(module(file)) + `\b`)
	for _, name := range all {
		if name == file || path.Ext(name) != path.Ext(file) {
			continue
		}
		if text, err := foreign.Read(root, name, maxSeen); err != nil || !word.Match(text) {
			continue
		}
		if !patch.TestFile(name) && patch.TestDirectory(name) == "" && path.Base(name) != "conftest.py" {
			return true
		}
		imported = false
	}
	return imported
}

// ofTests returns the path of a change that belongs to the tests, or keeps the repository's version
// for another reason; "" if the change is the product's. docs/verifiers.md states the rules.
func (p pathPolicy) ofTests(f patch.File) string {
	for _, name := range f.Paths() {
		isNew := name == f.New && name != f.Old
		if patch.CheckPath(name) == nil && (patch.Match(p.PatchPreservedPaths, name) || p.owned(name, isNew)) {
			return name
		}
	}
	return ""
}

func (p pathPolicy) owned(name string, isNew bool) bool {
	directory := patch.TestDirectory(name)
	inTests := directory != "" && !slices.Contains(p.packages, directory)
	used := isNew && !inTests && slices.Contains(p.imports, strings.TrimSuffix(path.Base(name), path.Ext(name)))
	switch {
	case patch.Match(p.AllowSensitivePaths, name):
		return false
	case patch.TestFile(name) && !used && !slices.Contains(p.modules, name), isNew && slices.Contains(p.tests, name):
		return true
	case slices.Contains(p.gold, name):
		return false
	case slices.ContainsFunc(p.steering, func(r patch.Rule) bool { return r.Names(name) && !p.builds(r, name) }), slices.Contains(p.runners, name):
		return true
	case isNew && p.shadows(name, inTests):
		return true
	}
	within := path.Dir(name) // the package, where a file is none
	imported := slices.Contains(p.imports, module(name)) || within != directory && slices.Contains(p.imports, path.Base(within))
	return inTests && !(isNew && imported)
}

// builds reports whether the gold patch changes a file of the same build tools in the file's directory or above it: that
// file can read this one.
func (p pathPolicy) builds(r patch.Rule, name string) bool {
	return len(r.Tools) > 0 && slices.ContainsFunc(p.gold, func(gold string) bool {
		dir := path.Dir(gold)
		return r.Names(gold) && (dir == "." || strings.HasPrefix(name, dir+"/"))
	})
}

// printable reports whether no slip of a shell has made the name.
func printable(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r == '\\' || r == unicode.ReplacementChar || unicode.IsControl(r) })
}

// denies returns why a path must not be changed, or "" if it may.
func (p pathPolicy) denies(name string) string {
	first, _, _ := strings.Cut(name, "/")
	switch {
	case patch.CheckPath(name) != nil:
		return "not a safe path"
	case strings.EqualFold(first, "securebench"):
		return "belongs to sbench"
	case len(p.AllowPaths) > 0 && !patch.Match(p.AllowPaths, name) && !patch.Match(p.AllowSensitivePaths, name):
		return "not in allow_paths"
	}
	return ""
}

// shadows reports whether a new file would be imported instead of a module of Python's, the test runner's or
// the tests', since sys.path begins with the working and the tests' directories.
func (p pathPolicy) shadows(name string, inTests bool) bool {
	imported := topModule(name)
	if inTests {
		imported = module(name)
	}
	return imported != "" && (slices.Contains(p.shadowed, imported) || slices.Contains(runnersModules(), imported))
}

// module returns the name by which a file is imported: its directory's for a file such as __init__.py.
func module(name string) string {
	base, _, _ := strings.Cut(path.Base(name), ".") // also of x.cpython-311-x86_64-linux-gnu.so
	if slices.Contains([]string{"__init__", "index", "mod"}, base) {
		return path.Base(path.Dir(name))
	}
	return base
}

// topModule returns the Python module or package that a file at the top of a repository defines, or "".
func topModule(name string) string {
	_, rest, directory := strings.Cut(name, "/")
	if directory && !strings.HasPrefix(rest, "__init__.") || !directory && !slices.Contains([]string{".py", ".pyc", ".so"}, path.Ext(name)) {
		return ""
	}
	return module(name)
}

// runnersModules returns the modules of Python 3.11, pytest and what pytest needs.
func runnersModules() []string {
	return strings.Fields(`
		__future__ _pytest abc aifc antigravity argparse array ast asynchat asyncio asyncore atexit attr attrs audioop
		base64 bdb binascii bisect builtins bz2 cProfile calendar cgi cgitb chunk cmath cmd code codecs codeop
		collections colorsys compileall concurrent configparser contextlib contextvars copy copyreg coverage crypt csv
		ctypes curses dataclasses datetime dbm decimal difflib dis distutils doctest email encodings ensurepip enum
		errno exceptiongroup faulthandler fcntl filecmp fileinput fnmatch fractions ftplib functools gc genericpath
		getopt getpass gettext glob graphlib grp gzip hashlib heapq hmac html http hypothesis idlelib imaplib imghdr
		imp importlib iniconfig inspect io ipaddress itertools json keyword lib2to3 linecache locale logging lzma
		mailbox mailcap marshal math mimetypes mmap mock modulefinder msilib msvcrt multiprocessing netrc nis nntplib
		nose nt ntpath nturl2path numbers opcode operator optparse os ossaudiodev packaging pathlib pdb pickle
		pickletools pipes pkgutil platform plistlib pluggy poplib posix posixpath pprint profile pstats pty pwd py
		py_compile pyclbr pydoc pydoc_data pyexpat pytest queue quopri random re readline reprlib resource rlcompleter
		runpy sched secrets select selectors shelve shlex shutil signal site sitecustomize smtpd smtplib sndhdr socket
		socketserver spwd sqlite3 sre_compile sre_constants sre_parse ssl stat statistics string stringprep struct
		subprocess sunau symtable sys sysconfig syslog tabnanny tarfile telnetlib tempfile termios textwrap this
		threading time timeit tkinter token tokenize tomli tomllib trace traceback tracemalloc tty turtle turtledemo
		types typing unicodedata unittest urllib usercustomize uu uuid venv warnings wave weakref webbrowser winreg
		winsound wsgiref xdrlib xml xmlrpc zipapp zipfile zipimport zlib zoneinfo`)
}
