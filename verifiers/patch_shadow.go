package verifiers

import (
	"path"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/patch"
)

// shadows says whether a change brings a new module to the top of the repository
// that would be imported in place of one of Python's or of its test runner's: the
// working directory comes first where tests run as "python -m pytest".
func shadows(f patch.File) bool {
	if f.New == "" || f.New == f.Old {
		return false
	}
	name, rest, folder := strings.Cut(f.New, "/")
	if folder && !strings.HasPrefix(rest, "__init__.") {
		return false
	}
	if !folder {
		ext := path.Ext(name)
		if ext != ".py" && ext != ".pyc" && ext != ".so" {
			return false
		}
		name, _, _ = strings.Cut(name, ".") // also x.cpython-311-x86_64-linux-gnu.so
	}
	return slices.Contains(runnersModules(), name)
}

// runnersModules are the modules of Python 3.11's standard library, of pytest and
// of what it needs.
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
