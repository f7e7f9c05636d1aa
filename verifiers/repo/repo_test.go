package repo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/sandbox"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/verifiers/repo"
	"github.com/securebench/sbench/workspace"
)

func TestMain(m *testing.M) {
	containerdtest.Enter()
	m.Run()
}

// repoWorld is an image with a small repository at /testbed.
type repoWorld struct {
	run   *sandbox.Engine
	image runtime.Image
	base  string
	repo  string // on the host
	store *contrast.Store
	bytes int64 // of a workspace
}

// Programs that start tests as tox and as Django's manage.py do: the test image has neither.
const (
	likeTox = `#!/bin/sh
echo "py: commands[0]> python3 -m pytest $*"
env -i PATH="$PATH" TOX_ENV_NAME=py PYTHONHASHSEED=1 python3 -m pytest "$@"
code=$?
if [ $code = 0 ]; then echo "  py: OK"; else echo "  py: FAIL code $code"; fi
exit $code
`
	likeDjango = `import sys, unittest
verbosity, loader, suite = 1, unittest.defaultTestLoader, unittest.TestSuite()
args = iter(sys.argv[2:])
for label in args:
    if label == "-v":
        verbosity = int(next(args))
    else:
        suite.addTests(loader.loadTestsFromName(label) if "." in label else loader.discover(label))
print("Found %d test(s)." % suite.countTestCases())
print("System check identified no issues (0 silenced).")
result = unittest.TextTestRunner(verbosity=verbosity).run(suite)
sys.exit(bool(result.failures or result.errors))
`
)

func newRepoWorld(t *testing.T) repoWorld {
	t.Helper()
	t.Parallel() // most of the time a sandbox is waited for
	c := containerdtest.Open(t)
	repo := t.TempDir()
	filetest.Write(t, repo, map[string]string{
		"calc/__init__.py":         "",
		"calc/core.py":             "def add(a, b):\n    return a - b\n",
		"calc/test/__init__.py":    "",
		"calc/test/impl.py":        "",
		"calc/test_mode.py":        "def sum(a, b): return a - b\n",
		"tests/sum.txt":            "5\n",
		"calc/crlf.txt":            "one\r\ntwo\r\n",
		"calc/latin.txt":           "caf\xe9\n",
		"tests/test_old.py":        "def test_old():\n    assert True\n",
		"tests/test_kept.py":       "from calc.core import add\n\ndef test_kept():\n    assert add(3, 0) == 3\ndef test_kept_too():\n    assert add(9, 0) == 9\n",
		"bin/test":                 "#!/bin/sh\nexec python3 -m pytest -q tests\n",
		"bin/tox":                  likeTox,
		"manage.py":                likeDjango,
		"runtests.py":              "import sys, pytest\nsys.exit(pytest.main(['-q', 'tests']))\n",
		"Makefile":                 "check:\n\tpython3 -m pytest -q tests\n",
		".gitignore":               "*.tmp\nbuild/\n",
		".gitattributes":           "crlf.txt text eol=crlf\n",
		"kept.tmp":                 "tracked although ignored\n",
		"directory/deep/file.data": "\x00\x01binary\x02",
	})
	must.Do(t, errors.Join(os.Chmod(filepath.Join(repo, "bin/test"), 0o755), os.Chmod(filepath.Join(repo, "bin/tox"), 0o755)))
	for _, args := range [][]string{{"init", "-q"}, {"add", "--all"}, {"add", "-f", "kept.tmp"}, {"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "base"}} {
		must.Run(t, exec.Command("git", append([]string{"-C", repo}, args...)...))
	}
	for _, args := range [][]string{{"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "a later state"}, {"reset", "-q", "--hard", "HEAD~1"}} {
		must.Run(t, exec.Command("git", append([]string{"-C", repo}, args...)...))
	}
	head, err := exec.Command("git", "-C", repo, "rev-parse", "HEAD").Output()
	must.Do(t, err)
	ref := "sbench.test/repo:" + strings.ToLower(strings.ReplaceAll(filepath.Base(filepath.Dir(repo)), "/", "-"))
	image := containerdtest.WithDirectory(t, c, ref, repo, "/testbed")
	run, _ := containerdtest.NewRun(t, c)
	t.Cleanup(func() { must.Do(t, c.Images.Remove(context.Background(), ref)) })
	return repoWorld{run: run, image: image, base: strings.TrimSpace(string(head)), repo: repo, store: contrast.NewStore(""), bytes: 256 << 20}
}

const testPatch = `diff --git a/tests/test_new.py b/tests/test_new.py
new file mode 100644
--- /dev/null
+++ b/tests/test_new.py
@@ -0,0 +1,12 @@
+import pytest
+from calc.core import add
+
+@pytest.mark.fast
+def test_add():
+    assert add(2, 3) == 5
+
+def test_negative():
+    assert add(-2, -4) == -6
+
+def test_zero_add():
+    assert add(0, 7) == 7
diff --git a/tests/test_unit.py b/tests/test_unit.py
new file mode 100644
--- /dev/null
+++ b/tests/test_unit.py
@@ -0,0 +1,12 @@
+import unittest
+from calc.core import add
+
+class TestAdd(unittest.TestCase):
+    def test_large(self):
+        self.assertEqual(add(200, 300), 500)
+
+    def test_add_same(self):
+        self.assertEqual(add(4, 4), 8)
+
+if __name__ == "__main__":
+    unittest.main()
`

const goldPatch = "diff --git a/calc/core.py b/calc/core.py\n--- a/calc/core.py\n+++ b/calc/core.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"

func (w repoWorld) task(t *testing.T, tests map[string]any) (*compiler.Task, *compiler.Pack) {
	t.Helper()
	dir := t.TempDir()
	all := map[string]any{"source": "command", "command": "python3 -m pytest -q tests", "test_patch": testPatch, "timeout_seconds": 60}
	for k, v := range tests {
		all[k] = v
	}
	if all["test_patch"] == nil {
		delete(all, "test_patch")
	}
	base := w.base
	if b, ok := all["base"].(string); ok {
		base = b
		delete(all, "base")
	}
	assets, _ := all["assets"].([]map[string]any)
	delete(all, "assets")
	for _, a := range assets {
		name := filepath.Join(dir, "assets", a["path"].(string), "more.txt")
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Do(t, os.WriteFile(name, []byte("more\n"), 0o644))
	}
	gold := goldPatch
	if g, ok := all["gold_patch"].(string); ok {
		gold = g
		delete(all, "gold_patch")
	}
	row := must.JSON(t, map[string]any{
		"id": "r", "family": "repo_patch",
		"assets":      assets,
		"input":       map[string]any{"repo": "example/calc", "base_commit": base, "instructions": "fix add"},
		"eval":        map[string]any{"tests": all, "gold_patch": gold},
		"environment": map[string]any{"image": "x", "workdir": "/testbed", "timeout_seconds": 60},
	})
	pack, tasks := packtest.Open(t, dir, packtest.Manifest, string(row))
	return tasks[0], pack
}

// attempt runs a shell script as the agent, and judges what it leaves.
func (w repoWorld) attempt(t *testing.T, script string, tests map[string]any) (harness.Result, verifiers.Verdict) {
	t.Helper()
	ctx := context.Background()
	task, pack := w.task(t, tests)
	plan, err := workspace.PlanAgent(task, pack)
	must.Do(t, err)
	result, err := harness.Command{Args: []string{"bash", "-c", script}, TaskFile: "task.json"}.Produce(ctx, w.run, harness.Request{
		Task: task.AgentView(), Kind: task.Family().CandidateKind, Plan: plan, Image: w.image, Timeout: time.Minute,
		Limits: runtime.DefaultLimits(), WorkspaceBytes: 256 << 20, OutputBytes: 1 << 20, Dest: t.TempDir(),
	})
	must.Do(t, err)
	if result.Failure != nil {
		return result, verifiers.Verdict{}
	}
	return result, w.judge(t, task, pack, result)
}

func (w repoWorld) judge(t *testing.T, task *compiler.Task, pack *compiler.Pack, result harness.Result) verifiers.Verdict {
	t.Helper()
	v, err := repo.Family().Verify(context.Background(), w.run, verifiers.Input{
		Task: task, Pack: pack, Candidate: result.Candidate, Image: w.image, Limits: runtime.DefaultLimits(), Calibrations: w.store,
		Timeout: time.Minute, WorkspaceBytes: w.bytes, OutputBytes: 1 << 20,
	})
	must.Do(t, err)
	return v
}

// TestLaterCommits: what agents can read of an image's repository, and the base lacks, is named to the pack's author.
func TestLaterCommits(t *testing.T) {
	w := newRepoWorld(t)
	gold := "diff --git a/calc/core.py b/calc/core.py\n--- a/calc/core.py\n+++ b/calc/core.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"
	task, pack := w.task(t, map[string]any{"gold_patch": gold})
	v, err := repo.Family().Verify(context.Background(), w.run, verifiers.Input{
		Task: task, Pack: pack, Candidate: candidate.Candidate{Patch: gold}, Reference: true, Image: w.image, Limits: runtime.DefaultLimits(), Calibrations: w.store,
		Timeout: time.Minute, WorkspaceBytes: w.bytes, OutputBytes: 1 << 20,
	})
	must.Do(t, err)
	if v.Status != verifiers.Passed || fmt.Sprint(v.Metadata["branches"]) != "[reflog]" {
		t.Errorf("%s %s: %v", v.Status, v.Message, v.Metadata["branches"])
	}
}

const makefilePatch = "diff --git a/Makefile b/Makefile\n--- a/Makefile\n+++ b/Makefile\n@@ -1,2 +1,3 @@\n check:\n \tpython3 -m pytest -q tests\n+all:\n"

const fix = `sed -i 's/a - b/a + b/' calc/core.py`

// A repoRow is what an agent does with the repository, and why the attempt fails; "" if it passes.
type repoRow struct {
	name, script, reason string
	tests                map[string]any
}

// TestRepoPatch: an honest fix passes, and a forged one does not, whatever it does to the tests or to git.
func TestRepoPatch(t *testing.T) {
	judgeRows(t, []repoRow{
		{"honest fix", fix, "", nil},
		{"honest fix where sensitive paths are allowed", fix + `; echo '# x' > setup.cfg`, "", map[string]any{"candidate_policy": map[string]any{"allow_sensitive_paths": []string{"setup.cfg"}}}},
		{"no change", `true`, "empty_patch", nil},
		{"wrong fix", `echo 'def add(a, b): return 4' > calc/core.py`, "tests_failed", nil},
		{"outside allow_paths", fix + `; echo x > other.txt`, "candidate_policy_denied", map[string]any{"candidate_policy": map[string]any{"allow_paths": []string{"calc/**"}}}},
		{"edits only the tests", `echo 'def test_old(): pass' > tests/test_old.py`, "empty_patch", nil},
		{"honest fix and an edited test", fix + `; echo 'def test_old(): assert False' > tests/test_old.py`, "", nil},
		{"honest fix and a conftest", fix + `; echo 'raise SystemExit(1)' > conftest.py`, "", nil},
		{"honest fix that imports a new module among the tests", `echo 'from tests.impl import add' > calc/core.py; echo 'def add(a, b): return a + b' > tests/impl.py`, "", nil},
		{"module among the tests in place of pytest", `echo 'import pytest' > calc/core.py; printf 'import os; os._exit(0)' > tests/pytest.py`, "tests_failed", nil},
		{"plants the test's file", `printf 'def test_add(): pass\n' > tests/test_new.py`, "empty_patch", nil},
		{"plants the test's file where tests are allowed", `printf 'def test_add(): pass\n' > tests/test_new.py`, "tests_failed", map[string]any{"candidate_policy": map[string]any{"allow_sensitive_paths": []string{"tests/**"}}}},
		{"makes the test's file a directory", `mkdir -p tests/test_new.py; echo x > tests/test_new.py/x`, "tests_failed", map[string]any{"candidate_policy": map[string]any{"allow_sensitive_paths": []string{"tests/**"}}}},
		{"link in place of a package", `mv calc /tmp/calc; ln -s /tmp/calc calc`, "tests_failed", nil},
		{"own securebench directory", `mkdir -p x; echo x > x/y; mkdir -p securebench/public; echo x > securebench/z`, "tests_failed", nil},
		{"honest fix where tests are named", fix, "", map[string]any{"command": "python3 -m pytest -q tests/test_new.py::test_add tests/test_old.py"}},
		{"wrong fix where tests are named", "echo 'def add(a, b): return 4' > calc/core.py", "tests_failed", map[string]any{"command": "python3 -m pytest -q tests/test_new.py::test_add tests/test_old.py"}},
		{"attributes that hide", `echo '* -diff binary' > .gitattributes; echo 'def add(a, b): return 4' > calc/core.py`, "tests_failed", nil},
		{"hooks and filters", `git config filter.x.clean 'cat /etc/passwd'; git config core.hooksPath /tmp; git config core.fsmonitor 'touch /tmp/ran'; echo '* filter=x' > .git/info/attributes; echo 'def add(a, b): return 4' > calc/core.py`, "tests_failed", nil},
		{"index that lies", `git update-index --assume-unchanged calc/core.py; git update-index --skip-worktree tests/test_old.py; echo 'def add(a, b): return 4' > calc/core.py`, "tests_failed", nil},
		{"git directory gone", `rm -rf .git; echo 'def add(a, b): return 4' > calc/core.py`, "tests_failed", nil},
		{"git directory replaced", `rm -rf .git; git init -q; git add -A; git -c user.name=x -c user.email=x@y commit -qm x; echo 'def add(a, b): return 4' > calc/core.py`, "tests_failed", nil},
		{"exclude that hides", `echo '*' >> .git/info/exclude; echo x > calc/hidden.py`, "tests_failed", nil},
		{"another base", fix, "base_commit_mismatch", map[string]any{"base": "0123456789012345678901234567890123456789"}},
	})
}

// TestRepoPatchForms: the form of a change decides neither way: names, kinds of files, policies.
func TestRepoPatchForms(t *testing.T) {
	judgeRows(t, []repoRow{
		{"honest fix, stashed, and committed on a branch", fix + `; git config user.name x; git config user.email x@y; echo x > calc/new.txt; git stash -qu && git stash pop -q && git checkout -qb mend && git add -A && git commit -qm fix && git checkout -q - && git merge -q mend || rm -r calc`, "", nil},
		{"honest fix, staged", fix + `; git add -A`, "", nil},
		{"honest fix in a new file", `echo 'def add(a, b): return a + b' > calc/impl.py; echo 'from calc.impl import add' > calc/core.py`, "", nil},
		{"honest fix with a space and an umlaut in a name", fix + `; echo x > "calc/a ö.txt"`, "", nil},
		{"honest fix with a CRLF file", fix + `; printf 'three\r\n' >> calc/crlf.txt`, "", nil},
		{"honest fix with a Latin-1 file", fix + `; printf 'th\351\n' >> calc/latin.txt`, "", nil},
		{"honest fix with a binary file", fix + `; printf '\0\1\2' > calc/blob.bin; printf x >> directory/deep/file.data`, "", nil},
		{"honest fix and a deleted file", fix + `; rm directory/deep/file.data`, "", nil},
		{"honest fix and an ignored file", fix + `; mkdir build; echo x > build/out; echo x > y.tmp`, "", nil},
		{"honest fix and a change to a tracked ignored file", fix + `; echo more >> kept.tmp`, "", nil},
		{"honest fix, executable, and files for their owner only", `umask 077; ` + fix + `; chmod 700 calc/core.py; chmod 600 calc/__init__.py; mkdir calc/own; echo x > calc/own/file`, "", nil},
		{"honest fix within allow_paths", fix, "", map[string]any{"candidate_policy": map[string]any{"allow_paths": []string{"calc/**"}}}},
		{"honest fix with a setup patch", fix, "", map[string]any{"setup_patch": "diff --git a/setup.txt b/setup.txt\nnew file mode 100644\n--- /dev/null\n+++ b/setup.txt\n@@ -0,0 +1 @@\n+x\n"}},
		{"reads only", `cat calc/core.py task.json securebench/public/*.json`, "empty_patch", nil},
		{"edited test, strict", fix + `; echo 'def test_old(): pass' > tests/test_old.py`, "candidate_policy_denied", map[string]any{"candidate_policy": map[string]any{"strict": true}}},
		{"honest fix and changed data of the tests", fix + `; echo 6 > tests/sum.txt; mkdir testdata; echo 6 > testdata/sum.txt`, "", map[string]any{"command": "python3 -m pytest -q tests && test $(cat tests/sum.txt) = 5 && test ! -e testdata"}},
		{"honest fix, a script, a package's build file and a link", fix + `; printf '#!/bin/sh\n' > bin/more.sh; echo x: > Makefile; mkdir ci; echo > ci/lint.py; ln -s core.py calc/alias.py`, "", nil},
		{"honest fix, and rules that the Makefile includes, where the gold patch changes the Makefile", fix + `; mkdir etc; mv Makefile etc/rules.mk; echo 'include etc/rules.mk' > Makefile`, "", map[string]any{"command": "make check", "gold_patch": goldPatch + makefilePatch}},
		{"no fix, but a Makefile above the one that the gold patch changes", `printf 'check:\n\ttrue\n' > GNUmakefile`, "empty_patch", map[string]any{"command": "make check", "gold_patch": goldPatch + added("etc/rules.mk", "x:")}},
		{"honest fix in an ignored file that the agent's index has", `mkdir build; echo 'def add(a, b): return a + b' > build/impl.py; echo 'from build.impl import add' > calc/core.py; echo x > build/out; git add -f build/impl.py`, "", map[string]any{"command": "test ! -e build/out && python3 -m pytest -q tests"}},
		{"honest fix, and an index that git cannot read", fix + `; head -c 99 /dev/urandom > .git/index`, "", nil},
		{"honest fix in a package named test", `echo 'from calc.test.impl import add' > calc/core.py; echo 'from calc.test.more import add' > calc/test/impl.py; echo 'def add(a, b): return a + b' > calc/test/more.py`, "", map[string]any{"gold_patch": ""}},
		{"honest fix with tests of its own", fix + `; printf 'def test_mine():\n    assert False\n' > tests/test_mine.py; echo x > tests/data.txt; mkdir web; echo x > web/a.spec.ts`, "", nil},
		{"tests of its own, strict", fix + `; printf 'def test_mine(): pass\n' > tests/test_mine.py`, "candidate_policy_denied", map[string]any{"candidate_policy": map[string]any{"strict": true}}},
		{"honest fix and a changed path that is preserved", fix + `; echo x > setup.cfg; echo 'def test_old(): assert False' > tests/test_old.py`, "", map[string]any{"candidate_policy": map[string]any{"patch_preserved_paths": []string{"setup.cfg", "tests"}}}},
		{"nothing but a path that is preserved", `echo x > setup.cfg`, "empty_patch", map[string]any{"candidate_policy": map[string]any{"patch_preserved_paths": []string{"setup.cfg"}}}},
		{"link", `ln -s /etc/passwd calc/link`, "empty_patch", nil},
		{"link, strict", `ln -s /etc/passwd calc/link`, "candidate_policy_denied", map[string]any{"candidate_policy": map[string]any{"strict": true}}},
		{"honest, with a link of an environment and a nested repository", fix + `; mkdir -p .venv/bin sub; ln -s /usr/bin/python3 .venv/bin/python3; cd sub; git init -q; echo x > f; git add f; git -c user.name=x -c user.email=x@y commit -qm x`, "", nil},
		{"honest, a module named like a test", `echo 'def total(a, b): return a + b' > calc/test_utils.py; printf 'from calc.test_utils import total\n\n\ndef add(a, b):\n    return total(a, b)\n' > calc/core.py`, "", nil},
		{"honest fix beside a repository without a commit and what its owner cannot read", `git init -q fresh; echo x > fresh/f; mkdir d; echo x > d/token; chmod 0 d/token d; ` + fix + `; chmod 0 calc/core.py`, "", nil},
		{"honest fix in a module of the image that is named like a test", `sed -i 's/a - b/mode.sum(a, b)/; 1i from calc import test_mode as mode' calc/core.py; echo 'def sum(a, b): return a + b' > calc/test_mode.py`, "", nil},
		{"nested repository", `mkdir sub; cd sub; git init -q; echo x > f; git add f; git -c user.name=x -c user.email=x@y commit -qm x`, "empty_patch", nil},
		{"honest fix beside a module with a name of its own", fix + `; echo x = 1 > helpers.py; mkdir -p calc/json; echo > calc/json/__init__.py`, "", nil},
	})
}

func judgeRows(t *testing.T, tests []repoRow) {
	t.Helper()
	w := newRepoWorld(t)
	twins := map[string]bool{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if key := fmt.Sprint(tt.tests); tt.reason != "" && tt.reason != "base_commit_mismatch" && !twins[key] {
				twins[key] = true
				if _, v := w.attempt(t, fix, tt.tests); v.Status != verifiers.Passed {
					t.Errorf("the honest twin: %s %q: %s", v.Status, v.Reason, v.Message)
				}
			}
			result, v := w.attempt(t, tt.script, tt.tests)
			if result.Failure != nil {
				t.Fatalf("no candidate: %+v %s", result.Failure, result.Exit.Stderr.String())
			}
			if v.Reason != tt.reason || (v.Status == verifiers.Passed) != (tt.reason == "") {
				t.Errorf("%s %q: %s\n%s%s\npatch:\n%.2000s", v.Status, v.Reason, v.Message, v.Stdout.String(), v.Stderr.String(), result.Candidate.Patch)
			}
		})
	}
}

// TestRepoPatchAssets: a task's files hide no directory of the repository, are visible to
// the agent and to the tests, and are not part of the patch.
func TestRepoPatchAssets(t *testing.T) {
	w := newRepoWorld(t)
	tests := map[string]any{
		"assets":  []map[string]any{{"path": "calc"}, {"path": "new", "mount": "tests/new", "read_only": false}, {"path": "far", "mount": "far/away"}},
		"command": "set -e; for f in calc/more.txt tests/new/more.txt far/away/more.txt; do grep -q more $f; done; test -f securebench/public/repo.json; python3 -m pytest -q tests",
	}
	look := "set -e; grep -q more calc/more.txt tests/new/more.txt far/away/more.txt; test -f calc/core.py -a -f tests/test_old.py; grep -q rules task.json; echo x >> tests/new/more.txt; "
	result, v := w.attempt(t, look+fix, tests)
	if v.Status != verifiers.Passed || !strings.HasPrefix(result.Candidate.Patch, "diff --git a/calc/core.py") || strings.Count(result.Candidate.Patch, "diff --git") != 1 {
		t.Errorf("%s %q: %s\n%s%s\n%s\n%+v", v.Status, v.Reason, v.Message, v.Stdout.String(), v.Stderr.String(), result.Candidate.Patch, result.Exit.Stderr.String())
	}
}

// TestRepoPatchLeavesOut: the record names what an agent left and its patch lacks. A patch that is too long without it is
// the agent's failure.
func TestRepoPatchLeavesOut(t *testing.T) {
	w := newRepoWorld(t)
	result, v := w.attempt(t, `git init -q empty; echo x > .gitignore; head -c 20000000 /dev/urandom > "dump 1.bin"; truncate -s 1G disk.img; `+fix, nil)
	want := []string{"disk.img (not in the patch)", "dump 1.bin (not in the patch)", "empty/ (not in the patch)"}
	if v.Status != verifiers.Passed || !slices.Equal(result.Candidate.Dropped, want) {
		t.Errorf("%s %s, left out %q", v.Status, v.Reason, result.Candidate.Dropped)
	}
	result, _ = w.attempt(t, `for i in $(seq 30); do head -c 1000000 /dev/urandom > calc/$i.bin; done`, nil)
	if result.Failure == nil || result.Failure.Reason != "candidate_too_big" {
		t.Errorf("failure %+v", result.Failure)
	}
}

// added returns the patch that adds a file with these lines.
func added(name string, body ...string) string {
	text := fmt.Sprintf("diff --git a/%s b/%s\nnew file mode 100644\n--- /dev/null\n+++ b/%s\n@@ -0,0 +1,%d @@\n", name, name, name, len(body))
	for _, line := range body {
		text += "+" + line + "\n"
	}
	return text
}

// TestLargePatch: what git needs to apply a patch leaves no room taken for the runs that follow.
func TestLargePatch(t *testing.T) {
	w := newRepoWorld(t)
	w.bytes = 16 << 20
	random, lines := rand.New(rand.NewPCG(1, 2)), []string{}
	for range 420 {
		line := ""
		for range 1 << 10 {
			line += fmt.Sprintf("%013x", random.Uint64()>>12)
		}
		lines = append(lines, line)
	}
	large := added("calc/table.txt", lines...) + goldPatch
	task, pack := w.task(t, map[string]any{"gold_patch": large})
	if v := w.judge(t, task, pack, harness.Result{Candidate: candidate.Candidate{Patch: large}}); v.Status != verifiers.Passed {
		t.Errorf("%s %q: %s\n%s", v.Status, v.Reason, v.Message, v.Stderr.String())
	}
}

// TestRepoPatchRaw judges patches that did not come from a repository. Reason "" is a
// pass, "*" any failure.
func TestRepoPatchRaw(t *testing.T) {
	w := newRepoWorld(t)
	const (
		mend   = "diff --git a/calc/core.py b/calc/core.py\n--- a/calc/core.py\n+++ b/calc/core.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"
		denied = "candidate_policy_denied"
	)
	tests := []struct{ name, patch, reason string }{
		{"honest", mend, ""},
		{"honest, new file", mend + added("calc/more.py", "x = 1"), ""},
		{"honest, quoted name", mend + strings.ReplaceAll(added("calc/X", "x"), "/calc/X", `/calc/X`), ""},
		{"honest, quoted umlaut", mend + "diff --git \"a/calc/\\303\\266\" \"b/calc/\\303\\266\"\nnew file mode 100644\n--- /dev/null\n+++ \"b/calc/\\303\\266\"\n@@ -0,0 +1 @@\n+x\n", ""},
		{"honest, rename", mend + "diff --git a/calc/latin.txt b/calc/roman.txt\nsimilarity index 100%\nrename from calc/latin.txt\nrename to calc/roman.txt\n", ""},
		{"honest, mode change", mend + "diff --git a/calc/__init__.py b/calc/__init__.py\nold mode 100644\nnew mode 100755\n", ""},
		{"honest, CRLF", mend + "diff --git a/calc/crlf.txt b/calc/crlf.txt\n--- a/calc/crlf.txt\n+++ b/calc/crlf.txt\n@@ -1,2 +1,3 @@\n one\r\n two\r\n+three\r\n", ""},
		{"honest, deletion", mend + "diff --git a/calc/crlf.txt b/calc/crlf.txt\ndeleted file mode 100644\n--- a/calc/crlf.txt\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\r\n-two\r\n", ""},

		{"nonsense", "this is no patch\n", "candidate_patch_invalid"},
		{"blank", " \n\n", "empty_patch"},
		{"traversal", mend + added("../../etc/evil", "x"), denied},
		{"traversal within", mend + added("calc/../tests/test_new.py", "def test_add(): pass"), denied},
		{"absolute", mend + added("/etc/evil", "x"), denied},
		{"quoted traversal", mend + "diff --git \"a/..\\057evil\" \"b/..\\057evil\"\nnew file mode 100644\n--- /dev/null\n+++ \"b/..\\057evil\"\n@@ -0,0 +1 @@\n+x\n", denied},
		{"git configuration", mend + added(".git/config", "[core]"), denied},
		{"git configuration in capitals", mend + added(".GIT/config", "[core]"), denied},
		{"git short name", mend + added("GIT~1/config", "[core]"), denied},
		{"nested git", mend + added("calc/.git/hooks/x", "x"), denied},
		{"own directory of sbench", mend + added("securebench/evaluator/x", "x"), denied},
		{"own directory of sbench in capitals", mend + added("SecureBench/x", "x"), denied},
		{"left out, link", mend + "diff --git a/calc/l b/calc/l\nnew file mode 120000\n--- /dev/null\n+++ b/calc/l\n@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n", ""},
		{"honest, link", mend + "diff --git a/calc/l b/calc/l\nnew file mode 120000\n--- /dev/null\n+++ b/calc/l\n@@ -0,0 +1 @@\n+../bin/test\n\\ No newline at end of file\n", ""},
		{"left out, link out of the repository", mend + "diff --git a/calc/l b/calc/l\nnew file mode 120000\n--- /dev/null\n+++ b/calc/l\n@@ -0,0 +1 @@\n+../../etc\n\\ No newline at end of file\n", ""},
		{"left out, link into git's directory", mend + "diff --git a/calc/l b/calc/l\nnew file mode 120000\n--- /dev/null\n+++ b/calc/l\n@@ -0,0 +1 @@\n+../.git/config\n\\ No newline at end of file\n", ""},
		{"left out, link through another", mend + "diff --git a/calc/l b/calc/l\nnew file mode 120000\n--- /dev/null\n+++ b/calc/l\n@@ -0,0 +1 @@\n+x/../y\n\\ No newline at end of file\n", ""},
		{"left out, submodule", mend + "diff --git a/sub b/sub\nnew file mode 160000\n--- /dev/null\n+++ b/sub\n@@ -0,0 +1 @@\n+Subproject commit 0123456789012345678901234567890123456789\n", ""},
		{"left out, names that a shell's slip makes", mend + "diff --git \"a/a\\nb\" \"b/a\\nb\"\nnew file mode 100644\n--- /dev/null\n+++ \"b/a\\nb\"\n@@ -0,0 +1 @@\n+x\ndiff --git \"a/\\377\" \"b/\\377\"\nnew file mode 100644\n--- /dev/null\n+++ \"b/\\377\"\n@@ -0,0 +1 @@\n+x\n", ""},
		{"setuid mode", mend + "diff --git a/calc/core2.py b/calc/core2.py\nnew file mode 104755\n--- /dev/null\n+++ b/calc/core2.py\n@@ -0,0 +1 @@\n+x\n", "candidate_patch_invalid"},
		{"type change", "diff --git a/calc/core.py b/calc/core.py\nold mode 100644\nnew mode 120000\n", "empty_patch"},
		{"rename of a test", mend + "diff --git a/tests/test_old.py b/calc/old.py\nsimilarity index 100%\nrename from tests/test_old.py\nrename to calc/old.py\n", ""},
		{"rename onto a conftest", mend + "diff --git a/calc/latin.txt b/conftest.py\nsimilarity index 100%\nrename from calc/latin.txt\nrename to conftest.py\n", ""},
		{"copy onto a conftest", mend + "diff --git a/calc/core.py b/conftest.py\nsimilarity index 100%\ncopy from calc/core.py\ncopy to conftest.py\n", ""},
		{"names that differ", "diff --git a/calc/core.py b/calc/core.py\n--- a/calc/core.py\n+++ b/tests/test_new.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n", "*"},
		{"two diffs for one file", mend + mend, "*"},
		{"file and directory", mend + added("calc/x", "1") + added("calc/x/y", "1"), "*"},
		{"hunk that lies about its length", "diff --git a/calc/core.py b/calc/core.py\n--- a/calc/core.py\n+++ b/calc/core.py\n@@ -1,2 +1,99999 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n", "candidate_patch_invalid"},
		{"hunk that does not apply", strings.ReplaceAll(mend, "return a - b", "return a * b"), "candidate_patch_failed"},
		{"new file that is there", added("calc/core.py", "def add(a, b): return a + b"), "candidate_patch_failed"},
		{"hidden second diff after junk", mend + "junk\n" + added("conftest.py", "x"), "*"},
		{"diff without git header", "--- a/conftest.py\n+++ b/conftest.py\n@@ -0,0 +1 @@\n+x\n", "*"},
		{"binary hunk of rubbish", mend + "diff --git a/calc/b b/calc/b\nnew file mode 100644\nGIT binary patch\nliteral 5\nzzzzz\n\n", "*"},
		{"left out, CR in a name", mend + added("calc/a\rb", "x"), ""},
		{"left out, NUL in a name", mend + "diff --git \"a/x\\000y\" \"b/x\\000y\"\nnew file mode 100644\n--- /dev/null\n+++ \"b/x\\000y\"\n@@ -0,0 +1 @@\n+x\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			task, pack := w.task(t, nil)
			v := w.judge(t, task, pack, harness.Result{Candidate: candidate.Candidate{Patch: tt.patch}})
			switch {
			case tt.reason == "*" && v.Status == verifiers.Failed:
				t.Log(v.Reason)
			case v.Reason != tt.reason || (v.Status == verifiers.Passed) != (tt.reason == ""):
				t.Errorf("%s %q: %s\n%s%s", v.Status, v.Reason, v.Message, v.Stdout.String(), v.Stderr.String())
			}
		})
	}
}

// TestForeignPatch: a prediction is read and applied as SWE-bench's harness does, and the record says how.
func TestForeignPatch(t *testing.T) {
	w := newRepoWorld(t)
	const stub = "diff --git a/calc/x.bin b/calc/x.bin\nnew file mode 100644\nindex 0000000..1111111\nBinary files /dev/null and b/calc/x.bin differ\n"
	tests := []struct{ name, patch, by, reason, message string }{
		{"as git writes it", goldPatch, "git apply", "", ""},
		{"code block with sentences", "Here is the patch:\n```diff\n" + goldPatch + "```\nIt adds.\n", "git apply", "", ""},
		{"CR LF", strings.ReplaceAll(goldPatch, "\n", "\r\n"), "git apply", "", ""},
		{"binary file without content", goldPatch + stub, "git apply", "", ""},
		{"file that an ignore rule names", goldPatch + added("build/lib.txt", "x"), "git apply", "", ""},
		{"wrong context", strings.Replace(goldPatch, " def add(a, b):", " def add(x, y):", 1), "git apply -C0", "", ""},
		{"no context", strings.Replace(goldPatch, "@@ -1,2 +1,2 @@\n def add(a, b):\n", "@@ -1 +1 @@\n", 1), "git apply -C0", "", ""},
		{"no prefix", strings.NewReplacer("a/calc", "calc", "b/calc", "calc").Replace(goldPatch), "", "candidate_patch_failed", ""},
		{"wrong line", strings.Replace(goldPatch, "-    return a - b", "-    return a * b", 1), "", "candidate_patch_failed", `at line 1 of "calc/core.py"`},
		{"too few lines", strings.Replace(goldPatch, "-1,2 +1,2", "-1,3 +1,3", 1) + "```\n", "", "candidate_patch_invalid", "line 8 of the patch"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			task, pack := w.task(t, nil)
			v := w.judge(t, task, pack, harness.Result{Candidate: candidate.Candidate{Patch: tt.patch, Foreign: true}})
			by, _ := v.Metadata["patch_applied_by"].(string)
			if v.Reason != tt.reason || (v.Status == verifiers.Passed) != (tt.reason == "") || by != tt.by || !strings.Contains(v.Message, tt.message) {
				t.Errorf("%s %q: %s, by %q %v\n%s%s", v.Status, v.Reason, v.Message, by, v.Metadata, v.Stdout.String(), v.Stderr.String())
			}
		})
	}
}

// TestTestsInSource: the tests' patch changes a file of the product, and the candidate does, too.
func TestTestsInSource(t *testing.T) {
	w := newRepoWorld(t)
	tests := map[string]any{
		"command":    "python3 -m doctest calc/core.py",
		"test_patch": "diff --git a/calc/core.py b/calc/core.py\n--- a/calc/core.py\n+++ b/calc/core.py\n@@ -1,2 +1,4 @@\n+\"\"\">>> add(2, 3)\n+5\"\"\"\n def add(a, b):\n     return a - b\n",
	}
	for _, tt := range []struct{ name, script, reason string }{
		{"honest fix", fix, ""},
		{"wrong fix", "sed -i 's/a - b/a * b/' calc/core.py", "tests_failed"},
		{"no fix, and an expectation of its own", `printf '""">>> add(2, 3)\n-1"""\ndef add(a, b):\n    return a - b\n' > calc/core.py`, "tests_failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, v := w.attempt(t, tt.script, tests); v.Reason != tt.reason {
				t.Errorf("%s %q: %s\n%s%s", v.Status, v.Reason, v.Message, v.Stdout.String(), v.Stderr.String())
			}
		})
	}
}
