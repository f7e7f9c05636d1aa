package code_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/verdicttest"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
)

// codeCase is one entry of a table in testdata.
type codeCase struct {
	name  string
	files map[string]string
}

func readCases(tb testing.TB, name string) []codeCase {
	tb.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name))
	must.Do(tb, err)
	var cases []codeCase
	for _, f := range archive.Files {
		name, file, _ := strings.Cut(f.Name, "/")
		if len(cases) == 0 || cases[len(cases)-1].name != name {
			cases = append(cases, codeCase{name: name, files: map[string]string{}})
		}
		cases[len(cases)-1].files[file] = string(f.Data)
	}
	return cases
}

func (c codeCase) task() codeTask {
	return codeTask{Tests: c.files["tests.py"], Starter: c.files["starter.py"], Timeout: 120}
}

// TestCodeAttacks: no attack is an error or passes, unless "accepted" says with which assurance and
// why. Every honest twin passes the same tests.
func TestCodeAttacks(t *testing.T) {
	w := newCodeWorld(t)
	w.limits.Memory, w.limits.Pids = 256<<20, 64
	for _, c := range verdicttest.Short(readCases(t, "attacks.txtar")) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			task := c.task()
			task.Reference = c.files["honest.py"]
			v, err := w.judge(t, task, c.files["honest.py"])
			if err != nil || v.Status != verifiers.Passed || v.Assurance == "" {
				t.Errorf("the honest twin: %v %s %s %s (%s) %+v\n%s", err, v.Status, v.Assurance, v.Reason, v.Message, v.Contrast, v.Stderr)
			}
			verdicttest.Tally(t, "code_completion", verdicttest.Honest, v)
			if c.files["endless"] != "" {
				task.Timeout = 3
			}
			v, err = w.judge(t, task, c.files["attack.py"])
			verdicttest.Tally(t, "code_completion", verdicttest.Forged, v)
			if want, _, ok := strings.Cut(c.files["accepted"], ":"); ok {
				if err != nil || string(v.Assurance) != want {
					t.Errorf("the attack: %v %s %q %s, want %q %+v", err, v.Status, v.Assurance, v.Reason, want, v.Contrast)
				}
				return
			}
			if err != nil || v.Status != verifiers.Failed || v.Score != 0 || v.Assurance != "" {
				t.Errorf("the attack: %v %s %s %+v\n%s", err, v.Status, v.Reason, v.Contrast, v.Stderr)
			}
			t.Logf("%s (%s) %+v", v.Reason, v.Message, v.Contrast)
		})
	}
}

// TestCodeHonest: a program passes or fails as candidate and tests do in one file in a
// plain interpreter, unless "differs" says why not.
func TestCodeHonest(t *testing.T) {
	w := newCodeWorld(t)
	plain, err := w.engine.Create(t.Context(), runtime.Config{Name: "plain", Image: w.image, Limits: w.limits, Persistent: true, Workdir: "/tmp"})
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, plain.Close(context.Background())) })
	all := readCases(t, "honest.txtar")
	t.Logf("%d honest programs", len(all))
	for _, c := range verdicttest.Short(all) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			task, fails := c.task(), c.files["fails"] != ""
			if !fails {
				task.Reference = c.files["candidate.py"]
			}
			v, err := w.judge(t, task, c.files["candidate.py"])
			if !fails {
				verdicttest.Tally(t, "code_completion", verdicttest.Honest, v)
			}
			if err != nil || (v.Status == verifiers.Failed) != fails {
				t.Errorf("%v %s %s (%s) %+v\n%s", err, v.Status, v.Reason, v.Message, v.Contrast, v.Stderr)
			}
			must.Equal(t, strings.TrimSpace(c.files["fails"]), v.Reason)
			if other := c.files["other.py"]; other != "" {
				v, err := w.judge(t, task, other)
				verdicttest.Tally(t, "code_completion", verdicttest.Honest, v)
				if err != nil || v.Status != verifiers.Passed {
					t.Errorf("another right answer: %v %s %s (%s) %+v\n%s", err, v.Status, v.Reason, v.Message, v.Contrast, v.Stderr)
				}
			}
			exit, err := plain.Exec(t.Context(), runtime.Process{
				Args:  []string{"sh", "-c", `program="$(mktemp --suffix .py)"; cat >"$program"; HOME=/tmp exec python3 "$program"`},
				Stdin: strings.NewReader(strings.TrimPrefix(c.files["candidate.py"], "\ufeff") + "\n" + c.files["tests.py"]), Wall: 2 * time.Minute,
			})
			must.Do(t, err)
			if exit.Success() == fails && c.files["differs"] == "" {
				t.Errorf("in a plain interpreter it %s\n%s", exit, exit.Stderr)
			}
		})
	}
}

// TestCodeErrors: a fault of the pack is an error, whatever the candidate.
func TestCodeErrors(t *testing.T) {
	w := newCodeWorld(t)
	for _, c := range []struct {
		name string
		task codeTask
		want string
	}{
		{"tests that do not compile", codeTask{Tests: "assert f( == 1", Timeout: 60}, "tests_malformed"},
		{"a reference that fails", codeTask{Tests: "assert f() == 1", Reference: "def f():\n    return 2\n", Timeout: 60}, "reference_fails"},
		{"a prompt whose imports are missing", codeTask{Prompt: "import no_such_module\ndef f():\n    pass\n", Tests: "assert f() == 1", Timeout: 60}, "tests_malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, code := range []string{"def f():\n    return 1\n", "import os\nos._exit(0)\n", "1/0"} {
				if v, err := w.judge(t, c.task, code); err != nil || v.Status != verifiers.Faulty || v.Reason != c.want {
					t.Errorf("%v %s %s, want %s", err, v.Status, v.Reason, c.want)
				}
			}
		})
	}
}

func TestCodePending(t *testing.T) {
	w := codeWorld{limits: runtime.DefaultLimits()}
	v, err := w.judge(t, codeTask{Tests: "assert(f() == 1)", Language: "javascript"}, "function f() { return 1 }")
	if err != nil || v.Status != verifiers.Pending || v.Reason == "" || v.Message == "" {
		t.Errorf("%v %+v", err, v)
	}
}

// TestCodeLeavesNothing: a run finds nothing of an earlier one, and a sandbox that cannot
// be cleaned is not used again.
func TestCodeLeavesNothing(t *testing.T) {
	w := newCodeWorld(t)
	candidate := must.Read(t, "testdata/leaves.py")
	for i := range 3 { // other tests each time: no two runs of the same tests share a sandbox
		v, err := w.judge(t, codeTask{Tests: fmt.Sprintf("assert add(2, %d) == %d\n", i, 2+i), Reference: addCode, Timeout: 120}, string(candidate))
		if err != nil || v.Status != verifiers.Passed {
			t.Fatalf("%v %s %s %+v\n%s", err, v.Status, v.Reason, v.Contrast, v.Stderr)
		}
	}
}

// TestCodeMemory: the memory of a run has nothing that an earlier run in its sandbox has printed, or has called a file.
func TestCodeMemory(t *testing.T) {
	w := newCodeWorld(t)
	const candidate = `
import ctypes, re
for line in open('/proc/self/maps'):
    place, access = line.split()[:2]
    begin, end = (int(n, 16) for n in place.split('-'))
    if access[:2] == 'rw':
        assert not re.search(b'[l]eft by an earlier run', ctypes.string_at(begin, end - begin)), line
name = chr(108) + 'eft by an earlier run'
for i in range(100):
    print(name, flush=True)
    open('/tmp/%s %d' % (name, i), 'w').close()
` + addCode
	for i := range 3 {
		v, err := w.judge(t, codeTask{Tests: fmt.Sprintf("assert add(2, %d) == %d\n", i, 2+i), Reference: addCode, Timeout: 120}, candidate)
		if err != nil || v.Status != verifiers.Passed || v.Assurance != verifiers.Sealed {
			t.Errorf("judgement %d: %v %s %s %s\n%s", i, err, v.Status, v.Reason, v.Assurance, v.Stderr)
		}
	}
}

// TestCodeCounters: a candidate beside the tests cannot tell from process ids, which continue
// in a kept sandbox, that it has run before.
func TestCodeCounters(t *testing.T) {
	w := newCodeWorld(t)
	const candidate = `
import os
if os.getpid() > 400:
    raise SystemExit('it was here')
while True:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.wait()
    if pid > 400:
        break
` + addCode
	for i := range 3 {
		v, err := w.judge(t, codeTask{Tests: "assert add(2, 3) == 5\nassert add(4, 3) == 7\nassert add.__code__\n", Reference: addCode, Timeout: 120}, candidate)
		if err != nil || v.Status != verifiers.Passed {
			t.Errorf("judgement %d: %v %s %s %+v\n%s", i, err, v.Status, v.Reason, v.Contrast, v.Stderr)
		}
	}
}

const addCode = "def add(a, b):\n    return a + b\n"

// TestCodeAnswers: a right answer passes in every form in which chat models write, and a wrong one fails. The record of a
// failure has the first line of what was read.
func TestCodeAnswers(t *testing.T) {
	w := newCodeWorld(t)
	for _, c := range readCases(t, "answers.txtar") {
		for name, answer := range c.files {
			kind, name, ok := strings.Cut(name, "/")
			if !ok {
				continue
			}
			t.Run(c.name+"/"+kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				task := codeTask{Prompt: c.files["prompt.py"], Tests: c.files["tests.py"], Reference: c.files["reference.py"], Extract: "fenced", Timeout: 120}
				v, err := w.judge(t, task, answer)
				_, read := v.Metadata["read"]
				if fails := kind == "wrong"; err != nil || (v.Status == verifiers.Failed) != fails || read != fails {
					t.Errorf("%v %s %s (%s) %v\n%s", err, v.Status, v.Reason, v.Message, v.Metadata, v.Stderr)
				}
			})
		}
	}
}
