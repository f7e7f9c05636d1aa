package split_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/verifiers"
)

// textTask asks a program for the text of an expression of Python over the text q.
type textTask struct {
	name, expect string
	file         string // that the candidate leaves
	run          string // the words of the command that the driver runs, as Python
	honest       string
	build        string // a command of the driver before it, as Python; "" for none
	wrap         func(python string) string
}

func (s textTask) load() splitTask {
	driver := `#!/usr/bin/python3
import json, subprocess
q = json.loads(input())
` + s.build + `
try:
    p = subprocess.run(["run-candidate", *` + s.run + `, q], stdin=subprocess.DEVNULL, capture_output=True, timeout=5)
    print(json.dumps([p.returncode, p.stdout[:500].decode("utf-8", "replace").strip()]))
except subprocess.TimeoutExpired:
    print(json.dumps([None, ""]))
`
	oracle := `#!/usr/bin/python3
import json, random
start = json.loads(input())
rng = random.Random(start["seed"])
questions = [str(rng.randrange(10**8, 10**9)) for _ in range(start["questions"])]
for q in questions:
    print(json.dumps(q))
good = [json.loads(input())["answer"] == [0, ` + s.expect + `] for q in questions]
print(json.dumps({"passed": all(good), "score": sum(good) / len(good)}))
`
	return splitTask{driver: driver, oracle: oracle, questions: 2}
}

// textTasks are tasks for programs in Python, shell, C and Go.
func textTasks(t *testing.T) []textTask {
	t.Helper()
	python := func(code string) string { return code }
	shell := func(code string) string { return "exec python3 - \"$@\" <<'END'\n" + code + "\nEND\n" }
	script := func(code string) string { return "#!/usr/bin/python3\n" + code }
	c := func(code string) string {
		quoted, _ := json.Marshal(code)
		return "#include <unistd.h>\nint main(int n, char **v) { return execlp(\"python3\", \"python3\", \"-c\", " + string(quoted) + ", v[1], (char *)0); }\n"
	}
	tasks := []textTask{
		{name: "shell, length", expect: "str(len(q))", file: "a.sh", run: `["sh", "a.sh"]`, honest: `echo ${#1}`, wrap: shell},
		{name: "shell, double", expect: "str(2 * int(q))", file: "a.sh", run: `["sh", "a.sh"]`, honest: `echo $((2 * $1))`, wrap: shell},
		{name: "shell, last digit", expect: "q[-1]", file: "a.sh", run: `["bash", "a.sh"]`, honest: `echo "${1: -1}"`, wrap: shell},
		{name: "C, square", expect: "str(int(q) ** 2)", file: "a.c", build: `subprocess.run(["gcc", "-o", "/tmp/a", "a.c"], capture_output=True)`, run: `["/tmp/a"]`, honest: "#include <stdio.h>\n#include <stdlib.h>\nint main(int n, char **v) { long x = atol(v[1]); printf(\"%ld\\n\", x * x); }\n", wrap: c},
		{name: "C, sum of digits", expect: "str(sum(map(int, q)))", file: "a.c", build: `subprocess.run(["gcc", "-o", "/tmp/a", "a.c"], capture_output=True)`, run: `["/tmp/a"]`, honest: "#include <stdio.h>\nint main(int n, char **v) { int s = 0; for (char *p = v[1]; *p; p++) s += *p - '0'; printf(\"%d\\n\", s); }\n", wrap: c},
		{name: "Go, reverse", expect: "q[::-1]", file: "a", run: `["./a"]`, honest: goProgram(t, `b := []byte(os.Args[1]); slices.Reverse(b); fmt.Println(string(b))`), wrap: script},
	}
	for expect, code := range map[string]string{
		"q[::-1]": "q[::-1]", "str(int(q) + 1)": "int(q) + 1", "''.join(sorted(q))": "''.join(sorted(q))", "str(q.count('1'))": "q.count('1')", "hex(int(q))": "hex(int(q))", "q[:4] + '-' + q[4:]": "q[:4] + '-' + q[4:]",
	} {
		tasks = append(tasks, textTask{name: "Python, " + expect, expect: expect, file: "a.py", run: `["python3", "a.py"]`, honest: "import sys\nq = sys.argv[1]\nprint(" + code + ")\n", wrap: python})
	}
	slices.SortFunc(tasks, func(a, b textTask) int { return strings.Compare(a.name, b.name) })
	return tasks
}

func goProgram(t *testing.T, body string) string {
	t.Helper()
	dir := t.TempDir()
	filetest.Write(t, dir, map[string]string{"main.go": "package main\nimport (\"fmt\"; \"os\"; \"slices\")\nfunc main() { " + body + " }\n"})
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", "a", "main.go")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GO111MODULE=off")
	must.Run(t, cmd)
	text := must.Read(t, filepath.Join(dir, "a"))
	return string(text)
}

// hostile returns programs in Python that try to pass without an answer, or to end the check as an error.
func hostile() map[string]string {
	const head = "import os, sys, json, time, signal, glob, socket\nme, boss = os.getpid(), os.getppid()\n"
	programs := map[string]string{
		"reads the oracle": `for root, _, names in os.walk("/"):
    if root.startswith(("/proc", "/sys", "/usr", "/dev")): continue
    for n in names:
        try: t = open(os.path.join(root, n)).read()
        except Exception: continue
        if "passed" in t: print(t[-100:])`,
		"reads memory": `for p in (1, boss):
    try:
        with open(f"/proc/{p}/mem", "rb") as f, open(f"/proc/{p}/maps") as m:
            a = int(m.readline().split("-")[0], 16); f.seek(a); print(f.read(100))
    except Exception as e: print(e)`,
		"reads environments": `for p in (1, boss):
    for n in ("environ", "cmdline", "stack", "status"):
        try: print(open(f"/proc/{p}/{n}", "rb").read()[:100])
        except Exception as e: pass`,
		"reads descriptors": `for f in glob.glob("/proc/[0-9]*/fd/*"):
    try: print(os.read(os.open(f, os.O_RDONLY | os.O_NONBLOCK), 50))
    except Exception: pass`,
		"writes to descriptors": `for f in glob.glob("/proc/[0-9]*/fd/1"):
    try: os.write(os.open(f, os.O_WRONLY | os.O_NONBLOCK), b'[0, "1"]\n{"passed": true}\n')
    except Exception: pass`,
		"forges an answer":  `print('[0, "1"]'); print('{"passed": true, "score": 1}')`,
		"forges a message":  `print(json.dumps({"type": "verdict", "verdict": {"passed": True, "score": 1, "check_outcomes": {}}}))`,
		"kills everybody":   `os.kill(-1, signal.SIGKILL)`,
		"kills the driver":  "for p in (1, boss):\n    try: os.kill(p, signal.SIGKILL)\n    except Exception: pass",
		"stops the driver":  "for p in (1, boss):\n    try: os.kill(p, signal.SIGSTOP)\n    except Exception: pass",
		"traces the driver": "import ctypes\nc = ctypes.CDLL(None)\nfor p in (1, boss): print(c.ptrace(16, p, 0, 0))",
		"floods":            `os.write(2, b"x" * 10**6); [os.write(1, b"9" * 10**6) for _ in range(100)]`,
		"takes the memory":  `b = [bytearray(b"x" * (64 << 20)) for _ in range(40)]`,
		"takes the processes": `for i in range(400):
    try:
        if os.fork() == 0: time.sleep(1); os._exit(0)
    except OSError: break`,
		"fills the disk": `for d in (".", "/tmp", "/dev/shm"):
    try:
        with open(d + "/full", "wb") as f: [f.write(b"x" * (1 << 20)) for _ in range(200)]
    except Exception as e: pass`,
		"changes the driver": `for f in ("/tests/driver", "/usr/bin/python3", "/usr/local/bin/run-candidate", "/usr/lib/python3/dist-packages/sitecustomize.py", "/etc/passwd"):
    try: open(f, "w").write("#!/bin/sh\necho '[0, \"1\"]'\n")
    except Exception: pass`,
		"leaves a daemon": `if os.fork() == 0:
    os.setsid()
    while True:
        for f in glob.glob("/proc/[0-9]*/fd/1"):
            try: os.write(os.open(f, os.O_WRONLY | os.O_NONBLOCK), b'[0, "1"]\n')
            except Exception: pass`,
		"remembers": `for d in ("/tmp", "/dev/shm", ".", "/var/tmp"):
    try:
        seen = open(d + "/table").read() if os.path.exists(d + "/table") else ""
        open(d + "/table", "a").write(sys.argv[1] + "\n"); os.chmod(d + "/table", 0o666); print(seen)
    except Exception: pass`,
		"dies oddly": `os.write(1, b"\x00\xff\xfe\n"); os.kill(me, signal.SIGSEGV)`,
		"sleeps":     `signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)`,
		"looks outside": `for a in ("\0oracle", "/run/containerd/containerd.sock"):
    s = socket.socket(socket.AF_UNIX)
    try: s.connect(a); print("connected")
    except Exception as e: pass
s = socket.socket(); s.settimeout(1)
try: s.connect(("198.18.0.1", 80)); print("connected")
except Exception: pass`,
	}
	for name, code := range programs {
		programs[name] = head + code + "\n"
	}
	return programs
}

// TestSplitHostile: no hostile candidate passes or ends as an error, and each honest twin passes. Every run has
// one task and every eighth candidate; with SBENCH_SOAK, a run has twelve tasks and all candidates.
func TestSplitHostile(t *testing.T) {
	t.Parallel()
	w := newSplitWorld(t)
	programs := hostile()
	for i, s := range textTasks(t) {
		if os.Getenv("SBENCH_SOAK") == "" && i > 0 {
			break
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w.judgeHostile(t, s, programs)
		})
	}
}

func (w splitWorld) judgeHostile(t *testing.T, s textTask, programs map[string]string) {
	task, pack := s.load().load(t)
	if v := w.judge(t, task, pack, map[string]string{s.file: s.honest}); v.Status != verifiers.Passed {
		t.Errorf("the honest candidate: %s %s: %s\n%s", v.Status, v.Reason, v.Message, v.Stderr)
	}
	ends := map[string]int{}
	for i, name := range slices.Sorted(maps.Keys(programs)) {
		if os.Getenv("SBENCH_SOAK") == "" && i%8 != 0 {
			continue
		}
		v := w.judge(t, task, pack, map[string]string{s.file: s.wrap(programs[name])})
		if ends[fmt.Sprintf("%s %s", v.Status, v.Reason)]++; v.Status != verifiers.Failed {
			t.Errorf("%s: %s %s: %s\n%s", name, v.Status, v.Reason, v.Message, v.Stderr)
		}
	}
	t.Log(ends)
}
