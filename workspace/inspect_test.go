package workspace_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/workspace"
)

// lines returns a line for every file of an inspection.
func lines(in workspace.Inspection) string {
	var b strings.Builder
	for _, c := range in.Components {
		for _, f := range c.Files {
			fmt.Fprintf(&b, "%s: %s (%s) %s%q\n", c.Component, f.Path, f.Lane, f.Source, strings.Join(strings.Fields(f.Content), " "))
		}
	}
	return b.String()
}

func TestInspect(t *testing.T) {
	row := `{"id":"a","input":{"instructions":"do it"},` +
		`"eval":{"checker":{"source":"script","path":"a/check.sh"},"test_files":{"path":"a/tests"},"expected_state":"done"},"assets":[{"path":"d","mount":"in"}]}`
	files := map[string]string{"assets/d/x": "X", "hidden/a/check.sh": "#!/bin/sh\n", "hidden/a/tests/t.py": "pass\n"}
	pack, task := openPack(t, terminalManifest, row, files)
	in, err := workspace.Inspect(task, pack, workspace.InspectOptions{})
	must.Do(t, err)
	payload := `{ "assets": [ { "mount": "in", "path": "d", "read_only": true } ], "environment": { "workdir": "/workspace" }, "family": "terminal_task", "id": "a", "input": { "instructions": "do it" }, "instructions": "do it" }`
	want := `agent: task.json (public) ` + fmt.Sprintf("%q", payload) + `
agent: in/x (public) d/x""
agent: securebench/public/instructions.json (public) "\"do it\""
test_sandbox: in/x (public) d/x""
test_sandbox: securebench/evaluation_inputs/a/tests/t.py (evaluation_inputs) a/tests/t.py""
test_sandbox: securebench/evaluation_inputs/checker.json (evaluation_inputs) "<redacted>"
test_sandbox: securebench/public/instructions.json (public) "\"do it\""
test_sandbox: /opt/securebench/evaluator/a/check.sh (evaluation_inputs) a/check.sh""
test_sandbox: /opt/securebench/evaluator/a/tests/t.py (evaluation_inputs) a/tests/t.py""
evaluator: securebench/evaluator/expected_state.json (hidden) "<redacted>"
evaluator: securebench/evaluator/instructions.json (public) "\"do it\""
`
	must.Equal(t, want, lines(in))
	if len(in.Problems) > 0 || in.Digests.Row == "" {
		t.Errorf("problems %q, digests %+v", in.Problems, in.Digests)
	}
	revealed, err := workspace.Inspect(task, pack, workspace.InspectOptions{Reveal: true, TaskFile: "t.json"})
	must.Do(t, err)
	got := lines(revealed)
	must.Contains(t, got, "agent: t.json", `securebench/evaluation_inputs/checker.json (evaluation_inputs) "{ \"path\": \"a/check.sh\", \"source\": \"script\" }"`,
		`securebench/evaluator/expected_state.json (hidden) "\"done\""`)
}

func TestInspectMissingFiles(t *testing.T) {
	row := `{"id":"a","input":{"instructions":"i"},"eval":{"checker":{"command":"true"},"run_tests":{"path":"no.sh"}},"assets":[{"path":"f"}]}`
	pack, task := openPack(t, terminalManifest, row, nil)
	in, err := workspace.Inspect(task, pack, workspace.InspectOptions{})
	must.Do(t, err)
	text := strings.Join(in.Problems, "\n")
	if !strings.Contains(text, "assets[0]: ") || !strings.Contains(text, "run_tests: ") {
		t.Errorf("problems %q", in.Problems)
	}
}

func TestFindTask(t *testing.T) {
	pack, _ := openPack(t, terminalManifest, `{"id":"a","family":"tool_call"}`+"\n{}\n"+`{"id":"b","family":"tool_call"}`, nil)
	task, err := workspace.FindTask(pack, "b")
	must.Do(t, err)
	if task.ID() != "b" || task.Line() != 3 {
		t.Errorf("found %v on line %d", task, task.Line())
	}
	_, err = workspace.FindTask(pack, "c")
	var problems compiler.Problems
	if !errors.Is(err, workspace.ErrNoTask) || !errors.As(err, &problems) {
		t.Errorf("error %v", err)
	}
}
