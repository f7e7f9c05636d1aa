package terminal_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/verdicttest"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/verifiers/terminal"
)

// leavings judges the workspace that a shell script makes on the host.
func (w terminalWorld) leavings(t *testing.T, store *contrast.Store, script string, eval map[string]any, reference bool) verifiers.Verdict {
	t.Helper()
	kept := filepath.Join(t.TempDir(), "kept")
	filetest.Write(t, kept, map[string]string{"data/asset.txt": "44\n"})
	must.Run(t, exec.Command("bash", "-c", `cd "$0" && { `+script+"\n}", kept))
	task, pack := w.task(t, eval)
	left := candidate.Candidate{Workspace: kept}
	digest, err := left.TreeDigest(context.Background(), 0)
	must.Do(t, err)
	left.Digest = digest
	v, err := terminal.Family().Verify(context.Background(), w.run, verifiers.Input{
		Task: task, Pack: pack, Candidate: left, Reference: reference, Image: w.image, Limits: runtime.DefaultLimits(), Left: w.left,
		Timeout: time.Minute, WorkspaceBytes: 32 << 20, OutputBytes: 1 << 20, Calibrations: store,
	})
	must.Do(t, err)
	return v
}

// newForgedWorld adds checkers of every form that run a program or import a module of
// the candidate.
func newForgedWorld(t *testing.T) terminalWorld {
	w := newTerminalWorld(t)
	const program = `import subprocess, sys
def run(*args):
    return subprocess.run([sys.executable, '/workspace/solve.py', *map(str, args)], capture_output=True, text=True, timeout=50).stdout.strip()
def test_two_three():
    assert run(2, 3) == '5'
def test_large():
    assert run(200, 300) == '500'
def test_negative():
    assert run(-4, -4) == '-8'
`
	const module = `import os, sys
sys.path.insert(0, os.getcwd())
from solve import add
def test_two_three():
    assert add(2, 3) == 5
def test_large():
    assert add(200, 300) == 500
def test_negative():
    assert add(-4, -4) == -8
`
	filetest.Write(t, w.dir, map[string]string{
		"hidden/program/test_outputs.py": program, "hidden/module/test_outputs.py": module,
		"hidden/program/test.sh": "#!/bin/bash\npython3 -m pytest /tests/test_outputs.py -rA\n",
		"hidden/module/test.sh":  "#!/bin/bash\npython3 -m pytest $TEST_DIR/test_outputs.py -rA\n",
		"hidden/closed/check.sh": "#!/bin/sh\ntest \"$(run-candidate python3 /workspace/solve.py 2 3)\" = \"$(cat /tests/want)\" && test \"$(cat /tests/want)\" = 5\n", "hidden/closed/want": "5\n",
		"hidden/open/check.sh": "#!/bin/bash\nexec 3< /tests/want\nread -r want <&3\ntest \"$(run-candidate python3 /workspace/solve.py 2 3)\" = \"$want\"\n", "hidden/open/want": "5\n",
		"hidden/log/check.sh":     "#!/bin/sh\npython3 solve.py 2 3 > /tmp/out 2>&1\necho 5 > /tmp/want\ncmp answer /tmp/want\n",
		"hidden/print/check.sh":   "#!/bin/sh\necho 5 | cmp - answer\n",
		"hidden/seed/conftest.py": "", "hidden/seed/test_outputs.py": program, "hidden/seed/data.json": "{}",
		"hidden/unit/check.py": "import json, subprocess, sys, unittest\nclass T(unittest.TestCase):\n    def test_sum(self):\n        out = subprocess.run([sys.executable, 'solve.py', '2', '3'], capture_output=True, text=True).stdout\n        self.assertEqual(json.loads(out), 5)\nif __name__ == \"__main__\":\n    unittest.main()\n",
	})
	return w
}

// seeded returns the eval of a command with hidden tests in the workspace.
func seeded(command any) map[string]any {
	return map[string]any{"checker": map[string]any{"command": command}, "test_files": map[string]any{"path": "seed", "mount": "securebench/evaluation_inputs/tests"}}
}

func sourced(source, path string) map[string]any {
	return map[string]any{"checker": map[string]any{"source": source, "path": path}}
}

// forgedCheckers returns the forms of eval that forged workspaces are tried on.
func forgedCheckers() map[string]map[string]any {
	return map[string]map[string]any{
		"program": sourced("script", "program/test.sh"), "module": sourced("script", "module/test.sh"),
		"pytest":    sourced("pytest", "program/test_outputs.py"),
		"directory": sourced("pytest", "program"),
		"closed":    {"checker": map[string]any{"source": "script", "path": "closed/check.sh", "run_candidate": true}},
		"open":      {"checker": map[string]any{"source": "script", "path": "open/check.sh", "run_candidate": true}},
		"silent":    seeded("pytest securebench/evaluation_inputs/tests/test_outputs.py > /tmp/log"),
		"log":       sourced("script", "log/check.sh"), "print": sourced("script", "print/check.sh"),
		"seed":       seeded("pytest -q securebench/evaluation_inputs/tests"),
		"seed -m":    seeded("python3 -m pytest -q securebench/evaluation_inputs/tests/test_outputs.py"),
		"seed json":  seeded(`python3 -c "import json, subprocess; assert json.loads(subprocess.check_output(['python3', 'solve.py', '2', '3'])) == 5"`),
		"seed here":  seeded("cd securebench/evaluation_inputs/tests && python3 -m pytest -q"),
		"unit":       {"checker": map[string]any{"command": "python3 securebench/evaluation_inputs/check.py"}, "test_files": map[string]any{"path": "unit/check.py", "mount": "securebench/evaluation_inputs/check.py"}},
		"unit m":     {"checker": map[string]any{"command": "python3 -m unittest discover -q -s securebench/evaluation_inputs -p check.py"}, "test_files": map[string]any{"path": "unit/check.py", "mount": "securebench/evaluation_inputs/check.py"}},
		"seed stdin": seeded("python3 - answer <<'END'\nimport json, sys\nsys.exit(0 if json.loads(open(sys.argv[1]).read()) == 5 else 1)\nEND"),
		"seed uc":    seeded(`python3 -uc "import json, sys; sys.exit(0 if json.loads(open(sys.argv[1]).read()) == 5 else 1)" answer`),
		"empty json": seeded(`python3 -c "import json, sys; sys.exit(0 if json.loads(open('answer').read()) == 5 else 1)"`),
	}
}

const (
	honestProgram = "printf 'import sys\\nif __name__ == \"__main__\":\\n    print(int(sys.argv[1]) + int(sys.argv[2]))\\ndef add(a, b):\\n    return a + b\\n' > solve.py; echo 5 > answer"
	nullProgram   = "printf 'print(4)\\ndef add(a, b):\\n    return 4\\n' > solve.py; echo 4 > answer"
)

// A forgery does not solve the task; its honest twin does, in a similar way.
type forgery struct {
	class              string // what it tries
	name, script, twin string
	tests              map[string]any
}

// forgedWorkspaces returns workspaces that try to influence a checker, for every checker that each could.
func forgedWorkspaces() []forgery {
	all, class := []forgery{}, ""
	on := func(name, script, twin string, checkers ...string) {
		for _, c := range checkers {
			all = append(all, forgery{class, name + ", " + c, nullProgram + "\n" + script, honestProgram + "\n" + twin, map[string]any{"checker": c}})
		}
	}
	write := func(path, text string) string {
		return "mkdir -p $(dirname " + path + "); printf '" + text + "' > " + path
	}
	const quit = `import os\nos._exit(0)\n`
	pythons := []string{"program", "pytest", "seed", "seed -m"}
	class = "files that influence pytest and Python"
	// The twin has the same file, which has no
	// effect.
	steers := func(path, text string, checkers ...string) {
		on(path, write(path, text), write(path, text), checkers...)
	}
	steers("pytest.py", quit, pythons...)
	steers("pytest/__main__.py", quit, "program", "seed -m", "seed here")
	steers("_pytest/__init__.py", quit, "program", "seed -m")
	steers("json.py", `def loads(x):\n    return 5\n`, "seed json", "empty json", "unit", "unit m")
	steers("json.py", quit, "seed stdin", "seed uc")
	steers("subprocess.py", `def check_output(*a):\n    return 5\n`, "seed json", "seed -m")
	steers("conftest.py", quit, append(pythons, "module", "directory", "seed here")...)
	steers("pytest.ini", `[pytest]\naddopts = --collect-only\n`, append(pythons, "directory")...)
	steers("pyproject.toml", `[tool.pytest.ini_options]\naddopts = "--collect-only"\n`, append(pythons, "module")...)
	steers("tox.ini", `[pytest]\naddopts = --collect-only\n`, "program", "seed", "seed -m")
	steers("setup.cfg", `[tool:pytest]\naddopts = --collect-only\n`, "seed", "seed -m")
	steers("sitecustomize.py", quit, "program", "seed -m", "seed json", "unit m")
	steers("usercustomize.py", quit, "program", "seed")
	steers("pluggy.py", quit, "program", "seed -m")
	steers("unittest/__init__.py", quit, "unit", "unit m")
	on("plug-in", write("evil-1.dist-info/entry_points.txt", `[pytest11]\nevil = evil\n`)+"; "+write("evil-1.dist-info/METADATA", `Name: evil\nVersion: 1\n`)+"; "+write("evil.py", quit),
		write("evil.py", quit), "program", "seed", "seed -m", "module")
	class = "links"
	link := func(name, target string, checkers ...string) {
		on("link to "+name, "ln -sf "+target+" answer", "rm -f answer; echo 5 > real; ln -sf real answer", checkers...)
	}
	link("stdin", "/dev/stdin", "print")
	link("stdout", "/dev/stdout", "print")
	link("descriptor 0", "/dev/fd/0", "print")
	link("proc", "/proc/self/fd/0", "print")
	link("urandom", "/dev/urandom", "print")
	link("what the checker writes", "/tmp/want", "log")
	link("shared memory", "/dev/shm/want", "log")
	link("the tests", "/tests/want", "closed")
	link("the logs", "/logs/x", "log")
	link("its own by .. and /", "../../../../dev/stdin", "print")
	on("link by a directory to stdin", "rm answer; ln -s /dev d; ln -s d/stdin answer", "true", "print")
	class = "programs that read the tests"
	program := func(name, text string, checkers ...string) {
		on(name, "cat > solve.py <<'END'\n"+text+"\nEND", "echo '# "+name+"' >> solve.py", checkers...)
	}
	program("reads the tests", "import sys, re, glob\nargs = ', '.join(sys.argv[1:3])\nfor name in glob.glob('/tests/*.py') + glob.glob('/workspace/securebench/evaluation_inputs/**/*.py', recursive=True):\n    m = re.search(r'\\(' + re.escape(args) + r'\\)\\s*==\\s*.?(-?\\d+)', open(name).read())\n    if m:\n        print(m[1])", "program", "pytest", "seed", "seed -m")
	program("reads the tests as another user", "import glob\nfor name in glob.glob('/tests/*') + ['/tests/want', '/tests/check.sh']:\n    try:\n        print(open(name).read().strip())\n    except OSError:\n        pass", "closed")
	program("reads what the checker has opened", "import os\nfor fd in range(3, 100):\n    try:\n        text = os.pread(fd, 99, 0).decode()\n        print(text if text == '5\\n' else 'none')\n        break\n    except OSError:\n        pass", "open")
	program("knows the unchanged tests by their age", "import os, re, sys, time\nstart = int(open('/proc/1/stat').read().rsplit(')', 1)[1].split()[19]) / os.sysconf('SC_CLK_TCK')\ntests = 'securebench/evaluation_inputs/tests/test_outputs.py'\nage = time.time() - float(open('/proc/uptime').read().split()[0]) + start - os.stat(tests).st_mtime\nif age > 0.5:\n    print(re.search(r'\\(%s\\) == .(-?\\d+)' % ', '.join(sys.argv[1:3]), open(tests).read())[1])", "silent")
	program("reads the memory of the checker", "import os, re\ntry:\n    for line in open(f'/proc/{os.getppid()}/maps'):\n        pass\n    with open(f'/proc/{os.getppid()}/mem', 'rb') as f:\n        print(5)\nexcept OSError:\n    print(0)", "closed")
	program("kills the checker", "import os, signal\ntry:\n    os.kill(os.getppid(), signal.SIGKILL)\nexcept OSError:\n    pass\nprint(0)", "closed")
	program("becomes root", "import os\ntry:\n    os.setuid(0)\n    print(open('/tests/want').read())\nexcept OSError:\n    print(0)", "closed")
	class = "programs that fill what the checker writes to"
	program("fills the logs", "f = open('/logs/x', 'wb')\ntry:\n    while True:\n        f.write(bytes(1 << 16))\n        f.flush()\nexcept OSError:\n    print(0)", "program")
	class = "modules that the tests import"
	module := func(name, text string) { program(name, text, "module") }
	module("ends the process", "import os\nos._exit(0)")
	module("ends it at exit", "import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b):\n    return 4")
	module("skips", "import pytest\ndef add(a, b):\n    pytest.skip('no')")
	module("is equal to everything", "class E:\n    def __eq__(self, o):\n        return True\ndef add(a, b):\n    return E()")
	module("reads its caller", "import sys\ndef add(a, b):\n    f = sys._getframe(1)\n    import re\n    return int(re.findall(r'-?\\d+', open(f.f_code.co_filename).read().splitlines()[f.f_lineno - 1])[-1])")
	module("rewrites reports", "import _pytest.reports as r\nold = r.TestReport.from_item_and_call.__func__\ndef make(cls, item, call):\n    rep = old(cls, item, call)\n    rep.outcome = 'passed'\n    return rep\nr.TestReport.from_item_and_call = classmethod(make)\ndef add(a, b):\n    return 4")
	return all
}

// TestForgedWorkspaces: no forged workspace passes or is an error, and every honest twin
// passes.
func TestForgedWorkspaces(t *testing.T) {
	w, store := newForgedWorld(t), contrast.NewStore("")
	all := forgedWorkspaces()
	t.Logf("%d forged workspaces", len(all))
	calibrated := map[string]bool{}
	for _, f := range verdicttest.OneOfEach(all, func(f forgery) string { return f.class }) {
		t.Run(f.name, func(t *testing.T) {
			form := fmt.Sprint(f.tests["checker"])
			eval := forgedCheckers()[form]
			if !calibrated[form] {
				calibrated[form] = true
				if v := w.leavings(t, store, honestProgram, eval, true); v.Status != verifiers.Passed {
					t.Fatalf("the reference: %s %q: %s\n%s%s", v.Status, v.Reason, v.Message, v.Stdout.String(), v.Stderr.String())
				}
			}
			v := w.leavings(t, store, f.script, eval, false)
			if verdicttest.Tally(t, "terminal_task", verdicttest.Forged, v); v.Status != verifiers.Failed {
				t.Errorf("forged: %s %q %+v\n%s%s", v.Status, v.Reason, v.Contrast, v.Stdout.String(), v.Stderr.String())
			} else {
				t.Log(v.Reason, v.Contrast)
			}
			v = w.leavings(t, store, f.twin, eval, false)
			if verdicttest.Tally(t, "terminal_task", verdicttest.Honest, v); v.Status != verifiers.Passed {
				t.Errorf("its twin: %s %q: %s %+v\n%s%s", v.Status, v.Reason, v.Message, v.Contrast, v.Stdout.String(), v.Stderr.String())
			}
		})
	}
}

// TestForgedBesideProcesses: beside processes that the harness left, a candidate must fail tests that were made to fail.
func TestForgedBesideProcesses(t *testing.T) {
	w := newForgedWorld(t)
	left, err := w.run.Create(t.Context(), runtime.Config{Name: "harness", Image: w.image, Limits: runtime.DefaultLimits()})
	must.Do(t, err)
	defer func() { must.Report(t, left.Close(context.Background())) }()
	w.left = left
	tests := string(must.Read(t, filepath.Join(w.dir, "hidden/program/test_outputs.py")))
	filetest.Write(t, w.dir, map[string]string{
		"hidden/reward/test.sh":    "#!/bin/bash\npython3 -m pytest -q /tests/test_it.py && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n",
		"hidden/reward/test_it.py": tests,
		"hidden/bare/test.sh":      "#!/bin/bash\n[ \"$(python3 solve.py 2 3)\" = 5 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n",
	})
	rewarded := func(path string) map[string]any {
		return map[string]any{"checker": map[string]any{"source": "script", "path": path, "reward": true}}
	}
	const forged = "echo \"open('/logs/verifier/reward.json', 'w').write('{\\\"reward\\\": 1}')\" > solve.py"
	for name, f := range map[string]struct {
		eval   map[string]any
		script string
	}{
		"exit":                     {forgedCheckers()["module"], "echo 'import os; os._exit(0)' > solve.py"},
		"reward":                   {rewarded("reward/test.sh"), forged},
		"reward of a script alone": {rewarded("bare/test.sh"), forged},
		"half a reward":            {rewarded("reward/test.sh"), fmt.Sprintf("%s; echo \"import os\nif os.path.getsize('/tests/test_it.py') != %d: open('/logs/verifier/reward.json', 'w')\" >> solve.py", forged, len(tests))},
	} {
		store := contrast.NewStore("")
		for _, reference := range []bool{true, false} {
			v := w.leavings(t, store, honestProgram, f.eval, reference)
			if v.Status != verifiers.Passed || v.Assurance != verifiers.Executed || v.Metadata["canary"] != "failed" || v.Metadata["processes"] != "kept" {
				t.Errorf("%s, honest: %s %q: %s, canary %v\n%s%s", name, v.Status, v.Reason, v.Message, v.Metadata["canary"], v.Stdout.String(), v.Stderr.String())
			}
		}
		v := w.leavings(t, store, f.script, f.eval, false)
		if verdicttest.Tally(t, "terminal_task", verdicttest.Forged, v); v.Reason != "passes_broken_tests" {
			t.Errorf("%s, forged: %s %q, canary %v\n%s%s", name, v.Status, v.Reason, v.Metadata["canary"], v.Stdout.String(), v.Stderr.String())
		}
	}
}

// TestScriptInPython: a candidate must fail a checker that is one script in Python, which was made to fail.
func TestScriptInPython(t *testing.T) {
	w := newForgedWorld(t)
	filetest.Write(t, w.dir, map[string]string{
		"hidden/script/check.py": "#!/usr/bin/env python3\n\"\"\"Checks the sum.\"\"\"\nimport os, sys\nsys.path.insert(0, os.getcwd())\nfrom solve import add\nsys.exit(add(2, 3) != 5)\n",
	})
	store, eval := contrast.NewStore(""), sourced("script", "script/check.py")
	for _, reference := range []bool{true, false} {
		if v := w.leavings(t, store, honestProgram, eval, reference); v.Assurance != verifiers.Executed || v.Metadata["canary"] != "failed" {
			t.Errorf("honest: %s %q, canary %v\n%s%s", v.Status, v.Reason, v.Metadata["canary"], v.Stdout.String(), v.Stderr.String())
		}
	}
	if v := w.leavings(t, store, "echo 'import os; os._exit(0)' > solve.py", eval, false); v.Reason != "passes_broken_tests" {
		t.Errorf("forged: %s %q, canary %v", v.Status, v.Reason, v.Metadata["canary"])
	}
}

// TestCheckerEndsItself: an honest candidate fails a broken program that ends itself with its own status.
func TestCheckerEndsItself(t *testing.T) {
	w := newForgedWorld(t)
	filetest.Write(t, w.dir, map[string]string{"hidden/perl/check.pl": "my $sum = `python3 solve.py 2 3`;\nexit($sum == 5 ? 0 : 1);\n"})
	const mount = "securebench/evaluation_inputs/check.pl"
	eval := map[string]any{"checker": map[string]any{"command": "perl " + mount}, "test_files": map[string]any{"path": "perl/check.pl", "mount": mount}}
	if v := w.leavings(t, contrast.NewStore(""), honestProgram, eval, false); v.Assurance != verifiers.Executed || v.Metadata["canary"] != "failed" {
		t.Errorf("%s %q, canary %v\n%s%s", v.Status, v.Reason, v.Metadata["canary"], v.Stdout.String(), v.Stderr.String())
	}
}

// TestCheckerFaults: a fault of the pack or the image is an error with a reason of its
// own, whatever the candidate.
func TestCheckerFaults(t *testing.T) {
	w := newForgedWorld(t)
	must.Do(t, os.WriteFile(filepath.Join(w.dir, "hidden/program/odd.sh"), []byte("#!/no/such/interpreter\n"), 0o755))
	filetest.Write(t, w.dir, map[string]string{"hidden/broken/test_it.py": "def test_it():\n    assert (\n"})
	checker := func(kind, value string) map[string]any {
		c := map[string]any{kind: value}
		if kind == "path" {
			c["source"] = "script"
		}
		return map[string]any{"checker": c}
	}
	for _, tt := range []struct {
		eval   map[string]any
		reason string
	}{
		{checker("path", "program/odd.sh"), "checker_not_runnable"},
		{map[string]any{"checker": map[string]any{"command": []string{"no-such-program"}}}, "checker_not_runnable"},
		{map[string]any{"checker": map[string]any{"source": "pytest", "path": "broken/test_it.py"}}, "tests_malformed"},
		{checker("command", "python3 -S -m pytest -q /workspace"), "pytest_missing"},
	} {
		for _, script := range []string{"true", honestProgram} {
			if v := w.leavings(t, contrast.NewStore(""), script, tt.eval, false); v.Status != verifiers.Faulty || v.Reason != tt.reason {
				t.Errorf("%v: %s %q: %s", tt.eval, v.Status, v.Reason, v.Message)
			}
		}
	}
}

// TestLiesAboutPytest: a candidate that says that there is no pytest fails.
func TestLiesAboutPytest(t *testing.T) {
	w := newForgedWorld(t)
	const script = "echo 'raise SystemExit(\"No module named pytest\")' > solve.py"
	for _, eval := range []map[string]any{forgedCheckers()["program"], seeded("PATH=/nowhere /usr/bin/python3 -m pytest -q securebench/evaluation_inputs/tests; /usr/bin/python3 solve.py")} {
		if v := w.leavings(t, contrast.NewStore(""), script, eval, false); v.Status != verifiers.Failed {
			t.Errorf("%v: %s %q: %s", eval, v.Status, v.Reason, v.Message)
		}
	}
}

// TestTerminalCommands: forms of checkers, each with an honest candidate and one
// that solves nothing.
func TestTerminalCommands(t *testing.T) {
	w := newForgedWorld(t)
	filetest.Write(t, w.dir, map[string]string{
		"hidden/reward/test.sh": "#!/bin/bash\nset -uo pipefail\npython3 -m pytest --junitxml=/logs/j.xml -rA /tests/test_outputs.py | tee /logs/out\ncode=${PIPESTATUS[0]}\necho $((code == 0)) > /logs/reward.txt\nexit $code\n",
		"hidden/main/test.py":   "#!/usr/bin/env python3\nimport sys, pytest\nsys.exit(pytest.main(['-q', '/tests/test_outputs.py']))\n",
		"hidden/steps/test.sh":  "#!/bin/sh\nset -eux\ntest -f solve.py\ncd /tests\nfor t in two_three large negative; do\n  python3 -m pytest -q test_outputs.py::test_$t\ndone\n",
		"hidden/grader/test.sh": "#!/bin/bash\npython3 /tests/grade.py\n",
		"hidden/ends/test.sh":   "#!/bin/bash\nif python3 /tests/check.py; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
		"hidden/says/test.sh":   "#!/bin/bash\npython3 /tests/check.py > /logs/verifier/reward.txt\n",
		"hidden/says/check.py":  "import subprocess, sys\nprint(int(subprocess.run([sys.executable, 'solve.py', '2', '3'], capture_output=True).stdout.split() == [b'5']))\n",
		"hidden/ends/check.py":  "import subprocess, sys\nif subprocess.run([sys.executable, 'solve.py', '2', '3'], capture_output=True).stdout.split() == [b'5']:\n    sys.exit(0)\nsys.exit(1)\n",
		"hidden/grader/grade.py": "import json, subprocess, sys\nran = subprocess.run([sys.executable, 'solve.py', '2', '3'], capture_output=True)\n" +
			"json.dump({'reward': int(ran.stdout.split() == [b'5']), 'tried': 1}, open('/logs/verifier/reward.json', 'w'))\n",
		"hidden/suite/test.sh": "#!/bin/sh\nexec python3 -m unittest discover -v -s /tests\n",
		"hidden/suite/test_it.py": "import subprocess, sys, unittest\nclass T(unittest.TestCase):\n    def run_it(self, *args):\n        return int(subprocess.check_output([sys.executable, '/workspace/solve.py', *args]))\n" +
			"    def test_sum(self):\n        self.assertEqual(self.run_it('2', '3'), 5)\n    def test_large(self):\n        self.assertEqual(self.run_it('200', '300'), 500)\n",
	})
	outputs := must.Read(t, filepath.Join(w.dir, "hidden/program/test_outputs.py"))
	for _, name := range []string{"reward", "main", "steps"} {
		must.Do(t, os.WriteFile(filepath.Join(w.dir, "hidden", name, "test_outputs.py"), outputs, 0o644))
	}
	const tests = "securebench/evaluation_inputs/tests"
	type form struct {
		eval  map[string]any
		state string // of the contrast of an honest candidate
	}
	var all []form
	forms := func(state string, evals ...map[string]any) {
		for _, e := range evals {
			all = append(all, form{e, state})
		}
	}
	forms(contrast.Calibrated,
		sourced("pytest", "program/test_outputs.py"),
		sourced("pytest", "program"),
		sourced("script", "program/test.sh"),
		sourced("script", "reward/test.sh"),
		sourced("script", "main/test.py"),
		sourced("script", "steps/test.sh"),
		sourced("script", "suite/test.sh"),
		seeded("pytest -q "+tests),
		seeded("python3 -W ignore -m pytest -rA --no-header -p no:cacheprovider "+tests+"/test_outputs.py"),
		seeded("cd "+tests+" && python3 -m pytest -q -k 'large or negative'"),
		seeded("python3 -m pytest "+tests+" > /tmp/log; grep -q '3 passed' /tmp/log"),
		seeded("timeout 60 pytest -x "+tests+"/test_outputs.py::test_large"),
		seeded("PYTEST_ADDOPTS= python3 -m pytest -q "+tests),
		seeded("env -i PATH=$PATH python3 -m pytest -q "+tests),
		seeded([]string{"bash", "-o", "pipefail", "-c", "pytest " + tests + " | tee /tmp/log"}),
		seeded([]string{"bash", "-lc", "find " + tests + " -name 'test_*.py' -exec pytest -q {} +"}),
		seeded("pytest --junitxml=/tmp/j.xml "+tests+`; python3 -c "import xml.etree.ElementTree as e; s = e.parse('/tmp/j.xml').getroot()[0]; assert (s.get('tests'), s.get('failures'), s.get('errors')) == ('3', '0', '0')"`),
	)
	// The reference solution is not run for these.
	forms(contrast.Uncalibrated,
		sourced("pytest", "module/test_outputs.py"),
		seeded("python3 -m pytest --tb=short "+tests))
	// No files that are named like tests, or that the command runs.
	forms(contrast.None,
		seeded(`python3 -c "import json, subprocess; assert json.loads(subprocess.check_output(['python3', 'solve.py', '2', '3'])) == 5"`),
		forgedCheckers()["unit"],
		sourced("script", "log/check.sh"),
		map[string]any{"checker": map[string]any{"source": "script", "path": "grader/test.sh", "reward": true}},
		map[string]any{"checker": map[string]any{"source": "script", "path": "ends/test.sh", "reward": true}},
		map[string]any{"checker": map[string]any{"source": "script", "path": "says/test.sh", "reward": true}},
		map[string]any{"checker": map[string]any{"command": `test "$(python3 solve.py 2 3)" = 5`}},
		map[string]any{"checker": map[string]any{"command": "python3 solve.py 2 3 | awk '$1 != 5 {bad = 1} END {exit bad || NR != 1}'"}},
		map[string]any{"checker": map[string]any{"command": "python3 solve.py 2 3 | sed 's/^/sum: /' | tee /tmp/log | grep -x 'sum: 5'"}})
	for i, f := range all {
		if !verdicttest.Taken(i) {
			continue
		}
		t.Run(fmt.Sprint(i, " ", f.eval["checker"]), func(t *testing.T) {
			for range verdicttest.Repeats() {
				store := contrast.NewStore("") // so that the task is calibrated anew
				if f.state == contrast.Calibrated {
					w.leavings(t, store, honestProgram, f.eval, true)
				}
				v := w.leavings(t, store, honestProgram, f.eval, false)
				if verdicttest.Tally(t, "terminal_task", verdicttest.Honest, v); v.Status != verifiers.Passed || v.Contrast == nil || v.Contrast.State != f.state {
					t.Errorf("honest: %s %q: %s %+v\n%s%s", v.Status, v.Reason, v.Message, v.Contrast, v.Stdout.String(), v.Stderr.String())
				}
				if v := w.leavings(t, store, nullProgram, f.eval, false); v.Reason != "checker_failed" {
					t.Errorf("null: %s %q: %s\n%s%s", v.Status, v.Reason, v.Message, v.Stdout.String(), v.Stderr.String())
				}
			}
		})
	}
}
