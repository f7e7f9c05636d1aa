package terminal_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/sandbox"
	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/terminal"
	"github.com/securebench/sbench/workspace"
)

func TestMain(m *testing.M) {
	service.Inside()
	containerdtest.Enter()
	m.Run()
}

// terminalWorld is a pack whose tasks expect the number 44 in answer.txt, with every
// form of checker.
type terminalWorld struct {
	run   *sandbox.Engine
	image runtime.Image
	dir   string
	// workdir of the tasks; "" is the default.
	workdir string
	user    string        // of the tasks; "" is the image's
	checker runtime.Image // of a checker with an image of its own
	left    runtime.Sandbox
}

func newTerminalWorld(t *testing.T) terminalWorld {
	t.Helper()
	t.Parallel()
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	w := terminalWorld{run: run, image: image, dir: t.TempDir()}
	filetest.Write(t, w.dir, map[string]string{
		"hidden/expected.txt":     "44\n",
		"hidden/compare.sh":       "#!/bin/sh\ncd /workspace && cmp answer.txt securebench/evaluation_inputs/expected.txt\n",
		"hidden/t/test_it.py":     "import helper\ndef test_answer():\n    assert open('/workspace/answer.txt').read() == helper.EXPECTED\n",
		"hidden/t/run.sh":         "python3 -m pytest -q /tests/test_it.py\necho done\n",
		"hidden/t/helper.py":      "EXPECTED = '44\\n'\n",
		"hidden/t/conftest.py":    "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\n",
		"assets/data/asset.txt":   "44\n",
		"hidden/m/test_module.py": "import outer, subprocess, sys\ndef test_box():\n    r = subprocess.run([sys.executable, '-c', f'import packaging; print(packaging.box({outer.inner.N}))'], cwd='/workspace', capture_output=True, text=True)\n    assert r.stdout == '[3]\\n', r.stderr\n",
		"hidden/r/run.sh":         "#!/bin/sh\ntest \"$(python3 /workspace/solution.py)\" = 44\n",
		"hidden/s/script.sh":      "#!/bin/sh\nset -eu\ngrep -qx 44 /workspace/answer.txt\n",
		// SecureBench's layout and variables, with a runner in place of pytest, which -S hides.
		"hidden/sb/run.sh": "set -euo pipefail\nmkdir -p \"$SECUREBENCH_WORKSPACE/.securebench-verifier\" /logs\nrm -rf /tests /logs/verifier\nln -s \"$TEST_DIR\" /tests\n" +
			"ln -s \"$SECUREBENCH_WORKSPACE/.securebench-verifier\" /logs/verifier\ncmp \"$SECUREBENCH_EVALUATOR/sb/tests/want\" /tests/want\npython3 -S -I /opt/sbench/python/run-pytest.py /tests\n",
		"hidden/sb/tests/want":       "44\n",
		"hidden/sb/tests/test_it.py": "import os, unittest\nclass TestAnswer(unittest.TestCase):\n    def test_file(self):\n        self.assertTrue(os.path.exists('answer.txt'))\ndef test_answer():\n    assert open(os.environ['SECUREBENCH_WORKSPACE'] + '/answer.txt').read() == '44\\n'\n",
		"hidden/chroot/check.sh":     "#!/bin/sh\nset -eu\nchroot / true\ngrep -qx 44 /workspace/answer.txt\n",
	})
	must.Do(t, os.Chmod(filepath.Join(w.dir, "hidden/s/script.sh"), 0o644))
	return w
}

func checkers() map[string]map[string]any {
	expected := map[string]any{"path": "expected.txt", "mount": "securebench/evaluation_inputs/expected.txt"}
	return map[string]map[string]any{
		"shell":   {"checker": map[string]any{"command": "cmp answer.txt securebench/evaluation_inputs/expected.txt"}, "test_files": expected},
		"script":  {"checker": map[string]any{"source": "script", "path": "s/script.sh"}},
		"summary": {"checker": map[string]any{"source": "script", "path": "t/run.sh", "pytest_summary": true}},
		"pytest":  {"checker": map[string]any{"source": "pytest", "path": "t/test_it.py"}},
		"python":  {"checker": map[string]any{"command": "python3 -c \"e = open('securebench/evaluation_inputs/expected.txt'); assert open('answer.txt').read() == e.read()\""}, "test_files": expected},
		"chroot":  {"checker": map[string]any{"source": "script", "path": "chroot/check.sh"}, "needed_commands": []string{"chroot"}},
		"asset":   {"checker": map[string]any{"command": "cmp answer.txt data/asset.txt"}},
		"sb":      {"checker": map[string]any{"source": "script", "path": "sb/run.sh"}},
		"runs":    {"checker": map[string]any{"source": "script", "path": "r/run.sh"}},
		"workdir": {"checker": map[string]any{"command": "test \"$(cat ../answer.txt)\" = 44", "workdir": "/workspace/sub"}},
		"bits":    {"checker": map[string]any{"command": "test \"$(stat -c %a t g s . | tr '\\n' ' ')\" = '1777 2755 4755 1751 '"}},
		"kinds":   {"checker": map[string]any{"command": "test -p p && test -S s && test b -ef d/c && test $(stat -c %h b) = 2"}},
		"module":  {"checker": map[string]any{"source": "pytest", "path": "m/test_module.py"}},
		"dashc":   {"checker": map[string]any{"command": "python3 -c 'import sys, pytest; sys.exit(pytest.main([\"-q\", \"securebench/evaluation_inputs/t/test_it.py\"]))'"}, "test_files": map[string]any{"path": "t"}},
		"unseen":  {"checker": map[string]any{"command": "! grep -q unseen-word /proc/$$/cmdline && test -z \"$SBENCH_COMMAND$c\" && grep -qx 44 answer.txt"}},
		"hungry":  {"checker": map[string]any{"command": "sh ./slow.sh && grep -qx 44 answer.txt", "timeout_seconds": 60}},
		"slow":    {"checker": map[string]any{"command": "sh ./slow.sh && grep -qx 44 answer.txt", "timeout_seconds": 2}},
	}
}

func (w terminalWorld) task(t *testing.T, eval map[string]any) (*compiler.Task, *compiler.Pack) {
	t.Helper()
	environment := map[string]any{"image": "x", "timeout_seconds": 30}
	if w.workdir != "" {
		environment["workdir"] = w.workdir
	}
	if w.user != "" {
		environment["user"] = w.user
	}
	row := must.JSON(t, map[string]any{
		"id": "t", "family": "terminal_task", "input": map[string]any{"instructions": "write 44 to answer.txt"},
		"assets": []map[string]any{{"path": "data/asset.txt"}},
		"eval":   eval, "environment": environment,
	})
	pack, tasks := packtest.Open(t, w.dir, packtest.Manifest, string(row)+"\n")
	return tasks[0], pack
}

// attempt runs a shell script as the agent and judges what it leaves.
func (w terminalWorld) attempt(t *testing.T, script string, eval map[string]any, policy verifiers.Permissions) (harness.Result, verifiers.Verdict) {
	t.Helper()
	ctx := context.Background()
	task, pack := w.task(t, eval)
	plan, err := workspace.PlanAgent(task, pack)
	must.Do(t, err)
	limits := runtime.DefaultLimits()
	kept := filepath.Join(t.TempDir(), "kept")
	must.Do(t, os.Mkdir(kept, 0o755))
	result, err := harness.Command{Args: []string{"bash", "-c", script}, TaskFile: "task.json"}.Produce(ctx, w.run, harness.Request{
		Task: task.AgentView(), Kind: task.Family().CandidateKind, Plan: plan, Image: w.image, Timeout: time.Minute,
		Limits: limits, WorkspaceBytes: 32 << 20, OutputBytes: 1 << 20, Dest: kept,
	})
	must.Do(t, err)
	if result.Failure != nil {
		return result, verifiers.Verdict{Status: verifiers.Failed, Reason: result.Failure.Reason}
	}
	v, err := terminal.Family().Verify(ctx, w.run, verifiers.Input{
		Task: task, Pack: pack, Candidate: result.Candidate, Image: w.image, CheckerImage: w.checker, Limits: limits, Permissions: policy,
		Timeout: time.Minute, WorkspaceBytes: 32 << 20, OutputBytes: 1 << 20,
	})
	must.Do(t, err)
	return result, v
}

const solve = `echo 44 > answer.txt`

// A terminalRow is what an agent leaves for a checker, and why the attempt fails; "" if it passes.
type terminalRow struct{ name, checker, script, reason string }

// TestTerminalTask: what solves a task passes each form of checker, and what lies to the checker does not.
func TestTerminalTask(t *testing.T) {
	judgeRows(t, []terminalRow{
		{"honest, shell", "shell", solve, ""},
		{"honest, script that always ends with status 0", "summary", solve, ""},
		{"honest, SecureBench's layout", "sb", solve, ""},
		{"wrong, SecureBench's layout", "sb", "echo 45 > answer.txt", "checker_failed"},
		{"honest, script without its executable bit", "script", solve, ""},
		{"honest, pytest", "pytest", solve, ""},
		{"honest, python", "python", solve, ""},
		{"honest, modules, one of which is named like one of pytest's", "module", `echo 'def box(n): return [n]' > packaging.py; echo 'import inner' > outer.py; echo 'N = 3' > inner.py`, ""},
		{"pytest's own module from the workspace", "dashc", `echo 'raise SystemExit(0)' | tee pytest.py packaging.py pluggy.py iniconfig.py > /dev/null`, "checker_failed"},
		{"honest, with modules of its own", "pytest", solve + `; echo raise SystemExit > pytest.py; mkdir pkg; echo x=1 > pkg/__init__.py`, ""},
		{"honest, asset", "asset", `cp data/asset.txt answer.txt`, ""},
		{"honest, program", "runs", `echo 'print(44)' > solution.py`, ""},
		{"honest, slow", "hungry", `echo 'sleep 0.1' > slow.sh; ` + solve, ""},
		{"honest, hungry", "hungry", `echo 'exec python3 -c "b = bytearray(3 << 20)"' > slow.sh; ` + solve, ""},
		{"honest, output left in flight", "shell", solve + `; cat > f.py <<'P'
import socket, array, time, os
if os.fork() == 0: time.sleep(2); os._exit(0)
a, b = socket.socketpair(); c, d = socket.socketpair()
for s in (a, c): s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [1, 2, a.fileno(), b.fileno(), c.fileno(), d.fileno()]))])
P
python3 f.py`, ""},
		{"program that reaches into the checker", "runs", `cat > solution.py <<'P'
import os
try:
    open(f"/proc/{os.getppid()}/mem", "r+b"); print(44)
except OSError:
    print(0)
P`, "checker_failed"},
		{"program that traces the checker", "runs", `cat > solution.py <<'P'
import ctypes, os
print(44 if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0 else 0)
P`, "checker_failed"},
		{"asset replaced", "asset", `mv data elsewhere; mkdir data; echo 45 | tee answer.txt > data/asset.txt`, "checker_failed"},
		{"nothing", "shell", `true`, "checker_failed"},
		{"wrong answer, shell", "shell", `echo 45 > answer.txt`, "checker_failed"},
		{"wrong answer, script that always ends with status 0", "summary", `echo 45 > answer.txt`, "checker_failed"},
		{"wrong answer, pytest", "pytest", `echo 45 > answer.txt`, "checker_failed"},
		{"link to the expected file", "shell", `ln -s securebench/evaluation_inputs/expected.txt answer.txt`, "checker_failed"},
		{"absolute link to the expected file", "shell", `ln -s /workspace/securebench/evaluation_inputs/expected.txt answer.txt`, "checker_failed"},
		{"link through /proc/self/cwd", "shell", `ln -s /proc/self/cwd/securebench/evaluation_inputs/expected.txt answer.txt`, "checker_failed"},
		{"link through /proc/self/root", "pytest", `ln -s /proc/self/root/tests/helper.py answer.txt`, "checker_failed"},
		{"link to an open file", "python", `ln -s /proc/self/fd/3 answer.txt`, "checker_failed"},
		{"links that take for ever", "shell", `python3 -c "
import os
for i in range(40): os.symlink('c%02d' % (i + 1) + '/d/..' * 815, 'c%02d' % i)
os.makedirs('c40/d')
for i in range(2000): os.symlink('c00', 'x%04d' % i)"; echo 44 > real; ln -s c00/../real answer.txt`, "checker_failed"},
		{"link to the checker", "script", `ln -s /tests/script.sh answer.txt`, "checker_failed"},
		{"directory in place of the answer", "shell", `mkdir answer.txt`, "checker_failed"},
		{"pipe in place of the answer", "slow", `: > slow.sh; mkfifo answer.txt`, "verifier_timeout"},
		{"own expected file", "shell", `mkdir -p securebench/evaluation_inputs; echo 45 | tee answer.txt > securebench/evaluation_inputs/expected.txt`, "checker_failed"},
		{"pytest look-alike", "pytest", `echo 'import sys; sys.exit(0)' | tee pytest.py _pytest.py sitecustomize.py usercustomize.py helper.py; mkdir pytest; cp pytest.py pytest/__main__.py; echo 45 > answer.txt`, "checker_failed"},
		{"conftest", "pytest", `cat > conftest.py <<'P'
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    (yield).get_result().outcome = "passed"
P
echo 45 > answer.txt`, "checker_failed"},
		{"pytest.ini", "pytest", `printf '[pytest]\naddopts = --collect-only\n' | tee pytest.ini tox.ini setup.cfg; printf '[tool.pytest.ini_options]\naddopts = "--co"\n' > pyproject.toml; echo 45 > answer.txt`, "checker_failed"},
		{"plugin entry point", "pytest", `mkdir evil-1.dist-info; printf '[pytest11]\nevil = evil\n' > evil-1.dist-info/entry_points.txt; printf 'Name: evil\nVersion: 1\n' > evil-1.dist-info/METADATA; echo 'import os; os._exit(0)' > evil.py; echo 45 > answer.txt`, "checker_failed"},
		{"bytecode", "pytest", `mkdir __pycache__; python3 -c "import py_compile; open('helper.py','w').write('EXPECTED = 45'); py_compile.compile('helper.py')"; echo 45 > answer.txt`, "checker_failed"},
		{"commands of its own", "shell", `printf '#!/bin/sh\nexit 0\n' | tee cmp grep python3 sh test > /dev/null; chmod +x cmp grep python3 sh test; echo 45 > answer.txt`, "checker_failed"},
		{"shell start-up files", "shell", `echo 'exit 0' | tee .bashrc .profile .bash_profile .env > /dev/null; echo 45 > answer.txt`, "checker_failed"},
		{"checker that never ends", "slow", `echo 'sleep 100' > slow.sh; ` + solve, "verifier_timeout"},
		{"checker that ignores TERM", "slow", `printf 'trap "" TERM\nwhile :; do sleep 1; done' > slow.sh; ` + solve, "verifier_timeout"},
		{"checker that eats memory", "hungry", `echo 'exec python3 -c "b = bytearray(3 << 30)"' > slow.sh; ` + solve, "verifier_out_of_memory"},
		{"honest, working directory missing", "workdir", solve, ""},
		{"working directory a file", "workdir", solve + `; echo x > sub`, "verifier_not_started"},
		{"working directory a link", "workdir", solve + `; ln -s /etc sub`, "checker_failed"},
		{"full workspace", "shell", `head -c 100000000 /dev/zero > big; echo 45 > answer.txt; exit 0`, "checker_failed"},
		{"sparse file", "shell", `truncate -s 100G big; ` + solve, "candidate_too_big"},
		{"deep tree", "shell", solve + `; python3 -c "
import os
for i in range(1000): os.mkdir('d'); os.chdir('d')"`, "candidate_too_big"},
	})
}

// TestTerminalForms: what lies around the answer, and in what form the answer is, decides nothing.
func TestTerminalForms(t *testing.T) {
	judgeRows(t, []terminalRow{
		{"honest, the command is no argument", "unseen", solve, ""},
		{"honest, subdirectory", "workdir", solve + "; mkdir sub", ""},
		{"honest, link within the workspace", "shell", `echo 44 > real; ln -s real answer.txt; ln -s /usr/bin/env e; ln -s nowhere dead; ln -s . self`, ""},
		{"honest, links that programs make", "shell", solve + `; ln -s /dev/null log; ln -s /usr/share/common-licenses/GPL-3 COPYING; python3 -m venv --without-pip --symlinks v`, ""},
		{"honest, links to what a sandbox has of its own", "shell", solve + `; mkdir logs; ln -s /dev/stdout logs/access.log; ln -s /tmp/cache cache; ln -s /run/app.sock sock`, ""},
		{"honest, special permission bits", "bits", solve + `; mkdir t; chmod 1777 t; mkdir g; chmod 2755 g; touch s; chmod 4755 s; chmod 1751 .`, ""},
		{"honest, odd names", "shell", solve + `; touch $'new\nline' 'co:lon,com ma' $'\377' -- -rf`, ""},
		{"honest, no permissions around", "shell", solve + `; mkdir shut; echo x > shut/f; chmod 000 shut/f shut`, ""},
		{"honest, special files around", "shell", solve + `; mkfifo pipe; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('sock')"`, ""},
		{"honest, hard link", "shell", `echo 44 > a; ln a answer.txt`, ""},
		{"honest, kinds of files", "kinds", `mkfifo p; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('s')"; mkdir d; echo x > b; ln b d/c`, ""},
		{"honest, deep directories", "shell", solve + `; mkdir -p $(printf 'd/%.0s' $(seq 300))`, ""},
		{"honest, own securebench directory", "shell", solve + `; mkdir -p securebench/evaluation_inputs; echo 5 > securebench/evaluation_inputs/expected.txt`, ""},
		{"honest, securebench is a link", "shell", solve + `; rm -rf securebench; ln -s /etc securebench`, ""},
		{"honest, securebench is a file", "shell", solve + `; rm -rf securebench; echo x > securebench`, ""},
		{"honest, inputs are a link", "shell", solve + `; mkdir -p securebench; ln -s /etc securebench/evaluation_inputs`, ""},
		{"honest, names that are not UTF-8", "shell", solve + `; mkdir $'\xff'; ln -s x $'\xff/\xfe'`, ""},
		{"honest, asset moved", "asset", `cp data/asset.txt answer.txt; mv data elsewhere`, ""},
		{"honest, asset directory a file", "asset", solve + `; mv data elsewhere; echo x > data`, ""},
		{"honest, asset a directory", "asset", solve + `; mv data elsewhere; mkdir -p data/asset.txt/x`, ""},
		{"link through a directory", "shell", `ln -s . a; ln -s a/securebench b; ln -s b/evaluation_inputs/expected.txt answer.txt`, "checker_failed"},
		{"link through the image", "shell", `ln -s /usr/../workspace/securebench/evaluation_inputs/expected.txt answer.txt`, "checker_failed"},
		{"link to an open file by /dev", "python", `ln -s /dev/fd/3 answer.txt`, "checker_failed"},
	})
}

func judgeRows(t *testing.T, tests []terminalRow) {
	t.Helper()
	w := newTerminalWorld(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			result, v := w.attempt(t, tt.script, checkers()[tt.checker], verifiers.Permissions{})
			if v.Reason != tt.reason || (v.Status == verifiers.Passed) != (tt.reason == "") {
				t.Errorf("%s %q: %s\n%s%s\nagent: %v %s", v.Status, v.Reason, v.Message, v.Stdout.String(), v.Stderr.String(), result.Exit, result.Exit.Stderr.String())
			}
		})
	}
}

// TestHiddenOutOfReach: whatever the layout of a pack, a candidate that searches all files of
// the verifier's sandbox does not find the reference solution. It does find the tests.
func TestHiddenOutOfReach(t *testing.T) {
	w := newTerminalWorld(t)
	const tests = "# the-tests\nimport subprocess, sys\ndef test_answer():\n    r = subprocess.run([sys.executable, '/workspace/answer.py'], capture_output=True, text=True)\n    assert r.stdout == '44\\n'\n"
	for _, dir := range []string{"", "leak"} {
		must.Do(t, os.MkdirAll(filepath.Join(w.dir, "hidden", dir, "solution"), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(w.dir, "hidden", dir, "solution/solve.sh"), []byte("# the-solution\necho 44\n"), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(w.dir, "hidden", dir, "test_leak.py"), []byte(tests), 0o644))
	}
	must.Do(t, os.Link(filepath.Join(w.dir, "hidden/leak/solution/solve.sh"), filepath.Join(w.dir, "hidden/leak/same.sh")))
	state := map[string]any{"path": "leak/solution"}
	search := func(word string) string {
		return `cat > answer.py <<'END'
import os
def found():
    for directory, below, names in os.walk("/"):
        below[:] = [d for d in below if os.path.join(directory, d) not in ("/proc", "/sys")]
        for name in names:
            path = os.path.join(directory, name)
            if os.path.isfile(path) and b"the-" + b"` + word + `" in open(path, "rb").read():
                return True
    return False
if found():
    print(44)
END`
	}
	layouts := []struct {
		name string
		eval map[string]any
	}{
		{"in the checker's directory", map[string]any{"checker": map[string]any{"source": "pytest", "path": "leak/test_leak.py"}, "expected_state": state}},
		{"in test_files", map[string]any{"checker": map[string]any{"command": "python3 -m pytest -q securebench/evaluation_inputs/leak"}, "test_files": map[string]any{"path": "leak"}, "expected_state": state}},
		{"beside a checker in the root", map[string]any{"checker": map[string]any{"source": "pytest", "path": "test_leak.py"}, "expected_state": map[string]any{"path": "solution"}}},
	}
	if os.Getenv("SBENCH_SOAK") == "" {
		layouts = layouts[:1]
	}
	for _, layout := range layouts {
		for _, c := range []struct{ name, script, reason string }{
			{"solution", search("solution"), "checker_failed"},
			{"tests", search("tests"), ""},
			{"reference", "echo 'print(44)' > answer.py", ""},
		} {
			t.Run(layout.name+", "+c.name, func(t *testing.T) {
				if _, v := w.attempt(t, c.script, layout.eval, verifiers.Permissions{}); v.Reason != c.reason {
					t.Errorf("got %v %q %q\n%s", v.Status, v.Reason, v.Message, v.Stdout)
				}
			})
		}
	}
}

// TestNeededCommands: the operator must allow commands, and a denial takes precedence.
func TestNeededCommands(t *testing.T) {
	w := newTerminalWorld(t)
	tests := []struct {
		name   string
		policy verifiers.Permissions
		reason string
	}{
		{"not allowed", verifiers.Permissions{}, "verifier_dangerous_command_denied"},
		{"allowed", verifiers.Permissions{AllowDangerous: true}, ""},
		{"allowed and denied", verifiers.Permissions{AllowDangerous: true, Deny: []string{"chroot"}}, "verifier_dangerous_command_denied"},
		{"something else denied", verifiers.Permissions{AllowDangerous: true, Deny: []string{"mount"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, v := w.attempt(t, solve, checkers()["chroot"], tt.policy)
			if v.Reason != tt.reason {
				t.Errorf("%s %q: %s %s", v.Status, v.Reason, v.Message, v.Stderr.String())
			}
		})
	}
}

// TestLinksThroughTheImage: forging links are found also if the workspace's path goes
// through a link of the image.
func TestLinksThroughTheImage(t *testing.T) {
	w := newTerminalWorld(t)
	for _, tt := range []struct{ name, script, reason string }{
		{"honest", solve, ""},
		{"by the other name", `ln -s /run/work/securebench/evaluation_inputs/expected.txt answer.txt`, "checker_failed"},
		{"by the same name", `ln -s /var/run/work/securebench/evaluation_inputs/expected.txt answer.txt`, "checker_failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.workdir = "/var/run/work"
			_, v := w.attempt(t, tt.script, checkers()["shell"], verifiers.Permissions{})
			if v.Reason != tt.reason {
				t.Errorf("%s %q: %s %s", v.Status, v.Reason, v.Message, v.Stderr.String())
			}
		})
	}
}
