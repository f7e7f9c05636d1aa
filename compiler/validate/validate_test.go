package validate_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/compiler/validate"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
)

// TestValidateOnce shows that a file with several names is checked once.
func TestValidateOnce(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, map[string]string{
		"p/manifest.yaml": "id: p\nversion: 1\ndefaults: {family: tool_call}\n", "p/tasks.jsonl": `{"id":"a"}`,
		"p/tester.yaml": "schema_version: \"0.2\"\nrun: {id: r, output_dir: o}\nbenchmark: {manifest: ./manifest.yaml, tasks: ../p/tasks.jsonl}\nharness: {type: command, config: {command: x}}\n",
	})
	t.Chdir(dir)
	paths := []string{".", "p", "p/tester.yaml", "p/manifest.yaml", "p/tasks.jsonl", filepath.Join(dir, "p")}
	problems := 0
	summary, err := validate.Files(t.Context(), paths, nil, func(compiler.Problem) { problems++ })
	want := validate.Summary{Testers: 1, Packs: 1, Rows: 1, Errors: 1} // no image
	if err != nil || summary != want || problems != 1 {
		t.Errorf("%+v, %d problems, %v", summary, problems, err)
	}
}

// TestValidateWithoutImage: only a harness, and a verifier that uses a sandbox, need an image.
func TestValidateWithoutImage(t *testing.T) {
	const tester = "schema_version: \"0.2\"\nrun: {id: r, output_dir: o}\nbenchmark: {manifest: manifest.yaml, tasks: tasks.jsonl}\nharness: {type: command, config: {command: x}}\n"
	const text = `{"id":"a","family":"short_answer","input":{"question":"Capital of France?"},"eval":{"accepted_answers":["Paris"]}}`
	const code = `{"id":"b","family":"code_completion","input":{"prompt":"p"},"eval":{"tests":{"source":"inline","code":"assert f"}}}`
	tests := []struct {
		name, rows, tester string
		errors             int
		graded             int // errors of a Precheck for candidates from elsewhere
	}{
		{"texts alone", text, "", 0, 0},
		{"texts and a harness", text, tester, 1, 0},
		{"code", code, "", 1, 1},
		{"code and a harness", code, tester, 1, 1},
		{"both and a harness", text + "\n" + code, tester, 2, 1}, // for the pack and for the tester file
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string]string{"manifest.yaml": "id: p\nversion: 1\n", "tasks.jsonl": test.rows}
			if test.tester != "" {
				files["tester.yaml"] = test.tester
			}
			filetest.Write(t, dir, files)
			summary, err := validate.Files(t.Context(), []string{dir}, nil, func(compiler.Problem) {})
			if err != nil || summary.Errors != test.errors || summary.Warnings != 0 {
				t.Errorf("%+v, %v", summary, err)
			}
			pack, err := family.OpenPack(filepath.Join(dir, "manifest.yaml"), filepath.Join(dir, "tasks.jsonl"))
			must.Do(t, err)
			check := validate.NewPrecheck(pack, new(testerfile.File))
			check.NoHarness = true
			graded := 0
			for task, err := range pack.Tasks() {
				must.Do(t, err)
				graded += len(check.Task(task))
			}
			if graded != test.graded {
				t.Errorf("%d errors without a harness, want %d", graded, test.graded)
			}
		})
	}
}

func TestValidateStops(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, map[string]string{"manifest.yaml": "id: p\nversion: 1\ndefaults: {family: tool_call}\n", "tasks.jsonl": `{"id":"a"}`})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	_, err := validate.Files(ctx, []string{dir}, nil, func(compiler.Problem) {})
	must.Is(t, err, why)
}

// TestValidateLink shows that a directory with a symbolic link in it is refused, and not reported as a
// directory that no row refers to.
func TestValidateLink(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, map[string]string{
		"manifest.yaml": "id: p\nversion: 1\ndefaults: {family: tool_call, environment: {image: \"i@sha256:0000000000000000000000000000000000000000000000000000000000000000\"}}\n",
		"tasks.jsonl":   `{"id":"a","eval":{"initial_state":{"path":"d"}}}`, "hidden/d/x": "",
	})
	must.Do(t, os.Symlink("x", filepath.Join(dir, "hidden/d/y")))
	var got []string
	if _, err := validate.Files(t.Context(), []string{dir}, nil, func(p compiler.Problem) { got = append(got, p.Message) }); err != nil {
		t.Fatal(err)
	}
	want := []string{`eval file "d/y": symbolic links are not allowed in a pack's files`}
	must.Equal(t, want, got)
}

// TestValidateUnguarded: a warning says that a checker's Python imports the candidate's modules in place of its own.
func TestValidateUnguarded(t *testing.T) {
	for _, tt := range []struct {
		command string
		warned  bool
	}{
		{"PYTHONPATH=src python3 check.py", true},
		{"export PYTHONPATH=.:$PYTHONPATH; python3 check.py", true},
		{"PYTHONPATH=$PWD python3 check.py", true},
		{`PYTHONPATH="${ROOT}/src:$PYTHONPATH" python3 check.py`, true},
		{"env -i PATH=/usr/bin python3 check.py", true},
		{"env -u HOME -i python3 check.py", true},
		{"python3 -S check.py", true},
		{"python3.11 -B -sE check.py", true},
		{"PYTHONPATH=$PYTHONPATH:src python3 check.py", false},
		{`PYTHONPATH="${PYTHONPATH}:src" python3 check.py`, false},
		{"python3 -I check.py --Strict", false},
		{"PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}src python3 -mSuite", false},
		{"env -u HOME sh -c 'python3 -m pytest -S'", false},
	} {
		for name, checker := range map[string]string{"command": `{"command":` + string(must.JSON(t, tt.command)) + `}`, "script": `{"source":"script","path":"a/tests/run.sh"}`} {
			dir, warnings := t.TempDir(), 0
			filetest.Write(t, dir, map[string]string{
				"manifest.yaml":           "id: p\nversion: 1\ndefaults: {family: terminal_task, environment: {image: \"a@sha256:" + strings.Repeat("0", 64) + "\"}}\n",
				"hidden/a/tests/run.sh":   "#!/bin/sh\n" + tt.command + "\n",
				"hidden/a/tests/check.py": "assert 1\n",
				"tasks.jsonl":             `{"id":"a","input":{"instructions":"x"},"eval":{"checker":` + checker + `,"test_files":{"path":"a/tests"}}}`,
			})
			_, err := validate.Files(t.Context(), []string{dir}, nil, func(p compiler.Problem) {
				if strings.Contains(p.Message, "in place of its own") {
					warnings++
				}
			})
			must.Do(t, err)
			if warnings != map[bool]int{true: 1}[tt.warned] {
				t.Errorf("%s, as a %s: %d warnings", tt.command, name, warnings)
			}
		}
	}
}
