package verifiers_test

import (
	"context"
	"sync"
	"testing"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
)

// countingEngine counts the sandboxes it makes, by name.
type countingEngine struct {
	verifiers.Engine
	mu    sync.Mutex
	count map[string]int
}

func (e *countingEngine) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	e.mu.Lock()
	e.count[cfg.Name]++
	e.mu.Unlock()
	return e.Engine.Create(ctx, cfg)
}

func newCountedWorld(t *testing.T) (codeWorld, map[string]int) {
	w := newCodeWorld(t)
	e := &countingEngine{Engine: w.engine, count: map[string]int{}}
	w.engine, w.cells = e, verifiers.NewCellPool(e)
	t.Cleanup(func() {
		if err := w.cells.Close(context.Background()); err != nil {
			t.Errorf("close the pool: %v", err)
		}
	})
	return w, e.count
}

const addCode = "def add(a, b):\n    return a + b\n"

// TestCellPoolLeavesNothing: what one task's tests leave, the next do not find.
func TestCellPoolLeavesNothing(t *testing.T) {
	w, made := newCountedWorld(t)
	leave := `
import builtins, os, sys, time, types, signal
for folder in ('/tmp', '/dev/shm'):
    os.makedirs(folder + '/a/b')
    open(folder + '/a/b/left', 'w').write('x')
    os.symlink('/etc', folder + '/a/link')
builtins.left = 1
sys.modules['left'] = types.ModuleType('left')
os.environ['LEFT'] = '1'
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if not os.fork():
    os.setsid()
    time.sleep(1000)
os.chdir('/tmp/a')
os.umask(0)
assert add(2, 3) == 5
print('printed by the first')
`
	look := `
import os, sys
assert os.listdir('/tmp') == [] and os.listdir('/dev/shm') == [], 'files'
assert [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())] == [], 'processes'
assert 'left' not in sys.modules and 'LEFT' not in os.environ and os.getcwd() == '/tmp'
assert os.path.isdir('/etc')
try:
    left
except NameError:
    pass
else:
    raise AssertionError
assert add(2, 3) == 5
print('printed by the second')
`
	for i, tests := range []string{leave, look, leave, look} {
		v, err := w.judge(t, codeTask{Tests: tests, Timeout: 20}, addCode)
		if err != nil || v.Status != verifiers.Passed {
			t.Fatalf("task %d: %v %s %s\n%s", i, err, v.Status, v.Reason, v.Stderr)
		}
		if want := map[bool]string{true: "printed by the first\n", false: "printed by the second\n"}[i%2 == 0]; v.Stderr.String() != want {
			t.Errorf("task %d: output %q, want %q", i, v.Stderr, want)
		}
	}
	if made["verifier-tests"] != 1 || made["verifier-candidate"] != 4 {
		t.Errorf("sandboxes %v, want one for the tests and four for candidates", made)
	}
}

// TestCellPoolAfterTrouble: whatever ends a verification, the next is judged
// rightly, in a cell that is kept only if it is sound.
func TestCellPoolAfterTrouble(t *testing.T) {
	w, made := newCountedWorld(t)
	w.limits.Memory = 128 << 20
	for _, c := range []struct {
		name, code, tests, reason string
		kept                      bool
	}{
		{"wrong", "def add(a, b):\n    return 0\n", "assert add(2, 3) == 5", "tests_failed", true},
		{"not loaded", "1/0", "assert add(2, 3) == 5", "candidate_not_loaded", true},
		{"broken frame", "import os, cellpeer\nos.write(cellpeer.this.outfd, b'\\xff' * 9)\n", "assert add(2, 3) == 5", "candidate_protocol_violation", false},
		{"no message", "import os, cellpeer\nos.write(cellpeer.this.outfd, b'\\0\\0\\0\\1x')\nimport time; time.sleep(9)", "assert add(2, 3) == 5", "candidate_protocol_violation", false},
		{"gone in call", "import os\ndef add(a, b):\n    os._exit(0)\n", "assert add(2, 3) == 5", "candidate_gone", false},
		{"gone after call", "import os, threading\ndef add(a, b):\n    threading.Timer(.2, os._exit, (0,)).start()\n    return a + b\n", "assert add(2, 3) == 5\nimport time; time.sleep(.5)", "", true},
		{"hang", "def add(a, b):\n    while 1: pass\n", "assert add(2, 3) == 5", "verifier_timeout", false},
		{"tests leave", addCode, "import os\nos._exit(7)", "tests_ended", false},
		{"tests are killed", addCode, "import os\nos.kill(os.getpid(), 9)", "tests_ended", false},
		{"tests abort", addCode, "import os\nos.abort()", "tests_ended", false},
		{"tests exhaust the memory", addCode, "x = []\nwhile add(1, 1):\n    x.append(bytearray(1 << 24))", "verifier_out_of_memory", false},
		{"tests end during a call", "import time\ndef add(a, b):\n    time.sleep(1)\n    return b'\\x80\\0\\0\\1' * 9\n",
			"import threading, time\nthreading.Thread(target=add, args=(1, 2), daemon=True).start()\ntime.sleep(.3)\n", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := w.judge(t, codeTask{Tests: c.tests, Timeout: 4}, c.code)
			if err != nil || v.Reason != c.reason {
				t.Errorf("%v %s %s (%s), want %q\n%s", err, v.Status, v.Reason, v.Message, c.reason, v.Stderr)
			}
			before := made["verifier-tests"]
			v, err = w.judge(t, codeTask{Tests: "assert add(2, 3) == 5", Timeout: 20}, addCode)
			if err != nil || v.Status != verifiers.Passed {
				t.Errorf("the next: %v %s %s\n%s", err, v.Status, v.Reason, v.Stderr)
			}
			if kept := made["verifier-tests"] == before; kept != c.kept {
				t.Errorf("kept %v, want %v", kept, c.kept)
			}
		})
	}
}
