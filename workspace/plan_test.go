package workspace_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/workspace"
)

const terminalManifest = "id: demo\nversion: 1\ndefaults: {family: terminal_task}\n"

// openPack writes a pack of one row and returns it with the row's task.
func openPack(t *testing.T, manifest, row string, files map[string]string) (*compiler.Pack, *compiler.Task) {
	t.Helper()
	dir := tempDir(t)
	write(t, filepath.Join(dir, "manifest.yaml"), manifest, 0o644)
	write(t, filepath.Join(dir, "tasks.jsonl"), row+"\n", 0o644)
	for name, content := range files {
		if target, ok := strings.CutPrefix(content, "link:"); ok {
			must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			must.Do(t, os.Symlink(target, filepath.Join(dir, name)))
			continue
		}
		mode := os.FileMode(0o640)
		if strings.HasPrefix(content, "#!") {
			mode = 0o700
		}
		write(t, filepath.Join(dir, name), content, mode)
	}
	pack, err := family.OpenPack(filepath.Join(dir, "manifest.yaml"), filepath.Join(dir, "tasks.jsonl"))
	must.Do(t, err)
	for task, err := range pack.Tasks() {
		must.Do(t, err)
		return pack, task
	}
	t.Fatal("no row")
	return nil, nil
}

// list returns a line "mode path content" for every file below dir, and "mode path/" for
// every directory.
func list(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		must.Do(t, err)
		rel, _ := filepath.Rel(dir, path)
		if d.IsDir() {
			fmt.Fprintf(&b, "%04o %s/\n", info.Mode().Perm(), rel)
			return nil
		}
		content := must.Read(t, path)
		fmt.Fprintf(&b, "%04o %s %q\n", info.Mode().Perm(), rel, content)
		return nil
	}))
	return b.String()
}

const fullRow = `{"id":"a","input":{"instructions":"do it"},` +
	`"eval":{"checker":{"command":"bash check"},"run_tests":{"path":"a/run.sh"},"test_files":{"path":"a/tests","mount":"securebench/evaluation_inputs/t"},"expected_state":"done"},` +
	`"assets":[{"path":"data","mount":"data/in","read_only":true},{"path":"run.sh","read_only":false}]}`

func fullFiles() map[string]string {
	return map[string]string{
		"assets/data/x": "X", "assets/data/sub/y": "Y", "assets/run.sh": "#!/bin/sh\n",
		"hidden/a/run.sh": "#!/bin/sh\nexit 0\n", "hidden/a/tests/test_a.py": "def test(): pass\n",
	}
}

func TestPlanAgent(t *testing.T) {
	pack, task := openPack(t, terminalManifest, fullRow, fullFiles())
	plan, err := workspace.PlanAgent(task, pack)
	must.Do(t, err)
	dir := tempDir(t)
	must.Do(t, plan.Write(t.Context(), must.OpenRoot(t, dir), 0))
	want := `0755 data/
0555 data/in/
0555 data/in/sub/
0444 data/in/sub/y "Y"
0444 data/in/x "X"
0755 run.sh "#!/bin/sh\n"
0755 securebench/
0755 securebench/public/
0644 securebench/public/instructions.json "\"do it\"\n"
`
	must.Equal(t, want, list(t, dir))
}

func TestPlanTestSandbox(t *testing.T) {
	pack, task := openPack(t, terminalManifest, fullRow, fullFiles())
	plan, err := workspace.PlanTestSandbox(task, pack)
	must.Do(t, err)
	dir := tempDir(t)
	plan.Entries = slices.DeleteFunc(plan.Entries, func(e workspace.Entry) bool { return e.Lane != compiler.EvaluationInputs })
	must.Do(t, plan.Write(t.Context(), must.OpenRoot(t, dir), 0))
	want := `0755 securebench/
0755 securebench/evaluation_inputs/
0755 securebench/evaluation_inputs/a/
0555 securebench/evaluation_inputs/a/run.sh "#!/bin/sh\nexit 0\n"
0644 securebench/evaluation_inputs/checker.json "{\n  \"command\": \"bash check\"\n}\n"
0555 securebench/evaluation_inputs/t/
0444 securebench/evaluation_inputs/t/test_a.py "def test(): pass\n"
`
	must.Equal(t, want, list(t, dir))
	if text := fmt.Sprintf("%+v", plan); strings.Contains(text, "bash check") {
		t.Errorf("a printed plan shows content: %s", text)
	}
}

// TestHiddenStaysOut: whatever the layout of a pack, files that some row hides are not mounted for the
// first row's evaluation, and the tests are. An error is also right.
func TestHiddenStaysOut(t *testing.T) {
	const marker = "hidden marker"
	row := func(eval string) string {
		return `{"id":"a","input":{"instructions":"x"},"metadata":{"note":"` + marker + `"},"eval":{` + eval + `}}`
	}
	pytest := func(path string) string { return `"checker":{"source":"pytest","path":"` + path + `"}` }
	command := `"checker":{"command":"true"}`
	state := func(path string) string { return `,"expected_state":{"path":"` + path + `"}` }
	tests := []struct {
		name, row, other string            // other is the eval of another row
		hidden           []string          // files with the marker
		links            map[string]string // hard links to them
		want             string            // of the error
	}{
		{name: "below the checker's directory", row: row(pytest("t/test_it.py") + state("t/solution")), hidden: []string{"t/solution/solve.sh"}},
		{name: "below test_files", row: row(command + `,"test_files":{"path":"t"}` + state("t/solution")), hidden: []string{"t/solution/solve.sh"}},
		{name: "beside a checker in the root", row: row(pytest("test_it.py")), other: command + state("other/solution"), hidden: []string{"other/solution/solve.sh"}},
		{name: "beside a checker in the root, unnamed", row: row(pytest("test_it.py")), hidden: []string{"other/solution/solve.sh", "solve.sh"}},
		{name: "deep below a directory", row: row(pytest("t") + state("t/a/b/solve.sh")), hidden: []string{"t/a/b/solve.sh"}},
		{name: "of another row", row: row(pytest("t")), other: command + state("t/x"), hidden: []string{"t/x/y/z"}},
		{name: "of a row of another family", row: row(pytest("t")), other: `"answer":{"path":"t/x"}`, hidden: []string{"t/x"}},
		{name: "in another case", row: row(pytest("t")), other: command + state("T/SOLUTION"), hidden: []string{"t/solution/solve.sh"}},
		{name: "file, of which the directory has a link", row: row(pytest("t")), other: command + state("u/solve.sh"), hidden: []string{"u/solve.sh"}, links: map[string]string{"t/data": "u/solve.sh"}},
		{name: "in a directory, of which test_files has a link", row: row(command + `,"test_files":{"path":"t/data"}`), other: command + state("u"), hidden: []string{"u/solve.sh"}, links: map[string]string{"t/data": "u/solve.sh"}, want: "is a hard link to a file of $.eval.expected_state of line 2"},
		{name: "the rows themselves", row: row(pytest("t/test_it.py")), links: map[string]string{"t/rows.jsonl": "../tasks.jsonl"}},
		{name: "tests are hidden", row: row(pytest("t/test_it.py") + state("t")), hidden: []string{"t/solve.sh"}, want: `"t/test_it.py" is hidden: $.eval.expected_state of line 1 refers to "t"`},
		{name: "tests are another row's answer", row: row(pytest("t/test_it.py")), other: command + state("t/test_it.py"), want: `"t/test_it.py" is hidden: $.eval.expected_state of line 2`},
		{name: "test file is hidden", row: row(command + `,"run_tests":{"path":"t/test_it.py"}` + state("t/test_it.py")), want: `"t/test_it.py" is hidden`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			files := map[string]string{"hidden/t/test_it.py": "the tests", "hidden/test_it.py": "the tests"}
			for _, name := range test.hidden {
				files["hidden/"+name] = marker
			}
			rows := test.row
			if test.other != "" {
				other := "terminal_task"
				if !strings.Contains(test.other, "checker") {
					other = "multimodal_qa"
				}
				rows += "\n" + `{"id":"b","family":"` + other + `","input":{"instructions":"x"},"eval":{` + test.other + `}}`
			}
			pack, task := openPack(t, terminalManifest, rows, files)
			for link, file := range test.links {
				must.Do(t, os.Link(filepath.Join(pack.EvalRoot, file), filepath.Join(pack.EvalRoot, link)))
			}
			got := ""
			for _, plan := range []func(*compiler.Task, *compiler.Pack) (workspace.Plan, error){workspace.PlanTestSandbox, workspace.PlanChecker} {
				p, err := plan(task, pack)
				if err != nil {
					if test.want == "" || !strings.Contains(err.Error(), test.want) {
						t.Errorf("error %v, want %q", err, test.want)
					}
					return
				}
				dir := tempDir(t)
				must.Do(t, p.Write(t.Context(), must.OpenRoot(t, dir), 0))
				got += list(t, dir)
			}
			inspection, err := workspace.Inspect(task, pack, workspace.InspectOptions{})
			must.Do(t, err)
			for _, c := range inspection.Components {
				for _, f := range c.Files {
					if c.Component == compiler.TestSandbox && slices.Contains(test.hidden, f.Source) {
						t.Errorf("inspect shows %q", f.Source)
					}
				}
			}
			if test.want != "" || strings.Contains(got, marker) || !strings.Contains(got, "the tests") && !strings.Contains(test.row, "t/data") {
				t.Errorf("no error %q, and the files:\n%s", test.want, got)
			}
		})
	}
}

// TestPlanChecker: the plan for a checker is the directory that contains it. If the checker is a
// directory, the plan is the checker.
func TestPlanChecker(t *testing.T) {
	files := fullFiles()
	files["hidden/a/tests/conftest.py"] = ""
	for _, path := range []string{"a/tests/test_a.py", "a/tests"} {
		t.Run(path, func(t *testing.T) {
			pack, task := openPack(t, terminalManifest, `{"id":"a","input":{"instructions":"do it"},"eval":{"checker":{"source":"pytest","path":"`+path+`"}}}`, files)
			plan, err := workspace.PlanChecker(task, pack)
			must.Do(t, err)
			dir := tempDir(t)
			must.Do(t, plan.Write(t.Context(), must.OpenRoot(t, dir), 0))
			must.Equal(t, "0444 conftest.py \"\"\n0444 test_a.py \"def test(): pass\\n\"\n", list(t, dir))
		})
	}
}

func TestPlanRefuses(t *testing.T) {
	row := func(assets string) string {
		return `{"id":"a","input":{"instructions":"x"},"eval":{"checker":{"command":"true"}},"assets":` + assets + `}`
	}
	tests := []struct {
		name, row string
		files     map[string]string
		want      string
	}{
		{"missing", row(`[{"path":"f"}]`), map[string]string{"assets/g": ""}, `"f": no such file`},
		{"no root", row(`[{"path":"f"}]`), nil, `/assets": "f": no such file`},
		{"link", row(`[{"path":"f"}]`), map[string]string{"assets/f": "link:/etc/passwd"}, `"f": symbolic links are not allowed`},
		{"link inside", row(`[{"path":"d"}]`), map[string]string{"assets/d/e/f": "link:../../g", "assets/g": ""}, `"d/e/f": symbolic links are not allowed`},
		{"link on the way", row(`[{"path":"d/f"}]`), map[string]string{"assets/d": "link:e", "assets/e/f": ""}, `"d": symbolic links are not allowed`},
		{"denied below a directory", row(`[{"path":"d","mount":"task"}]`), map[string]string{"assets/d/Hidden.json": ""}, `mount "task/Hidden.json" is denied`},
		{"link out of the root", row(`[{"path":"d/f"}]`), map[string]string{"assets/d": "link:../hidden", "hidden/f": ""}, `"d": symbolic links are not allowed`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pack, task := openPack(t, terminalManifest, test.row, test.files)
			_, err := workspace.PlanAgent(task, pack)
			must.Tells(t, err, test.want)
		})
	}
}

// TestWriteIntoUsedWorkspace: a plan writes nothing outside the workspace, whatever files an image's
// workdir has brought into it.
func TestWriteIntoUsedWorkspace(t *testing.T) {
	pack, task := openPack(t, terminalManifest, fullRow, fullFiles())
	plan, err := workspace.PlanAgent(task, pack)
	must.Do(t, err)
	outside := tempDir(t)
	write(t, filepath.Join(outside, "victim"), "untouched", 0o644)
	tests := []struct {
		name string
		make func(dir string)
		ok   bool
	}{
		{"file is a link", func(dir string) {
			must.Do(t, os.Symlink(filepath.Join(outside, "victim"), filepath.Join(dir, "run.sh")))
		}, true},
		{"directory is a link", func(dir string) { must.Do(t, os.Symlink(outside, filepath.Join(dir, "data"))) }, false},
		{"directory is a link inside", func(dir string) {
			must.Do(t, os.Mkdir(filepath.Join(dir, "other"), 0o755))
			must.Do(t, os.Symlink("other", filepath.Join(dir, "securebench")))
		}, false},
		{"directory exists", func(dir string) { write(t, filepath.Join(dir, "data/in/x"), "old", 0o644) }, true},
		{"file is a directory", func(dir string) { must.Do(t, os.Mkdir(filepath.Join(dir, "run.sh"), 0o755)) }, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := tempDir(t)
			test.make(dir)
			if err := plan.Write(t.Context(), must.OpenRoot(t, dir), 0); (err == nil) != test.ok {
				t.Errorf("error %v", err)
			}
			must.Equal(t, "untouched", string(must.Read(t, filepath.Join(outside, "victim"))))
			if entries, _ := os.ReadDir(outside); len(entries) != 1 {
				t.Errorf("made files outside: %v", entries)
			}
		})
	}
}

func TestWriteBounds(t *testing.T) {
	pack, task := openPack(t, terminalManifest, fullRow, fullFiles())
	plan, err := workspace.PlanAgent(task, pack)
	must.Do(t, err)
	must.Is(t, plan.Write(t.Context(), must.OpenRoot(t, tempDir(t)), 10), workspace.ErrTooBig)
}
