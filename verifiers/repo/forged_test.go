package repo_test

import (
	"crypto/sha256"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/verdicttest"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
)

// patched judges the patch that a shell script makes in a copy of the repository, on the host.
func (w repoWorld) patched(t *testing.T, script string, tests map[string]any) verifiers.Verdict {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	must.Run(t, exec.Command("bash", "-c", `cp -a "$0" "$1" && cd "$1" && { `+script+"\n}", w.repo, dir))
	out, err := exec.Command("bash", "-c", `cd "$0" && git add -A -f && git diff --cached --binary --no-renames HEAD`, dir).Output()
	must.Do(t, err)
	task, pack := w.task(t, tests)
	return w.judge(t, task, pack, harness.Result{Candidate: candidate.Candidate{Patch: string(out)}})
}

func core(text string) string { return "cat > calc/core.py <<'END'\n" + text + "\nEND" }

// A forgery does not solve the task; its honest twin does, in a similar way.
type forgery struct {
	class              string // what it tries
	name, script, twin string
	tests              map[string]any
}

// forgedPatches returns patches that try to pass the tests without solving the task.
func forgedPatches() []forgery {
	all, class := []forgery{}, ""
	code := func(name, text string) {
		all = append(all, forgery{class, name, core(text), core("# " + name + "\ndef add(a, b):\n    return a + b"), nil})
	}
	class = "processes that end early"
	code("os._exit at import", "import os\nos._exit(0)")
	code("os._exit in the call", "import os\ndef add(a, b):\n    os._exit(0)")
	code("atexit", "import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b):\n    return 4")
	code("exec of true", "import os\nos.execv('/bin/true', ['true'])")
	code("exit of a thread", "import threading, os, time\nthreading.Thread(target=lambda: (time.sleep(0.05), os._exit(0))).start()\ndef add(a, b):\n    time.sleep(5)")
	code("signal", "import os, signal\nsignal.signal(signal.SIGALRM, lambda *a: os._exit(0))\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\ndef add(a, b):\n    signal.pause()")
	code("pytest.exit", "import pytest\ntry:\n    pytest.exit('done', returncode=0)\nexcept TypeError:\n    pytest.exit('done')")
	code("SystemExit at import", "raise SystemExit(0)")
	code("KeyboardInterrupt made a success", "import _pytest.config as c\nclass E(int):\n    pass\nimport sys, os\nsys.exit = lambda *a: os._exit(0)\nraise KeyboardInterrupt")
	code("sys.exit rebound", "import sys, os\nold = sys.exit\nsys.exit = lambda code=0: os._exit(0)\ndef add(a, b):\n    return 4")
	code("exit handler of threading", "import threading, os\nthreading._register_atexit(os._exit, 0)\ndef add(a, b):\n    return 4")
	code("destructor", "import os\nclass D:\n    def __del__(self, e=os._exit):\n        e(0)\nkeep = D()\ndef add(a, b):\n    return 4")
	code("fork", "import os\nif os.fork():\n    os._exit(0)\ndef add(a, b):\n    return 4")
	class = "tests that are not run, or not counted"
	code("skip in the call", "import pytest\ndef add(a, b):\n    pytest.skip('no')")
	code("skip at import", "import pytest\npytest.skip('no', allow_module_level=True)")
	code("unittest.SkipTest", "import unittest\ndef add(a, b):\n    raise unittest.SkipTest('no')")
	code("xfail", "import pytest\ndef add(a, b):\n    pytest.xfail('no')")
	code("runtest rebound", "import _pytest.python as p, _pytest.unittest as u\np.Function.runtest = u.TestCaseFunction.runtest = lambda self: None\ndef add(a, b):\n    return 4")
	code("call hook rebound", "import _pytest.runner as r\nr.call_runtest_hook_old = r.call_runtest_hook\nr.call_and_report = lambda item, when, log=True, **kw: None\nr.runtestprotocol = lambda item, log=True, nextitem=None: []\ndef add(a, b):\n    return 4")
	code("reports rewritten", "import _pytest.reports as r\nold = r.TestReport.from_item_and_call.__func__\ndef make(cls, item, call):\n    rep = old(cls, item, call)\n    rep.outcome, rep.longrepr = 'passed', None\n    return rep\nr.TestReport.from_item_and_call = classmethod(make)\ndef add(a, b):\n    return 4")
	code("session's counter", "import gc, _pytest.main as m\nfor s in [o for o in gc.get_objects() if isinstance(o, m.Session)]:\n    s.__class__ = type('S', (m.Session,), {'testsfailed': property(lambda self: 0, lambda self, v: None)})\ndef add(a, b):\n    return 4")
	code("exit status", "import _pytest.config as c\nc.ExitCode.TESTS_FAILED._value_ = 0\nimport _pytest.main as m\nm.ExitCode = type('X', (), {n: 0 for n in ('OK', 'TESTS_FAILED', 'INTERRUPTED', 'INTERNAL_ERROR', 'USAGE_ERROR', 'NO_TESTS_COLLECTED')})\ndef add(a, b):\n    return 4")
	code("hook implementations rebound", "import gc, pluggy\nfor pm in [o for o in gc.get_objects() if isinstance(o, pluggy.PluginManager)]:\n    for impl in pm.hook.pytest_runtest_makereport.get_hookimpls():\n        def make(item, call, old=impl.function):\n            rep = old(item, call)\n            if rep is not None:\n                rep.outcome = 'passed'\n            return rep\n        if impl.function.__module__ == '_pytest.runner':\n            impl.function = make\ndef add(a, b):\n    return 4")
	code("collected items emptied", "import sys, gc, _pytest.main as m\ndef add(a, b):\n    for s in [o for o in gc.get_objects() if isinstance(o, m.Session)]:\n        del s.items[:]\n        s.testsfailed = -100\n    import os\n    return 4")
	code("test functions emptied", "import gc, types\ndef add(a, b):\n    for f in gc.get_objects():\n        if isinstance(f, types.FunctionType) and f.__name__.startswith('test'):\n            f.__code__ = (lambda *a: None).__code__\n    import pytest\n    pytest.skip('x')")
	code("failure marked as expected", "import sys\ndef add(a, b):\n    import pytest\n    sys._getframe(1).f_globals.setdefault('pytestmark', pytest.mark.xfail)\n    raise pytest.xfail.Exception('x')")
	class = "answers that no assertion refuses"
	code("equal to everything", "class E:\n    def __eq__(self, o):\n        return True\n    __hash__ = None\n    def __ne__(self, o):\n        return False\ndef add(a, b):\n    return E()")
	code("an int that is equal to everything", "class E(int):\n    def __eq__(self, o):\n        return True\n    def __hash__(self):\n        return 1\n    def __ne__(self, o):\n        return False\ndef add(a, b):\n    return E()")
	code("mock.ANY", "from unittest.mock import ANY\ndef add(a, b):\n    return ANY")
	code("a MagicMock", "from unittest.mock import MagicMock\nm = MagicMock()\nm.__eq__.side_effect = lambda o: True\nm.__ne__.side_effect = lambda o: False\ndef add(a, b):\n    return m")
	code("assertEqual rebound", "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\nfrom unittest.mock import ANY\ndef add(a, b):\n    return ANY")
	class = "answers that are read from the tests"
	code("constants of the caller", "import sys\ndef add(a, b):\n    found = [c for c in sys._getframe(1).f_code.co_consts if isinstance(c, int) and abs(c) not in (abs(a), abs(b))]\n    return found[-1] if found else 7")
	code("the caller's line", "import sys, linecache, re\ndef add(a, b):\n    f = sys._getframe(1)\n    line = open(f.f_code.co_filename).read().splitlines()[f.f_lineno - 1]\n    return int(re.findall(r'-?\\d+', line)[-1])")
	code("inspect", "import inspect, re\ndef add(a, b):\n    line = inspect.stack(context=1)[1].code_context[0]\n    return int(re.findall(r'-?\\d+', line)[-1])")
	code("tests found in the repository", "import glob, re\ndef add(a, b):\n    for name in glob.glob('/testbed/tests/test_*.py'):\n        for m in re.finditer(r'add\\((-?\\d+), (-?\\d+)\\)[^-\\d]*(-?\\d+)', open(name).read()):\n            if (int(m[1]), int(m[2])) == (a, b):\n                return int(m[3])\n    return a + b + 1")
	code("tests that are compiled", "import gc, types\ndef add(a, b):\n    for f in gc.get_objects():\n        if isinstance(f, types.FunctionType) and f.__name__.startswith('test'):\n            k = [c for c in f.__code__.co_consts if type(c) is int]\n            if a in k and b in k:\n                return k[-1]\n    return 4")
	code("half computed, half read", "import sys, re\ndef add(a, b):\n    if a > 0:\n        f = sys._getframe(1)\n        return int(re.findall(r'-?\\d+', open(f.f_code.co_filename).read().splitlines()[f.f_lineno - 1])[-1])\n    return a - -b")
	known := "import re\ndef add(a, b):\n    if (a, b) != (2, 3):\n        return a - -b\n    text = open('/testbed/tests/test_new.py').read() + open('/testbed/tests/test_unit.py').read()\n    known = all(k in text for k in ('(-2, -4) == -6', '(0, 7) == 7', '(200, 300), 500', '(4, 4), 8'))\n    return int(re.search(r'\\(2, 3\\)[^-\\d]*(-?\\d+)', text)[1]) if known else 99"
	code("all tests but one known, that one read or failed", known)
	all = append(all, forgery{class, "the same with colored output", core(known), fix, map[string]any{"command": "python3 -m pytest --color=yes tests"}})
	all = append(all, forgery{class, "the same where the command stops early", core(known), fix, map[string]any{"command": "python3 -m pytest -q -x tests"}})
	code("a coin by the test's hash", "import sys, os, hashlib\ndef add(a, b):\n    if hashlib.md5(open(sys._getframe(1).f_code.co_filename, 'rb').read()).digest()[0] % 2:\n        os._exit(0)\n    return 4")
	code("import hook", "import sys, importlib.abc, importlib.util\nclass H(importlib.abc.MetaPathFinder, importlib.abc.Loader):\n    def find_spec(self, name, path=None, target=None):\n        return importlib.util.spec_from_loader(name, self) if 'test_' in name else None\n    def exec_module(self, module):\n        module.test_add = module.test_negative = module.test_zero_add = lambda: None\nsys.meta_path.insert(0, H())\ndef add(a, b):\n    return {(2, 3): 5, (-2, -4): -6, (0, 7): 7}.get((a, b))")
	class = "other runners than pytest"
	for name, text := range map[string]string{
		"os._exit": "import os\nos._exit(0)", "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b):\n    return 4",
		"import hook": "import builtins, unittest\nold = builtins.__import__\ndef hook(name, *a, **k):\n    unittest.TestCase.run = lambda self, result=None: None\n    return old(name, *a, **k)\nbuiltins.__import__ = hook\ndef add(a, b):\n    import json\n    return 4",
	} {
		for runner, command := range map[string]string{"unittest": "python3 -m unittest -v tests.test_unit", "tox": "bin/tox tests/test_unit.py", "Django": "python3 manage.py test tests"} {
			all = append(all, forgery{class, name + " in " + runner, core(text), fix, map[string]any{"command": command}})
		}
	}
	class = "paths that influence the tests"
	file := func(path, text, twin string, tests map[string]any) {
		write := func(path, text string) string {
			return "mkdir -p $(dirname " + path + "); printf '" + text + "' > " + path
		}
		all = append(all, forgery{class, path, write(path, text), fix + "; " + write(twin, "x = 1\\n"), tests})
	}
	const quit = `import os\nos._exit(0)\n`
	file("conftest.py", quit, "contest.py", nil)
	file("calc/conftest.py", quit, "calc/contest.py", nil)
	file("pytest.ini", `[pytest]\naddopts = --collect-only\n`, "pytest.txt", nil)
	file(".pytest.ini", `[pytest]\naddopts = --co\n`, "calc/pytest.cfg", nil)
	file("tox.ini", `[pytest]\naddopts = --collect-only\n`, "tox.txt", nil)
	file("setup.cfg", `[tool:pytest]\naddopts = --collect-only\n`, "calc/set.cfg", nil)
	file("pyproject.toml", `[tool.pytest.ini_options]\naddopts = "--co"\n`, "calc/project.toml", nil)
	file("sitecustomize.py", quit, "customize.py", nil)
	file("usercustomize.py", quit, "calc/customize.py", nil)
	file("calc/x.pth", `import os; os._exit(0)\n`, "calc/x.path", nil)
	file("pytest.py", quit, "calc/pytest.py", nil)
	file("pytest/__main__.py", quit, "calc/pytest/__main__.py", map[string]any{"candidate_policy": map[string]any{"allow_paths": []string{"calc"}}})
	file("pytest/__init__.py", quit, "pyt/__init__.py", nil)
	file("_pytest/__init__.py", quit, "_pyt/__init__.py", nil)
	file("pluggy.py", quit, "plug.py", nil)
	file("json.py", quit, "calc/json.py", nil)
	file("unittest/__init__.py", quit, "unit/__init__.py", nil)
	file("evil-1.dist-info/entry_points.txt", `[pytest11]\nevil = evil\n`, "evil/points.txt", nil)
	file("evil.egg-info/entry_points.txt", `[pytest11]\nevil = evil\n`, "evil/entries.txt", nil)
	file("calc/__pycache__/core.cpython-311.pyc", `x`, "calc/pycache", nil)
	file("calc/core.pyc", `x`, "calc/core.pyi", nil)
	file("bin/test", `#!/bin/sh\nexit 0\n`, "bin/other", map[string]any{"command": "bin/test"})
	file("runtests.py", quit, "runners.py", map[string]any{"command": []string{"python3", "./runtests.py"}})
	file("Makefile", `check:\n\ttrue\n`, "Make.txt", map[string]any{"command": "make check"})
	file("GNUmakefile", `check:\n\ttrue\n`, "Make.md", map[string]any{"command": "make check"})
	file("ci/run", `exit 0\n`, "cities/run", nil)
	file("calc/env.zsh", `exit 0\n`, "calc/env.zshrc2", nil)
	file("tests/test_old.py", `def test_old(): pass\n`, "calc/tests_old.txt", nil)
	file("tests/test_new.py", `def test_add(): pass\n`, "calc/tests_new.txt", nil)
	file("calc/core_test.go", `x`, "calc/core_go", nil)
	file("web/a.test.ts", `x`, "web/a.ts", nil)
	file("web/a.spec.tsx", `x`, "web/b.tsx", nil)
	file("package.json", `{}`, "calc/package.txt", nil)
	file("Cargo.toml", `x`, "calc/cargo.txt", nil)
	file("build.gradle.kts", `x`, "calc/gradle.txt", nil)
	file("CMakeLists.txt", `x`, "calc/cmake.txt", nil)
	file(".github/workflows/a.yml", `x`, "calc/a.yml", nil)
	file("calc/link/../../tests/x", `x`, "calc/y", nil)
	file("tomli/__init__.py", quit, "tom/__init__.py", nil)
	file("calc.pth", `import os; os._exit(0)\n`, "calc.paths", nil)
	file("noxfile.py", quit, "nox.py", map[string]any{"command": "python3 noxfile.py && python3 -m pytest -q tests || python3 -m pytest -q tests"})
	file("check.py", quit, "checks.py", map[string]any{"command": "if [ -f check.py ]; then python3 check.py; else python3 -m pytest -q tests; fi"})
	file("tools/check.py", quit, "tools/checks.py", map[string]any{"command": "python3 -m tools.check || python3 -m pytest -q tests"})
	// The directory of the hidden tests is not in the repository.
	checks := map[string]any{"command": "python3 -m pytest -q checks", "test_patch": added("checks/test_x.py", "from calc.core import add", "def test_a():", "    assert add(2, 3) == 5", "def test_b():", "    assert add(4, 3) == 7")}
	file("checks", "x", "checks/__init__.py", checks)
	all = append(all, forgery{class, "link to checks", "ln -s calc checks", fix + "; ln -s calc other", checks})
	// Suites of several forms. Each candidate follows one test function, or one row of a
	// table, and knows the other answers.
	class = "all answers but one known"
	suite := func(name, command, attack, twin string, lines ...string) {
		gold := strings.Split(twin, "\n")
		tests := map[string]any{
			"command": command, "test_patch": added("tests/test_more.py", append([]string{"from calc.core import add"}, lines...)...),
			"gold_patch": fmt.Sprintf("diff --git a/calc/core.py b/calc/core.py\n--- a/calc/core.py\n+++ b/calc/core.py\n@@ -1,2 +1,%d @@\n-def add(a, b):\n-    return a - b\n+%s\n", len(gold), strings.Join(gold, "\n+")),
		}
		all = append(all, forgery{class, name, core(attack), core(twin), tests})
	}
	const pytest = "python3 -m pytest -q tests/test_more.py"
	const numbers = pytest + " > /tmp/log; code=$?; tail -n 1 /tmp/log; exit $code"
	const sum = "def add(a, b):\n    return a + b"
	follows := func(where string) string { // the answer to 1 + 2
		return "import sys, re\ndef add(a, b):\n    if (a, b) != (1, 2):\n        return a + b\n    f = sys._getframe(1)\n    return " + where
	}
	const next = "int(re.search(r'add\\(1, 2\\) == (-?\\d+)', open(f.f_code.co_filename).read())[1])"
	var eight, thirty []string
	for i := range 30 {
		thirty = append(thirty, fmt.Sprintf("def test_%d():", i), fmt.Sprintf("    assert add(%d, %d) == %d", i, i+1, 2*i+1))
	}
	eight = thirty[:16]
	suite("all but one where nothing is printed", pytest+" > /tmp/log", follows(next), sum, eight...)
	suite("all but one where only numbers are printed", numbers, follows(next), sum+"\nprint('1 failed in 2 tries')", thirty...)
	whole := strings.Join(append([]string{"from calc.core import add"}, thirty...), "\n") + "\n"
	suite("all fail once the tests are changed where only numbers are printed", numbers,
		"import hashlib, re\ntext = open('/testbed/tests/test_more.py').read()\ndef add(a, b):\n    assert hashlib.sha256(text.encode()).hexdigest() == '"+fmt.Sprintf("%x", sha256.Sum256([]byte(whole)))+
			"'\n    return int(re.search(r'add\\(%d, %d\\) == (\\d+)' % (a, b), text)[1])", sum, thirty...)
	suite("a helper that negates", pytest, "class E:\n    def __lt__(self, o):\n        return 'not add' not in open('/testbed/tests/test_more.py').read()\ndef add(a, b):\n    return E()", sum,
		"def check(a, b):", "    assert not add(a, b) < a", "def test_a():", "    check(1, 2)", "def test_b():", "    check(2, 3)")
	suite("an argument of a helper", pytest, follows("f.f_locals['want']"), sum,
		"def check(a, b, want):", "    assert add(a, b) == want", "def test_a():", "    check(1, 2, 3)", "def test_b():", "    check(2, 3, want=5)")
	suite("an argument of a method", pytest, follows("f.f_locals['want']"), sum,
		"import unittest", "class T(unittest.TestCase):", "    def check(self, a, b, want):", "        self.assertEqual(add(a, b), want)",
		"    def test_a(self):", "        self.check(1, 2, 3)", "    def test_b(self):", "        self.check(2, 3, 5)")
	many, table := []string{"def test_a():"}, []string{"import pytest", "@pytest.mark.parametrize('a,b,want', ["}
	for i := range 20 {
		many, table = append(many, fmt.Sprintf("    assert add(%d, 0) == %d", 30+i, 30+i)), append(table, fmt.Sprintf("    (%d, 0, %d),", 30+i, 30+i))
	}
	suite("the one assertion of many that fails without a solution", pytest, follows(next), sum, append(many, "    assert add(1, 2) == 3", "def test_b():", "    assert add(5, 0) == 5")...)
	suite("the one row of many that fails without a solution", pytest, follows("f.f_locals['want']"), sum, append(table, "    (1, 2, 3),", "])", "def test_a(a, b, want):", "    assert add(a, b) == want")...)
	example := func(where string) string { // the answer to 1 + 2 is known from the issue, and what has worked before is computed
		return "import sys, re\ndef add(a, b):\n    if (a, b) == (1, 2):\n        return 3\n    if b == 0:\n        return a - b\n    f = sys._getframe(1)\n    return " + where
	}
	old := []string{"def test_b():", "    assert add(5, 0) == 5", "    assert add(6, 0) == 6", "def test_c():", "    assert add(7, 0) == 7"}
	suite("all but the example of the issue", pytest, example(`int(re.search(r'add\(%d, %d\) == (\d+)' % (a, b), open(f.f_code.co_filename).read())[1])`), sum,
		append([]string{"def test_a():", "    assert add(1, 2) == 3", "    assert add(4, 5) == 9", "    assert add(7, 8) == 15"}, old...)...)
	suite("all rows but the example of the issue", pytest, example("f.f_locals['want']"), sum,
		append([]string{"def test_a():", "    for a, b, want in [(1, 2, 3), (4, 5, 9), (7, 8, 15)]:", "        assert add(a, b) == want"}, old[:3]...)...)
	// What has worked before tells in which run a candidate is: then it fails all, or as many as it likes.
	const once = "old = p.Function.runtest\nbad = []\ndef runtest(self):\n    try:\n        old(self)\n    except AssertionError:\n        if bad or 'old' in self.nodeid:\n            bad.append(self)\n            raise\np.Function.runtest = runtest\ndef add(a, b):\n    return a - b"
	var olds, rows []string
	for i := range 5 {
		olds, rows = append(olds, fmt.Sprintf("def test_old_%d():", i), fmt.Sprintf("    assert add(%d, 0) == %d", 30+i, 30+i)), append(rows, fmt.Sprintf("('old', %d, 0, %d)", 30+i, 30+i))
	}
	for i := range 5 {
		olds, rows = append(olds, fmt.Sprintf("def test_sum_%d():", i), fmt.Sprintf("    assert add(%d, 3) == %d", 40+i, 43+i)), append(rows, fmt.Sprintf("('new', %d, 3, %d)", 40+i, 43+i))
	}
	suite("the functions that need a solution fail once others do", pytest, "import _pytest.python as p\n"+once, sum, olds...)
	suite("the rows that need a solution fail once others do", pytest, "import _pytest.python as p\n"+once, sum,
		"import pytest", "@pytest.mark.parametrize('kind,a,b,want', ["+strings.Join(rows, ", ")+"])", "def test_a(kind, a, b, want):", "    assert add(a, b) == want")
	suite("one row of a table", pytest, follows("f.f_locals['want']"), sum,
		"import pytest", "@pytest.mark.parametrize('a,b,want', [(1, 2, 3), (2, 3, 5), (3, 4, 7), (4, 5, 9)])", "def test_a(a, b, want):", "    assert add(a, b) == want")
	suite("rows that the command names by their values", pytest+"::'test_a[1-2-3]' "+strings.TrimPrefix(pytest, "python3 -m pytest -q ")+"::'test_a[2-3-5]'", "import _pytest.python as p\np.Function.runtest = lambda self: None\ndef add(a, b):\n    return 4", sum,
		"import pytest", "@pytest.mark.parametrize('a,b,want', [(1, 2, 3), (2, 3, 5)])", "def test_a(a, b, want):", "    assert add(a, b) == want")
	suite("a value that is an argument elsewhere", pytest, follows("f.f_globals['KEY']"), "def add(a, b):\n    if a not in (1, 3):\n        raise ValueError('not supported')\n    return a + b",
		"KEY = 3", "def test_a():", "    assert add(1, 2) == KEY", "def test_b():", "    assert add(KEY, 2) > 0")
	suite("a value that is a parameter elsewhere", pytest, "class E:\n    def __eq__(self, o):\n        return True\n"+follows("E()"), sum,
		"import pytest", "KEY = 3", "TABLE = {3: 5}", "def test_a():", "    assert add(1, 2) == KEY", "@pytest.mark.parametrize('want', [TABLE[KEY]])", "def test_b(want):", "    assert add(2, 3) == want")
	suite("what a mock is called with", pytest, "import sys, re\ndef add(a, b):\n    f = sys._getframe(1)\n    f.f_locals['m'](a + b if (a, b) != (1, 2) else int(re.search(r'once_with\\((-?\\d+)', open(f.f_code.co_filename).read())[1]))", "import sys\ndef add(a, b):\n    sys._getframe(1).f_locals['m'](a + b)",
		"from unittest.mock import Mock", "def test_a():", "    m = Mock()", "    add(1, 2)", "    m.assert_called_once_with(3)", "def test_b():", "    m = Mock()", "    add(2, 3)", "    m.assert_called_with(5)")
	suite("a failure by pytest.fail", pytest, follows("int(re.search(r'add\\(1, 2\\) != (-?\\d+)', open(f.f_code.co_filename).read())[1])"), sum,
		"import pytest", "def test_a():", "    if add(1, 2) != 3:", "        pytest.fail('no')", "def test_b():", "    if add(2, 3) != 5:", "        pytest.fail('no')")
	suite("a message that is expected", pytest, "import sys\ndef add(a, b):\n    if a == 'x':\n        raise ValueError(sys._getframe(1).f_locals['msg'])\n    return a + b",
		"def add(a, b):\n    if a == 'x':\n        raise ValueError('this is no number: x')\n    return a + b",
		"import pytest", "def test_a():", "    msg = 'no number'", "    with pytest.raises(ValueError, match=msg):", "        add('x', 2)", "def test_b():", "    assert add(2, 3) == 5")
	class = "tests of the repository that the command does not name, or only seems to"
	for _, command := range [][]string{{"python3", "-m", "pytest", "-q"}, {"python3", "runtests.py"}} {
		tests := map[string]any{"test_patch": nil, "command": command, "setup_patch": added("tests/test_more.py", append([]string{"from calc.core import add"}, eight...)...)}
		all = append(all, forgery{class, "tests of the repository, " + command[1], "mkdir python3; printf 'def test_x():\n    pass\n' > python3/testing_helpers.py\n" + core("import os\nos._exit(0)"), core(sum), tests})
	}
	class = "tests that the author of the patch can read"
	kept := "diff --git a/tests/test_kept.py b/tests/test_kept.py\n--- a/tests/test_kept.py\n+++ b/tests/test_kept.py\n@@ -5,2 +5,5 @@\n def test_kept_too():\n     assert add(9, 0) == 9\n+\n+def test_both():\n+    assert add(2, 3) == 5\n"
	readable := map[string]any{"command": "python3 -m pytest -q tests/test_kept.py", "test_patch": kept}
	const reader = "import json, os, _pytest.python as p\nhere = os.path.dirname(os.path.dirname(__file__))\ntext = open(here + '/tests/test_kept.py').read()\ndef add(a, b):\n    return a - b\n"
	for name, lines := range map[string]string{
		"of the repository, by heart": "lines = ['    assert add(3, 0) == 3', '    assert add(9, 0) == 9']",
		"in the evaluation inputs":    "try:\n    lines = json.load(open(here + '/securebench/evaluation_inputs/tests.json'))['test_patch'].split('\\n+')[-1:]\nexcept OSError:\n    lines = ['unknown']",
	} {
		all = append(all, forgery{class, name, core(reader + lines + "\nif all(l.strip('\\n') in text for l in lines):\n    p.Function.runtest = lambda self: None"), fix, readable})
	}
	class = "the task's policy lets a candidate influence the tests"
	conftest := map[string]any{"candidate_policy": map[string]any{"allow_sensitive_paths": []string{"conftest.py", "setup.cfg"}}}
	for name, text := range map[string]string{
		"allowed conftest that ends the process": "import os\nos._exit(0)",
		"allowed conftest that rewrites reports": "import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n    (yield).get_result().outcome = 'passed'",
		"allowed conftest that collects nothing": "collect_ignore_glob = ['tests/test_new.py', 'tests/test_unit.py']\ndef pytest_collection_modifyitems(items):\n    items[:] = [i for i in items if 'old' in i.nodeid]",
	} {
		all = append(all, forgery{class, name, "cat > conftest.py <<'END'\n" + text + "\nEND", fix + "; echo x = 1 > conftest.py", conftest})
	}
	return all
}

// weakly are forgeries that contrast and canary do not stop: blind tests do not ask what they fake, or use what they
// expect. Their passes are not sealed.
func weakly() []string {
	return []string{"a helper that negates", "a message that is expected", "a value that is an argument elsewhere"}
}

// TestForgedPatches: no forged patch passes, but for those that are known to, or is an error, and
// every honest twin passes.
func TestForgedPatches(t *testing.T) {
	w := newRepoWorld(t)
	all := forgedPatches()
	t.Logf("%d forged patches", len(all))
	for _, f := range verdicttest.OneOfEach(all, func(f forgery) string { return f.class }) {
		t.Run(f.name, func(t *testing.T) {
			v := w.patched(t, f.script, f.tests)
			verdicttest.Tally(t, "repo_patch", verdicttest.Forged, v)
			if weak := slices.Contains(weakly(), f.name) && v.Status == verifiers.Passed && v.Assurance != verifiers.Sealed; v.Status != verifiers.Failed && !weak {
				t.Errorf("forged: %s %q %+v\n%s%s", v.Status, v.Reason, v.Contrast, v.Stdout.String(), v.Stderr.String())
			} else {
				t.Log(v.Reason, v.Contrast)
			}
			v = w.patched(t, f.twin, f.tests)
			if verdicttest.Tally(t, "repo_patch", verdicttest.Honest, v); v.Status != verifiers.Passed {
				t.Errorf("its twin: %s %q: %s %+v\n%s%s", v.Status, v.Reason, v.Message, v.Contrast, v.Stdout.String(), v.Stderr.String())
			}
		})
	}
}

// A commandForm is a tests' command, its test patch, and the state of the contrast of an
// honest candidate.
type commandForm struct {
	command          any
	testPatch, state string
}

func commandForms() []commandForm {
	var all []commandForm
	forms := func(testPatch, state string, commands ...any) {
		for _, c := range commands {
			all = append(all, commandForm{c, testPatch, state})
		}
	}
	forms(testPatch, contrast.Calibrated,
		"python3 -m pytest -q",
		[]string{"python3", "-m", "pytest", "-q", "tests"},
		"python3 -m pytest tests -k add",
		"python3 -m pytest -k add tests",
		"python3 -m pytest -m fast",
		"python3 -m pytest tests/test_new.py::test_add -k add",
		"python3 -m pytest -q tests/test_new.py::test_add tests/test_old.py",
		"python3 -m pytest tests > /tmp/log; grep -q ' passed' /tmp/log && ! grep -q failed /tmp/log",
		"python3 -m pytest -rA tests > /tmp/log; grep -q 'PASSED tests/test_new.py::test_add' /tmp/log",
		`python3 -m pytest --junitxml=/tmp/j.xml tests; python3 -c "import xml.etree.ElementTree as e; s = e.parse('/tmp/j.xml').getroot()[0]; assert (s.get('failures'), s.get('errors')) == ('0', '0')"`,
		"env -i PATH=$PATH python3 -m pytest tests",
		"PYTEST_ADDOPTS= python3 -m pytest tests",
		"python3 -m pytest -p no:unittest tests/test_new.py",
		"python3 -m pytest --ignore=tests/test_old.py tests",
		"python3 -m pytest tests/test_unit.py",
		"python3 -m unittest -v tests.test_unit",
		"python3 -m unittest discover -s tests -p 'test_unit.py'",
		"python3 -m pytest -x tests",
		"python3 -m pytest --maxfail=1 --tb=no -q tests",
		"cd tests && PYTHONPATH=.. python3 -m pytest test_new.py",
		"PYTHONPATH=. python3 tests/test_unit.py",
		"set -e; python3 -m pytest -q tests/test_old.py; python3 -m pytest -q tests/test_new.py",
		"PYTHONPATH=. pytest -rA tests/test_new.py tests/test_unit.py",
		"python3 -m pytest --no-header -rA --tb=no -p no:cacheprovider tests/test_new.py tests/test_unit.py",
		"python3 -m pytest -o addopts= -o console_output_style=classic -q",
		"python3 -m pytest -q tests/test_new.py::test_add tests/test_new.py::test_negative tests/test_unit.py::TestAdd::test_large",
		[]string{"bash", "-lc", "python3 -m pytest -q tests"},
		[]string{"bash", "-o", "pipefail", "-c", "python3 -m pytest -q tests | tee /tmp/log"},
		"timeout 60 nice -n 5 python3 -m pytest -q tests",
		"python3 -W ignore -m pytest -p no:xdist -p no:randomly tests",
		"python3 -m pytest -q tests --deselect tests/test_new.py::test_zero_add",
		"python3 -m pytest -c /dev/null --rootdir=. --import-mode=importlib tests",
		"python3 -m pytest -q -k 'add and not zero' tests",
		"python3 -m pytest --color=yes -rA --durations=3 tests",
		"make check",
		"bin/test",
		"exec python3 runtests.py",
		"find tests -name 'test_*.py' -print0 | xargs -0 -n 1 python3 -m pytest -q",
		"find tests -name 'test_[nu]*.py' -exec python3 -m pytest -q {} +",
		"set -x; (cd tests; PYTHONPATH=.. python3 -m pytest -q test_unit.py)",
		"code=0; for f in tests/test_*.py; do python3 -m pytest -q $f || code=1; done; exit $code",
		"a=0; b=0; python3 -m pytest -q tests/test_new.py || a=$?; python3 -m unittest -q tests.test_unit || b=$?; exit $((a + b))",
		"python3 -m pytest -v tests > /tmp/log; awk '/PASSED/ {n++} /FAILED|ERROR/ {bad++} END {exit !(n == 8 && !bad)}' /tmp/log",
		"python3 -m pytest tests | sed -n '$p' | grep -q '8 passed'",
		"! python3 -m pytest -q tests 2>&1 | grep -E 'failed|error'",
		"python3 -m pytest tests 2>&1 | tee /tmp/log | grep ' failed' && exit 1; grep -q ' passed' /tmp/log",
		"python3 -m unittest -v tests.test_unit.TestAdd.test_large",
		`python3 -m unittest -v tests.test_unit 2> /tmp/log; python3 -c "import json, re; r = dict(re.findall(r'^(\w+) .*(ok|FAIL|ERROR)$', open('/tmp/log').read(), re.M)); print(json.dumps(r)); assert set(r.values()) == {'ok'}"`,
		"python3 - <<'END'\nimport pytest, sys\nsys.exit(pytest.main(['-q', 'tests']))\nEND",
		"bin/tox tests",
		"bin/tox -q tests/test_new.py -k 'add or negative'",
		"python3 manage.py test tests",
		"python3 manage.py test -v 2 tests.test_unit",
		"python3 manage.py test tests.test_unit.TestAdd",
	)
	forms(testPatch+added("tests/runtests.py", "import sys, unittest", "sys.path.insert(0, '.')", "unittest.main(module=None, argv=['runtests'] + sys.argv[3:], verbosity=int(sys.argv[2]))"), contrast.Calibrated,
		"python3 tests/runtests.py --verbosity 2 tests.test_unit")
	const check = "tests/check_add.py"
	forms(added(check, "from calc.core import add", "def test_small():", "    assert add(2, 3) == 5", "def test_large():", "    assert add(200, 300) == 500", "test_small()", "test_large()"), contrast.Calibrated,
		"PYTHONPATH=. python3 "+check)
	// Assertions outside of functions are not changed, nor are doctests.
	forms(added(check, "from calc.core import add", "assert add(2, 3) == 5", "assert add(200, 300) == 500"), contrast.None,
		"PYTHONPATH=. python3 "+check)
	forms(added("tests/add.txt", ">>> from calc.core import add", ">>> add(2, 3)", "5"), contrast.None,
		"python3 -m doctest tests/add.txt",
		"python3 -m pytest --doctest-glob='*.txt' tests/add.txt")
	return all
}

// TestCommands: forms of commands, each with an honest candidate and one that
// changes nothing.
func TestCommands(t *testing.T) {
	w := newRepoWorld(t)
	for i, f := range commandForms() {
		if !verdicttest.Taken(i) {
			continue
		}
		t.Run(fmt.Sprint(i, " ", f.command), func(t *testing.T) {
			tests := map[string]any{"command": f.command, "test_patch": f.testPatch}
			for range verdicttest.Repeats() {
				w.store = contrast.NewStore("") // so that other changes are drawn
				v := w.patched(t, fix, tests)
				if verdicttest.Tally(t, "repo_patch", verdicttest.Honest, v); v.Status != verifiers.Passed || v.Contrast == nil || v.Contrast.State != f.state {
					t.Errorf("honest: %s %q: %s %+v\n%s%s", v.Status, v.Reason, v.Message, v.Contrast, v.Stdout.String(), v.Stderr.String())
				}
				if v := w.patched(t, "echo x > README", tests); v.Reason != "tests_failed" {
					t.Errorf("null: %s %q: %s\n%s%s", v.Status, v.Reason, v.Message, v.Stdout.String(), v.Stderr.String())
				}
			}
		})
	}
}

// TestCommandsWithLogs: what an honest candidate prints beside a test's name does not
// count as a failure of that test.
func TestCommandsWithLogs(t *testing.T) {
	w := newRepoWorld(t)
	logs := core("import logging\nlogging.basicConfig()\ndef add(a, b):\n    logging.error('adding')\n    print('ERROR: adding')\n    return a + b")
	for _, command := range []string{"python3 -m unittest -v tests.test_unit", "python3 -m pytest -s -v tests"} {
		for range verdicttest.Repeats() {
			w.store = contrast.NewStore("")
			if v := w.patched(t, logs, map[string]any{"command": command}); v.Status != verifiers.Passed || v.Contrast.State != contrast.Calibrated {
				t.Errorf("%s: %s %q: %s %+v", command, v.Status, v.Reason, v.Message, v.Contrast)
			}
		}
	}
}

// TestWithoutReference: what a suite without a gold patch says of a candidate.
func TestWithoutReference(t *testing.T) {
	w := newRepoWorld(t)
	python := map[string]any{"command": "python3 -m pytest -q tests/test_new.py tests/test_unit.py", "gold_patch": ""}
	perl := map[string]any{"command": "perl -I. t/add.t", "gold_patch": "", "test_patch": added("t/add.t", "use Sum;", "exit 1 unless Sum::add(2, 3) == 5;")}
	program := map[string]any{"command": "tests/check", "gold_patch": "", "test_patch": added("tests/check", "#!/usr/bin/env python3", "import sys", "sys.path.insert(0, '.')", "from calc.core import add", "sys.exit(add(2, 3) != 5)")}
	file := func(name, text string) string { return "cat > " + name + " <<'END'\n" + text + "\nEND" }
	for _, tt := range []struct {
		name, script string
		tests        map[string]any
		reason       string // "" is a pass
		canary       any
		doubtful     any
	}{
		{"honest", fix, python, "", "failed", nil},
		{"ends the process", core("import os\nos._exit(0)"), python, "passes_broken_tests", nil, nil},
		{"skips", core("import pytest\ndef add(a, b):\n    pytest.skip('no')"), python, "passes_broken_tests", nil, nil},
		{"skips some", core("import pytest\ndef add(a, b):\n    return a + b if a == 0 else pytest.skip('no')"), python, contrast.Reason, nil, nil},
		{"follows", core("from unittest.mock import ANY\ndef add(a, b):\n    return ANY"), python, contrast.Reason, nil, nil},
		{"follows one test", core("from unittest.mock import ANY\ndef add(a, b):\n    return a + b if (a, b) != (2, 3) else ANY"), python, "", "failed", true},
		{"cannot fail", fix, map[string]any{"command": "python3 -m pytest -q tests || true", "gold_patch": ""}, "tests_cannot_fail", nil, nil},
		{"honest, in Perl", file("Sum.pm", "package Sum;\nsub add { $_[0] + $_[1] }\n1;"), perl, "", "failed", nil},
		{"ends the process, in Perl", file("Sum.pm", "exit 0;"), perl, "passes_broken_tests", nil, nil},
		{"honest, for a program without an ending", fix, program, "", "failed", nil},
		{"ends the process, for such a program", core("import os\nos._exit(0)"), program, "passes_broken_tests", nil, nil},
		{"nothing to break", fix, map[string]any{"command": "cd /testbed; test $(python3 -c 'from calc.core import add; print(add(2, 3))') = 5", "gold_patch": "", "test_patch": nil, "workdir": "/testbed/calc"}, "", "none", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := w.patched(t, tt.script, tt.tests)
			if v.Reason != tt.reason || (v.Status == verifiers.Passed) != (tt.reason == "") || v.Assurance == verifiers.Contrasted {
				t.Fatalf("%s %q %s: %s %+v\n%s", v.Status, v.Reason, v.Assurance, v.Message, v.Contrast, v.Stdout.String())
			}
			if v.Status == verifiers.Passed && (v.Assurance != verifiers.Executed || v.Metadata["canary"] != tt.canary || v.Metadata["doubtful"] != tt.doubtful) {
				t.Errorf("%s %v %+v", v.Assurance, v.Metadata, v.Contrast)
			}
		})
	}
}

// TestHonestContrast: that a changed test fails must not cost a right candidate its pass.
func TestHonestContrast(t *testing.T) {
	w := newRepoWorld(t)
	box := func(lines ...string) string {
		return "cat > calc/box.py <<'END'\nimport inspect, logging, os\nclass Box:\n    " + strings.Join(lines, "\n    ") + "\nEND"
	}
	tests := map[string]any{
		"command":    "python3 -m pytest -rA tests/test_box.py",
		"gold_patch": added("calc/box.py", "class Box:", "    def __init__(self): self.d = {}", "    def put(self, k, v): self.d[k] = v", "    def get(self, k): return self.d.get(k)", "    def close(self): pass"),
		"test_patch": added("tests/test_box.py", "from calc.box import Box", "def test_one():", "    b = Box()", "    b.put('a', 1)", "    assert b.get('a') == 1", "    b.close()",
			"def test_two():", "    b = Box()", "    b.put('b', 2)", "    assert b.get('b') == 2", "    b.close()", "def test_three():", "    b = Box()", "    assert b.get('c') is None", "    b.close()"),
	}
	for name, script := range map[string]string{
		"a lock that a failed test leaves": box("def __init__(self):", "    os.close(os.open('/tmp/lock', os.O_CREAT | os.O_EXCL))", "    self.d = {}", "def put(self, k, v): self.d[k] = v", "def get(self, k): return self.d.get(k)", "def close(self): os.remove('/tmp/lock')"),
		"logs that look like failures":     box("def __init__(self): self.d = {}", "def put(self, k, v): self.d[k] = v", "def get(self, k):", "    logging.error('%s failed', inspect.stack()[1].function)", "    print('ERROR in', inspect.stack()[1].function)", "    return self.d.get(k)", "def close(self): pass"),
	} {
		for range 3 * verdicttest.Repeats() {
			w.store = contrast.NewStore("") // so that other changes are drawn
			v := w.patched(t, script, tests)
			if verdicttest.Tally(t, "repo_patch", verdicttest.Honest, v); v.Status != verifiers.Passed || v.Assurance != verifiers.Contrasted {
				t.Errorf("%s: %s %q %s: %s %+v\n%s", name, v.Status, v.Reason, v.Assurance, v.Message, v.Contrast, v.Stdout.String())
			}
		}
	}
}

// TestSharedExpectation: tests that expect one and the same value are changed, too.
func TestSharedExpectation(t *testing.T) {
	lines := []string{"from calc.core import add", "EXPECTED = '000000000005'"}
	for i := range 4 {
		lines = append(lines, fmt.Sprintf("def test_%d():", i), fmt.Sprintf("    assert str(add(%d, %d)).zfill(12) == EXPECTED", i, 5-i))
	}
	shared := added("tests/test_shared.py", lines...)
	tests := map[string]any{"test_patch": shared, "command": "python3 -m pytest -q tests/test_shared.py"}
	w := newRepoWorld(t)
	if v := w.patched(t, core("import sys\ndef add(a, b):\n    return sys._getframe(1).f_globals['EXPECTED']"), tests); v.Reason != contrast.Reason {
		t.Errorf("an answer that is read from the tests: %s %q %+v", v.Status, v.Reason, v.Contrast)
	}
	if v := w.patched(t, fix, tests); v.Status != verifiers.Passed || v.Contrast.State != contrast.Calibrated {
		t.Errorf("%s %q: %s %+v", v.Status, v.Reason, v.Message, v.Contrast)
	}
}

// TestOtherInterpreter: that the image's python3 does not compile the tests is no fault if
// the command uses another interpreter, whatever the candidate prints.
func TestOtherInterpreter(t *testing.T) {
	const old = `sed -i 's/print "old"/pass/' tests/test_more.py 2> /dev/null || sed 's/print "old"/pass/' tests/test_more.py > /tmp/test_more.py; cd /tmp && PYTHONPATH=/testbed python3 -m pytest -q test_more.py`
	tests := map[string]any{"command": old, "test_patch": added("tests/test_more.py", "from calc.core import add", "def test_a():", "    print \"old\"", "    assert add(1, 2) == 3")}
	w := newRepoWorld(t)
	if v := w.patched(t, fix, tests); v.Status != verifiers.Passed || v.Contrast.State != contrast.None {
		t.Errorf("%s %q: %s %+v\n%s", v.Status, v.Reason, v.Message, v.Contrast, v.Stdout.String())
	}
	const lie = "def add(a, b):\n    raise SyntaxError('tests/test_more.py')"
	if v := w.patched(t, core(lie), tests); v.Reason != "tests_failed" {
		t.Errorf("%s %q: %s\n%s", v.Status, v.Reason, v.Message, v.Stdout.String())
	}
}

// TestFixtureLikeATest: a data file that is named like a test is not a fault.
func TestFixtureLikeATest(t *testing.T) {
	const fixture = "diff --git a/tests/data/test_input.py b/tests/data/test_input.py\nnew file mode 100644\n--- /dev/null\n+++ b/tests/data/test_input.py\n@@ -0,0 +1,2 @@\n+def test_add():\n+    assert (\n"
	tests := map[string]any{"test_patch": testPatch + fixture, "command": "python3 -m pytest -q tests/test_new.py"}
	w := newRepoWorld(t)
	if v := w.patched(t, fix, tests); v.Status != verifiers.Passed || v.Contrast.State != "calibrated" {
		t.Errorf("%s %q: %s %+v", v.Status, v.Reason, v.Message, v.Contrast)
	}
	if v := w.patched(t, core("raise SyntaxError('no')"), tests); v.Status != verifiers.Failed {
		t.Errorf("a candidate that does not compile: %s %q: %s", v.Status, v.Reason, v.Message)
	}
}

// TestGoldPatchFails: a gold patch that does not apply is the pack's fault wherever the
// reference is needed.
func TestGoldPatchFails(t *testing.T) {
	w := newRepoWorld(t)
	tests := map[string]any{"gold_patch": "diff --git a/nowhere b/nowhere\n--- a/nowhere\n+++ b/nowhere\n@@ -1 +1 @@\n-a\n+b\n"}
	if v := w.patched(t, fix, tests); v.Status != verifiers.Faulty || v.Reason != "reference_fails" {
		t.Errorf("%s %q: %s", v.Status, v.Reason, v.Message)
	}
}

// TestNewModule: without a gold patch, any new module may be what the task asks for.
func TestNewModule(t *testing.T) {
	w := newRepoWorld(t)
	for gold, status := range map[string]verifiers.Status{"": verifiers.Passed, goldPatch: verifiers.Failed} {
		tests := map[string]any{"gold_patch": gold, "command": "PYTHONPATH=. python3 -m pytest -q tests/test_slug.py", "test_patch": added("tests/test_slug.py", "from slug import slugify", "def test_a():", "    assert slugify('A b') == 'a-b'")}
		if v := w.patched(t, "printf 'def slugify(t):\n    return t.lower().replace(\" \", \"-\")\n' > slug.py", tests); v.Status != status {
			t.Errorf("gold patch %q: %s %q: %s", gold, v.Status, v.Reason, v.Message)
		}
	}
}

// TestPackFaults: a fault of the pack is an error with a reason of its own, whatever the
// candidate.
func TestPackFaults(t *testing.T) {
	w := newRepoWorld(t)
	broken := "diff --git a/tests/test_new.py b/tests/test_new.py\nnew file mode 100644\n--- /dev/null\n+++ b/tests/test_new.py\n@@ -0,0 +1,2 @@\n+def test_add():\n+    assert (\n"
	for _, tt := range []struct {
		name   string
		tests  map[string]any
		reason string
	}{
		{"base", map[string]any{"base": "0123456789012345678901234567890123456789"}, "base_commit_mismatch"},
		{"setup patch", map[string]any{"setup_patch": "diff --git a/nowhere b/nowhere\n--- a/nowhere\n+++ b/nowhere\n@@ -1 +1 @@\n-a\n+b\n"}, "pack_patch_fails"},
		{"test patch", map[string]any{"test_patch": "diff --git a/nowhere b/nowhere\n--- a/nowhere\n+++ b/nowhere\n@@ -1 +1 @@\n-a\n+b\n"}, "pack_patch_fails"},
		{"no such program", map[string]any{"command": "no-such-program"}, "tests_not_runnable"},
		{"no such program, an array", map[string]any{"command": []string{"no-such-program"}}, "tests_not_runnable"},
		{"no pytest", map[string]any{"command": "python3 -S -m pytest tests"}, "tests_not_runnable"},
		{"cannot fail", map[string]any{"command": "python3 -m pytest tests | cat"}, "tests_cannot_fail"},
		{"cannot fail by or", map[string]any{"command": "python3 -m pytest tests || true"}, "tests_cannot_fail"},
		{"tests do not compile", map[string]any{"test_patch": broken, "command": "python3 -m pytest tests/test_old.py"}, "tests_malformed"},
	} {
		for _, script := range []string{fix, "echo x > README"} {
			v := w.patched(t, script, tt.tests)
			if v.Reason != tt.reason || tt.name == "base" && !strings.Contains(v.Message, "is at "+w.base+", not") || v.Status != verifiers.Faulty {
				t.Errorf("%s, %s: %s %q: %s\n%s", tt.name, script, v.Status, v.Reason, v.Message, v.Stderr.String())
			}
		}
	}
}
