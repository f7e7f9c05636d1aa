package split_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/validate"
	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/fake"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/verifiers"
)

// splitWorld judges candidates of split tasks.
type splitWorld struct {
	run   verifiers.Engine
	image runtime.Image
	deny  []string // commands
}

func newSplitWorld(tb testing.TB) splitWorld {
	tb.Helper()
	run, image := containerdtest.NewRun(tb, containerdtest.Open(tb))
	return splitWorld{run: run, image: image}
}

// splitTask is a terminal_task with a split check. driver and oracle begin with #!.
type splitTask struct {
	driver, oracle string
	questions      int
	timeout        int // seconds of the driver, 20 unless given
	patience       int // seconds of the oracle, 20 unless given
	service        bool
}

func (s splitTask) waits(seconds int) splitTask {
	s.patience = seconds
	return s
}

func (s splitTask) load(tb testing.TB) (*compiler.Task, *compiler.Pack) {
	tb.Helper()
	dir := tb.TempDir()
	s.timeout, s.patience = cmp.Or(s.timeout, 20), cmp.Or(s.patience, 20)
	env := map[string]any{"image": "x", "workdir": "/app"}
	if s.service {
		env["entrypoint"] = map[string]any{"ready": "true"}
	}
	row := must.JSON(tb, map[string]any{
		"id": "t", "family": "terminal_task", "input": map[string]any{"instructions": "write the program"}, "environment": env,
		"eval": map[string]any{"split": map[string]any{
			"questions": s.questions, "driver": map[string]any{"path": "t/driver", "timeout_seconds": s.timeout}, "oracle": map[string]any{"path": "t/oracle", "timeout_seconds": s.patience},
		}},
	})
	files := map[string]string{"manifest.yaml": "id: p\nversion: 1\n", "tasks.jsonl": string(row) + "\n", "hidden/t/driver": s.driver, "hidden/t/oracle": s.oracle}
	filetest.Write(tb, dir, files)
	return openTask(tb, dir, "tasks.jsonl")
}

func (w splitWorld) judge(tb testing.TB, task *compiler.Task, pack *compiler.Pack, files map[string]string) verifiers.Verdict {
	tb.Helper()
	return w.judgeLeft(tb, task, pack, func(tb testing.TB, dir string) string {
		filetest.Write(tb, dir, files)
		return ""
	})
}

const (
	addDriver = `#!/usr/bin/python3
import json, subprocess
a, b = json.loads(input())
try:
    p = subprocess.run(["run-candidate", "python3", "add.py", str(a), str(b)], capture_output=True, timeout=10)
    print(json.dumps(p.stdout[:100].decode("ascii", "replace").strip()))
except subprocess.TimeoutExpired:
    print(json.dumps("no answer in time"))
`
	addOracle = `#!/usr/bin/python3
import json, random
start = json.loads(input())
rng = random.Random(start["seed"])
sums = [[rng.randrange(10**6), rng.randrange(10**6)] for _ in range(start["questions"])]
for s in sums:
    print(json.dumps(s))
good = [json.loads(input())["answer"] == str(a + b) for a, b in sums]
print(json.dumps({"passed": all(good), "score": sum(good) / len(good)}))
`
	rightAdd = "import sys\nprint(int(sys.argv[1]) + int(sys.argv[2]))\n"
)

// splitCase is a candidate of a split task, and its verdict.
type splitCase struct {
	name   string
	task   splitTask
	files  map[string]string
	status verifiers.Status
	reason string
}

func splitCases() []splitCase {
	add := splitTask{driver: addDriver, oracle: addOracle, questions: 3}
	hasty := splitTask{driver: strings.Replace(addDriver, "timeout=10", "timeout=1", 1), oracle: addOracle, questions: 1}
	noAnswer := splitTask{driver: "#!/bin/sh\ncat add.py\n", oracle: addOracle, questions: 1}
	says := func(text string) splitTask { // an oracle that asks 1
		return splitTask{driver: "#!/bin/sh\necho 1\n", oracle: "#!/bin/sh\nread -r s\necho 1\nread -r a\n" + text, questions: 1}
	}
	return []splitCase{
		{"right", add, map[string]string{"add.py": rightAdd}, verifiers.Passed, ""},
		{"wrong", add, map[string]string{"add.py": "import sys\nprint(int(sys.argv[1]) - int(sys.argv[2]))\n"}, verifiers.Failed, "oracle_rejected"},
		{"sleeps", hasty, map[string]string{"add.py": "import time\ntime.sleep(60)\n"}, verifiers.Failed, "oracle_rejected"},
		{"nothing", add, nil, verifiers.Failed, "oracle_rejected"},
		{"driver breaks for a candidate", splitTask{driver: "#!/bin/sh\ntest ! -e add.py && echo 1\n", oracle: addOracle, questions: 1}, map[string]string{"add.py": rightAdd}, verifiers.Failed, "driver_broken"},
		{"driver breaks", noAnswer, map[string]string{"add.py": rightAdd}, verifiers.Faulty, "driver_broken"},
		{"driver cannot start", splitTask{driver: "#!/no/such\n", oracle: addOracle, questions: 1}, nil, verifiers.Faulty, "driver_broken"},
		{"driver without end", splitTask{driver: "#!/bin/sh\nexec sleep 60\n", oracle: addOracle, questions: 1, timeout: 1}, nil, verifiers.Faulty, "driver_broken"},
		{"driver says too much", splitTask{driver: "#!/bin/sh\nhead -c 2000000 /dev/zero\n", oracle: addOracle, questions: 1}, nil, verifiers.Faulty, "driver_broken"},
		{"oracle breaks for an answer", splitTask{driver: "#!/bin/sh\ntest -e add.py && echo 1 || echo 0\n", oracle: "#!/bin/sh\nread -r start\necho 1\nread -r answer\ncase $answer in *'\"answer\":0}') echo '{\"passed\": false}';; *) exit 3;; esac\n", questions: 1}, map[string]string{"add.py": rightAdd}, verifiers.Failed, "oracle_broken"},
		{"oracle breaks", splitTask{driver: addDriver, oracle: "#!/bin/sh\nexit 0\n", questions: 1}, map[string]string{"add.py": rightAdd}, verifiers.Faulty, "oracle_broken"},
		{"oracle that does not speak", splitTask{driver: addDriver, oracle: "#!/bin/sh\nexec sleep 60\n", questions: 1, patience: 1}, nil, verifiers.Faulty, "oracle_broken"},
		{"oracle that does not read", splitTask{driver: "#!/bin/sh\nprintf '\"%0500000d\"' 0\n", oracle: "#!/bin/sh\necho 1\nexec sleep 60\n", questions: 1, patience: 1}, nil, verifiers.Faulty, "oracle_broken"},
		{"oracle that does not end", says("echo '{\"passed\": true}'\nexec sleep 60\n").waits(1), nil, verifiers.Faulty, "oracle_broken"},
		{"oracle with a long line", splitTask{driver: addDriver, oracle: "#!/bin/sh\nhead -c 3000000 /dev/zero\n", questions: 1}, nil, verifiers.Faulty, "oracle_broken"},
		{"oracle says too much", says("echo '{\"passed\": true}'\necho '{\"passed\": true}'\n"), nil, verifiers.Faulty, "oracle_broken"},
		{"oracle fails after its verdict", says("echo '{\"passed\": true}'\nexit 3\n"), nil, verifiers.Faulty, "oracle_broken"},
		{"oracle without a verdict", says("echo '{\"passed\": 1}'\n"), nil, verifiers.Faulty, "oracle_broken"},
		{"oracle with an odd score", says("echo '{\"passed\": true, \"score\": 2}'\n"), nil, verifiers.Faulty, "oracle_broken"},
		{"oracle with an odd key", says("echo '{\"passed\": true, \"points\": 2}'\n"), nil, verifiers.Faulty, "oracle_broken"},
	}
}

// TestSplit: what the parts of a split check do, and the verdict.
func TestSplit(t *testing.T) {
	t.Parallel()
	w := newSplitWorld(t)
	tests := splitCases()
	if os.Getenv("SBENCH_SOAK") == "" {
		tests = tests[:2] // TestWithoutSandboxes has all
	}
	testSplit(t, w, tests)
	task, pack := splitTask{driver: addDriver, oracle: addOracle, questions: 3}.load(t)
	v := w.judgeLeft(t, task, pack, func(tb testing.TB, dir string) string {
		filetest.Write(tb, dir, map[string]string{"add.py": "import lib.data\n" + rightAdd, "lib/data.py": "\n"})
		must.Do(tb, errors.Join(os.Chmod(filepath.Join(dir, "add.py"), 0o600), os.Chmod(filepath.Join(dir, "lib"), 0o700), os.Chmod(dir, 0o700)))
		return ""
	})
	if v.Status != verifiers.Passed {
		t.Errorf("a program for its owner only: %s %s: %s", v.Status, v.Reason, v.Message)
	}
}

func testSplit(t *testing.T, w splitWorld, tests []splitCase) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			task, pack := test.task.load(t)
			v := w.judge(t, task, pack, test.files)
			if v.Status != test.status || v.Reason != test.reason || (v.Assurance == verifiers.Sealed) != (test.status == verifiers.Passed) {
				t.Errorf("%s %s: %s, %s\n%s", v.Status, v.Reason, v.Message, v.Assurance, v.Stderr)
			}
		})
	}
}

// TestWithoutSandboxes: the verdicts are the same if the programs run as processes of the host, which has no repository.
func TestWithoutSandboxes(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, map[string]string{"run-candidate": "#!/bin/sh\nexec \"$@\"\n"})
	program := func(ctx context.Context, p *fake.Proc) fake.Status {
		var args []string
		at := "/app"
		for _, arg := range p.Args {
			switch {
			case arg == "oracle.py":
				at = "/tests/oracle/oracle"
			case arg == "-c":
				at = "/"
			case strings.HasSuffix(arg, "/oracle"):
				at = "/tests"
			}
			if filepath.IsAbs(arg) {
				arg, _ = p.Path(arg)
			}
			args = append(args, arg)
		}
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir, _ = p.Path(at)
		asset, _ := p.Path("/app/given/one")
		if text, err := os.ReadFile(asset); err == nil && at == "/app" { // processes of the host see no mounts
			filetest.Write(t, cmd.Dir, map[string]string{"given/one": string(text)})
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = p.Stdin, p.Stdout, p.Stderr, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "PYTHONUNBUFFERED=1")
		cmd.WaitDelay = time.Second
		if err := cmd.Run(); err != nil {
			return fake.Status{Code: max(cmd.ProcessState.ExitCode(), 1)}
		}
		return fake.Status{}
	}
	w := splitWorld{run: &fake.Engine{Directory: t.TempDir(), Lookup: func([]string) fake.Program { return program }}}
	testSplit(t, w, splitCases())
	denying := w
	denying.deny = []string{"driver"}
	testSplit(t, denying, []splitCase{{"denied beside a service", splitTask{driver: addDriver, oracle: addOracle, questions: 1, service: true}, nil, verifiers.Failed, verifiers.CommandDenied}})
	testSecureBench(t, w, sbCases())
	rows := slices.DeleteFunc(sbRows(), func(r sbRow) bool { return r.name == "git_patch" })
	testRows(t, w, rows)
	// A table that the program of the parsers cannot read is the candidate's fault, and a program that cannot start is not.
	table := rows[slices.IndexFunc(rows, func(r sbRow) bool { return r.name == "strict-csv" })]
	ends := func(context.Context, *fake.Proc) fake.Status { return fake.Status{Code: 1} }
	for want, parser := range map[verifiers.Status]fake.Program{verifiers.Failed: ends, verifiers.Faulty: nil} {
		w.run = &fake.Engine{Directory: t.TempDir(), Lookup: func(args []string) fake.Program {
			if slices.Contains(args, "-c") {
				return parser
			}
			return program
		}}
		task, pack := table.load(t, "")
		if v := w.judgeLeft(t, task, pack, table.right); v.Status != want {
			t.Errorf("%s %s: %s", v.Status, v.Reason, v.Message)
		}
	}
}

// readPack writes an archive of a pack of SecureBench 2.0 to a directory, and opens its only task.
func readPack(tb testing.TB, archive string) (*compiler.Task, *compiler.Pack) {
	tb.Helper()
	return openPack(tb, filetest.Archive(tb, archive))
}

func openPack(tb testing.TB, files map[string]string) (*compiler.Task, *compiler.Pack) {
	tb.Helper()
	dir := tb.TempDir()
	filetest.Write(tb, dir, files)
	return openTask(tb, dir, "rows.jsonl")
}

// openTask opens the only task of a pack, which validates.
func openTask(tb testing.TB, dir, tasks string) (*compiler.Task, *compiler.Pack) {
	tb.Helper()
	pack, err := family.OpenPack(filepath.Join(dir, "manifest.yaml"), filepath.Join(dir, tasks))
	must.Do(tb, err)
	for task, err := range pack.Tasks() {
		must.Do(tb, err)
		check := validate.NewPrecheck(pack, nil)
		for _, problem := range check.Task(task) {
			if !problem.Warning {
				tb.Fatal(problem)
			}
		}
		return task, pack
	}
	tb.Fatal("no task")
	return nil, nil
}

// sbCase is a candidate of the pack in testdata, and its verdict.
type sbCase struct {
	name, program string
	status        verifiers.Status
	reason        string
	score         float64
}

func sbCases() []sbCase {
	return []sbCase{
		{"right", rightAdd, verifiers.Passed, "", 1},
		{"wrong", "import sys\nprint(int(sys.argv[1]) - int(sys.argv[2]))\n", verifiers.Failed, "oracle_rejected", 0},
		{"too big", "#" + strings.Repeat("x", 65536), verifiers.Failed, "oracle_rejected", 0},
		{"missing", "", verifiers.Failed, "oracle_rejected", 0},
	}
}

// forgedAnswer leaves a process that takes what the adapter writes out of its standard output, and writes another answer.
const forgedAnswer = `import json, os, sys, time
boss, total = os.getppid(), sum(map(int, sys.argv[1:]))
if os.fork() == 0:
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    out, taken = os.open(f"/proc/{boss}/fd/1", os.O_RDWR | os.O_NONBLOCK), b""
    os.sched_setscheduler(boss, os.SCHED_IDLE, os.sched_param(0))  # it ends later
    while not taken:
        try:
            taken = os.read(out, 65536)
        except BlockingIOError:
            pass
    os.write(out, json.dumps({"format": "securebench.adapter-response/v2", "status": "observed", "observation": {"code": 0, "out": str(total)}}).encode())
    os._exit(0)
time.sleep(0.3)
print(0)
`

// TestSecureBench: a pack of SecureBench 2.0 gives the verdicts that it gives there.
func TestSecureBench(t *testing.T) {
	t.Parallel()
	w := newSplitWorld(t)
	tests := slices.Concat([]sbCase{{"forges the adapter's output", forgedAnswer, verifiers.Failed, "oracle_rejected", 0}, {"changes the system", "open('/etc/changed', 'w')\n" + rightAdd, verifiers.Failed, "oracle_rejected", 0}}, sbCases(), []sbCase{
		{"sleeps", "import time\ntime.sleep(60)\n", verifiers.Failed, "oracle_rejected", 0},
		{"kills the adapter", "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n", verifiers.Failed, "oracle_rejected", 0},
	})
	if os.Getenv("SBENCH_SOAK") == "" {
		tests = tests[:3]
	}
	testSecureBench(t, w, tests)
}

func testSecureBench(t *testing.T, w splitWorld, tests []sbCase) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			task, pack := readPack(t, "testdata/add.txtar")
			files := map[string]string{"add.py": test.program, "else.py": "left out"}
			if test.program == "" {
				delete(files, "add.py")
			}
			v := w.judge(t, task, pack, files)
			if v.Status != test.status || v.Reason != test.reason || v.Score != test.score {
				t.Errorf("%s %s %v: %s\n%s", v.Status, v.Reason, v.Score, v.Message, v.Stderr)
			}
			t.Log(v.Metadata)
		})
	}
}

// BenchmarkSplit judges a candidate by 64 questions, each in a sandbox of its own. If a Docker daemon has the base image,
// it also puts these questions to the driver in a container each.
func BenchmarkSplit(b *testing.B) {
	const questions = 64
	w := newSplitWorld(b)
	task, pack := splitTask{driver: addDriver, oracle: addOracle, questions: questions}.load(b)
	b.Run("sbench", func(b *testing.B) {
		for b.Loop() {
			if v := w.judge(b, task, pack, map[string]string{"add.py": rightAdd}); v.Status != verifiers.Passed {
				b.Fatalf("%s %s", v.Status, v.Message)
			}
		}
	})
	if exec.Command("docker", "image", "inspect", containerdtest.Image).Run() != nil {
		b.Log("no Docker daemon with the base image answers: not measured")
		return
	}
	dir := b.TempDir()
	filetest.Write(b, dir, map[string]string{"app/add.py": rightAdd, "bin/driver": addDriver, "bin/run-candidate": "#!/bin/sh\nexec \"$@\"\n"})
	b.Run("docker", func(b *testing.B) {
		for b.Loop() {
			var group errgroup.Group
			group.SetLimit(3)
			for n := range questions {
				group.Go(func() error {
					cmd := exec.Command("docker", "run", "--rm", "-i", "--network", "none", "--cap-drop", "ALL", "--read-only", "-w", "/app",
						"-v", dir+"/app:/app:ro", "-v", dir+"/bin:/usr/local/bin:ro", containerdtest.Image, "driver")
					cmd.Stdin = strings.NewReader(fmt.Sprintf("[%d, 1]\n", n))
					out, err := cmd.CombinedOutput()
					if err == nil && string(out) != fmt.Sprintf("\"%d\"\n", n+1) {
						err = errors.New("wrong answer")
					}
					if err != nil {
						return fmt.Errorf("docker run: %w: %s", err, out)
					}
					return nil
				})
			}
			must.Do(b, group.Wait())
		}
	})
}

func TestMain(m *testing.M) {
	service.Inside()
	containerdtest.Enter()
	m.Run()
}
