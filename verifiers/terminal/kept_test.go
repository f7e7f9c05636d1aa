package terminal_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/internal/test/fake"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/verifiers/terminal"
)

// crowded is an engine whose sandboxes do not start when fails says so: beside kept processes, or without any.
type crowded struct {
	*fake.Engine
	fails func(beside bool) bool
}

func (e crowded) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	if e.fails(cfg.NetworkOf != nil) {
		return nil, runtime.ErrUnavailable
	}
	return e.Engine.Create(ctx, cfg)
}

// TestCheckerKeptOut: processes that keep the checker's sandbox from starting make a failure, a host that does an error,
// and what does once neither.
func TestCheckerKeptOut(t *testing.T) {
	task, pack := packtest.Task(t, `{"id": "t", "family": "terminal_task", "input": {"instructions": "x"}, "eval": {"checker": {"command": "true"}}, "environment": {"image": "x", "keep_processes": true}}`)
	succeeds := func([]string) fake.Program {
		return func(context.Context, *fake.Proc) fake.Status { return fake.Status{} }
	}
	calls := 0
	for name, tt := range map[string]struct {
		fails  func(beside bool) bool
		want   verifiers.Status
		failed bool
	}{
		"all start":        {func(bool) bool { return false }, verifiers.Passed, false},
		"none beside them": {func(beside bool) bool { return beside }, verifiers.Failed, false},
		"none":             {func(bool) bool { return true }, "", true},
		"all but one":      {func(bool) bool { calls++; return calls == 1 }, verifiers.Passed, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := &fake.Engine{Lookup: succeeds, Directory: t.TempDir()}
			left, err := e.Create(t.Context(), runtime.Config{Limits: runtime.DefaultLimits()})
			must.Do(t, err)
			v, err := terminal.Family().Verify(t.Context(), crowded{e, tt.fails}, verifiers.Input{
				Task: task, Pack: pack, Candidate: candidate.Candidate{Workspace: t.TempDir()}, Left: left,
				Limits: runtime.DefaultLimits(), Timeout: time.Minute, WorkspaceBytes: 1 << 20, OutputBytes: 1 << 20,
			})
			if v.Status != tt.want || errors.Is(err, runtime.ErrUnavailable) != tt.failed {
				t.Errorf("%s %s (%v)", v.Status, v.Reason, err)
			}
		})
	}
}

// TestAnswersOnce: beside a server that answers once, the tests run unchanged only once, also if they leave a reward and
// the reference solution passes broken ones.
func TestAnswersOnce(t *testing.T) {
	w := newTerminalWorld(t)
	filetest.Write(t, w.dir, map[string]string{
		"hidden/once/test.sh":    "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\npython3 /tests/test_it.py; grep -qx 44 /tmp/said || echo 0 > /logs/verifier/reward.txt\n",
		"hidden/once/test_it.py": "import socket\ndef test_it():\n    with socket.create_connection(('127.0.0.1', 8098)) as s:\n        print(s.recv(9).decode(), file=open('/tmp/said', 'w'))\ntest_it()\n",
	})
	eval := map[string]any{"checker": map[string]any{"source": "script", "path": "once/test.sh", "reward": true}}
	const server = "import socket, sys\ns = socket.create_server(('127.0.0.1', 8098))\nopen('/tmp/ready', 'w').close()\nfor said in sys.argv[1:]:\n    c, _ = s.accept()\n    c.sendall(said.encode())\n    c.close()\n"
	store := contrast.NewStore("")
	for i, answers := range []string{"44 44 44 44", "44 no no no"} {
		left, err := w.run.Create(t.Context(), runtime.Config{Name: "harness", Image: w.image, Limits: runtime.DefaultLimits(), KeepProcesses: true})
		must.Do(t, err)
		_, err = left.Exec(t.Context(), runtime.Process{Args: []string{"sh", "-c", `python3 -c "$0" ` + answers + ` & until [ -e /tmp/ready ]; do sleep 0.1; done`, server}, Dir: "/", Wall: time.Minute})
		must.Do(t, err)
		w.left = left
		if v := w.leavings(t, store, "true", eval, i == 0); v.Status != verifiers.Passed || v.Metadata["canary"] != "failed" {
			t.Errorf("answers %q: %s %s: %s, canary %v\n%s%s", answers, v.Status, v.Reason, v.Message, v.Metadata["canary"], v.Stdout, v.Stderr)
		}
		must.Do(t, left.Close(context.Background()))
	}
}
