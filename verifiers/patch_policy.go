package verifiers

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/patch"
)

// judgePatch parses a candidate's patch and applies the path policy. It returns the changes
// to apply and the paths left out or, if the patch is denied, the verdict.
func judgePatch(text string, eval compiler.RepoPatchEval) (kept []patch.File, left []string, denied *Verdict) {
	deny := func(reason, format string, args ...any) ([]patch.File, []string, *Verdict) {
		return nil, nil, new(failed(reason, fmt.Sprintf(format, args...)))
	}
	if strings.TrimSpace(text) == "" {
		return deny("empty_patch", "the candidate changed nothing")
	}
	files, err := patch.Parse(text)
	if err != nil {
		return deny("candidate_patch_invalid", "the candidate's patch cannot be read")
	}
	policy := newPathPolicy(eval)
	for _, f := range files {
		if f.Irregular() {
			return deny("candidate_policy_denied", "the patch creates or changes a link, a submodule or a special file")
		}
		if policy.leavesOut(f) {
			left = append(left, f.Paths()...)
			continue
		}
		if policy.shadows(f) {
			return deny("candidate_policy_denied", "%q: would be imported in place of a module of Python's, of the test runner's or of the tests', and is not in allow_sensitive_paths", f.New)
		}
		for _, p := range f.Paths() {
			if reason := policy.denies(p); reason != "" {
				return deny("candidate_policy_denied", "%q: %s", p, reason)
			}
		}
		kept = append(kept, f)
	}
	if len(kept) == 0 {
		return deny("empty_patch", "the candidate changed only what is left out: new tests, or paths that keep the repository's version")
	}
	return kept, left, nil
}

// pathPolicy is a task's policy with what its command and its tests add to it.
type pathPolicy struct {
	compiler.CandidatePolicy
	runners []string // files that the tests' command runs
	// imported are top-level modules that the tests import and the gold patch does not bring.
	// Without a gold patch there are none: the task may ask for any of them.
	imported []string
}

var importLine = regexp.MustCompile(`(?m)^[+ ]\s*(?:from|import)\s+(\w+(?:\s*,\s*\w+)*)`)

func newPathPolicy(eval compiler.RepoPatchEval) pathPolicy {
	p := pathPolicy{CandidatePolicy: eval.Policy, runners: patch.Runners(eval.Command.Args())}
	gold, err := patch.Parse(eval.GoldPatch.Reveal())
	if err != nil || len(gold) == 0 {
		return p
	}
	var brought []string
	for _, f := range gold {
		brought = append(brought, topModule(f))
	}
	for _, m := range importLine.FindAllStringSubmatch(eval.TestPatch, -1) {
		for name := range strings.SplitSeq(m[1], ",") {
			if name = strings.TrimSpace(name); !slices.Contains(brought, name) {
				p.imported = append(p.imported, name)
			}
		}
	}
	return p
}

// leavesOut reports whether a change is neither applied nor denied: it is to a path that
// keeps the repository's version, or is a new test that the policy does not mention.
func (p pathPolicy) leavesOut(f patch.File) bool {
	for _, name := range f.Paths() {
		if patch.CheckPath(name) == nil && patch.Match(p.PatchPreservedPaths, name) {
			return true
		}
	}
	rule, sensitive := patch.Sensitive(f.New)
	return f.Old == "" && sensitive && rule.Tests && !p.Strict && patch.CheckPath(f.New) == nil && !patch.Match(p.AllowSensitivePaths, f.New)
}

// denies returns why a path must not be changed, or "" if it may.
func (p pathPolicy) denies(name string) string {
	first, _, _ := strings.Cut(name, "/")
	rule, sensitive := patch.Sensitive(name)
	allowed := patch.Match(p.AllowSensitivePaths, name)
	switch {
	case patch.CheckPath(name) != nil:
		return "not a safe path"
	case strings.EqualFold(first, "securebench"):
		return "belongs to sbench"
	case allowed:
		return ""
	case len(p.AllowPaths) > 0 && !patch.Match(p.AllowPaths, name):
		return "not in allow_paths"
	case sensitive:
		return rule.Kind + ", and not in allow_sensitive_paths"
	case slices.Contains(p.runners, name):
		return "run by the tests' command, and not in allow_sensitive_paths"
	}
	return ""
}

// shadows reports whether a change adds a top-level module that would be imported instead of
// one of Python's, the test runner's or the tests' own: with "python -m pytest", the working
// directory comes first in sys.path.
func (p pathPolicy) shadows(f patch.File) bool {
	name := topModule(f)
	return name != "" && f.New != f.Old && !patch.Match(p.AllowSensitivePaths, f.New) &&
		(slices.Contains(p.imported, name) || slices.Contains(runnersModules(), name))
}

// topModule returns the module that a file at the top of a repository defines, or whose
// package it begins; "" if there is none.
func topModule(f patch.File) string {
	name, rest, directory := strings.Cut(f.New, "/")
	if directory && !strings.HasPrefix(rest, "__init__.") {
		return ""
	}
	if !directory {
		if !slices.Contains([]string{".py", ".pyc", ".so"}, path.Ext(name)) {
			return ""
		}
		name, _, _ = strings.Cut(name, ".") // also x.cpython-311-x86_64-linux-gnu.so
	}
	return name
}

// runnersModules returns the modules of Python 3.11's standard library, pytest and what
// pytest needs.
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
