package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/securebench/sbench/cmd/sbench/interrupt"
	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/runtime/userns"
)

func TestMain(m *testing.M) {
	service.Inside()
	containerdtest.Enter()
	testscript.Main(m, map[string]func(){"sbench": func() {
		interrupts := interrupt.Watch(codeInterrupted)
		defer interrupts.Close()
		os.Exit(execute(interrupts, os.Args[1:], os.Stdout, os.Stderr))
	}})
}

// TestStandardLogger: what libraries write to the standard logger is discarded. net/http writes there what
// a server sends unasked, and that may hold a key.
func TestStandardLogger(t *testing.T) {
	var written bytes.Buffer
	before := log.Writer()
	t.Cleanup(func() { log.SetOutput(before) })
	log.SetOutput(&written)
	interrupts := interrupt.Watch(codeInterrupted)
	defer interrupts.Close()
	if code := execute(interrupts, []string{"schema", "tester"}, io.Discard, io.Discard); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if log.Print("Unsolicited response"); written.Len() > 0 {
		t.Errorf("printed %q", &written)
	}
}

// TestReaderEnds: a command ends without an error when the program that reads its results has ended.
func TestReaderEnds(t *testing.T) {
	reader, results, err := os.Pipe()
	must.Do(t, err)
	must.Do(t, reader.Close())
	defer func() { _ = results.Close() }()
	interrupts := interrupt.Watch(codeInterrupted)
	defer interrupts.Close()
	var errs bytes.Buffer
	if code := execute(interrupts, []string{"schema", "tester"}, results, &errs); code != 0 || errs.Len() > 0 {
		t.Errorf("exit code %d: %s", code, &errs)
	}
}

// TestScript runs the scripts in testdata/script, none of which needs a daemon.
func TestScript(t *testing.T) { scripts(t, "testdata/script") }

func TestDaemonScript(t *testing.T) {
	containerdtest.Open(t)
	scripts(t, "testdata/daemon")
}

func scripts(t *testing.T, dir string) {
	t.Helper()
	packs := must.Abs(t, "../../benchmarks")
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PACKS", packs)
			env.Vars = append(env.Vars, containerdtest.Environment()...)
			return nil
		},
		// nested: the tests run in an ordinary user's user namespace.
		Condition: func(name string) (bool, error) {
			if name != "nested" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return userns.Inside(), nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// writePack writes a pack of terminal tasks in the tests' image, with a tester file for a run that is named after dir. It
// returns the tester file's path. sections are the sections of the tester file that it does not write.
func writePack(tb testing.TB, dir, rows, sections string) (tester string) {
	tb.Helper()
	filetest.Write(tb, dir, map[string]string{
		"manifest.yaml": "id: p\nversion: 1\ndefaults: {family: terminal_task, environment: {image: '" + containerdtest.Image + "', timeout_seconds: 300}}\n",
		"tasks.jsonl":   rows,
		"tester.yaml":   "schema_version: '0.2'\nrun: {id: '" + filepath.Base(dir) + "', output_dir: out}\nbenchmark: {manifest: manifest.yaml, tasks: tasks.jsonl}\n" + sections,
	})
	return filepath.Join(dir, "tester.yaml")
}

// taskRow returns the row of a task that a command checks. more is JSON: a comma, and further fields.
func taskRow(id, checker, more string) string {
	return fmt.Sprintf(`{"id": %q, "input": {"instructions": "x"}, "eval": {"checker": {"command": %q}}%s}`+"\n", id, checker, more)
}

func taskRows(n int, checker, more string) string {
	var rows strings.Builder
	for i := range n {
		rows.WriteString(taskRow(fmt.Sprintf("task-%02d", i), checker, more))
	}
	return rows.String()
}

// commandHarness returns the section of a tester file for a harness that runs a command in a shell.
func commandHarness(command string) string {
	return fmt.Sprintf("harness: {type: command, config: {command: [bash, -c, %q]}}\n", command)
}

func recordsOf(t *testing.T, dir string) (all []record.Record) {
	t.Helper()
	_, _, err := record.Read(dir, record.Trust{AcceptUnsigned: true}, func(r record.Record) error { all = append(all, r); return nil })
	must.Do(t, err)
	return all
}

// exits CODE COMMAND... requires exactly that exit code, and writes the files out and err.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Dir = ts.Getenv("WORK")
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "SBENCH_ROOT", "SBENCH_STATE", "SBENCH_ALLOW_DEGRADED", "SBENCH_DAEMON_TIMEOUT", "SBENCH_OCI_RUNTIME", "CONTAINERD_ADDRESS", "TOKEN"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	ts.Check(os.WriteFile(ts.MkAbs("out"), out.Bytes(), 0o644))
	ts.Check(os.WriteFile(ts.MkAbs("err"), errOut.Bytes(), 0o644))
	if got := cmd.ProcessState.ExitCode(); got != want {
		ts.Fatalf("exit code %d, want %d\n%s%s", got, want, &out, &errOut)
	}
}

// TestFullOutput: results that cannot be written are no bug of sbench.
func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must.Do(t, err)
	defer func() { _ = full.Close() }()
	for _, args := range [][]string{{"version"}, {"schema", "tester"}, {"schema", "--json"}} {
		cmd := exec.Command("sbench", args...)
		cmd.Stdout = full
		if _ = cmd.Run(); cmd.ProcessState.ExitCode() != codeInfrastructure {
			t.Errorf("%v: exit code %d", args, cmd.ProcessState.ExitCode())
		}
	}
}

// TestSay: a message cannot control the terminal, and keeps its lines.
func TestSay(t *testing.T) {
	var out bytes.Buffer
	a := &app{stderr: &out}
	a.say(slog.LevelError, "the program said \x1b[2J\a\nsbench: \u202eon two lines\n")
	must.Equal(t, "sbench: the program said \\x1b[2J\\x07\nsbench: \\u{202e}on two lines\n", out.String())
}
