package compiler

import (
	"bufio"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/hidden"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/schema"
)

// The sources of a checker.
const (
	CheckerCommand = "command" // a command, given in the row
	CheckerPytest  = "pytest"  // a file or directory below asset_roots.eval for pytest
	CheckerScript  = "script"  // a program or a shell script below asset_roots.eval
)

// CheckerSchema is the schema of a checker.
func CheckerSchema() *schema.Schema {
	s := schema.Closed("The check of the final workspace; exit status 0 passes. Either a command, or the path of a pytest file or script below asset_roots.eval.", schema.Fields(Checker{}, nil)...)
	s.Check = checkChecker
	for _, source := range []string{CheckerPytest, CheckerScript} {
		path := schema.Required("path", schema.Path("The file or directory below asset_roots.eval."))
		s.Object.Variants = append(s.Object.Variants, schema.Variant{Key: "source", Value: source, Fields: []schema.Field{path}})
	}
	return s
}

// checkChecker checks that a checker has a command or a path, whichever its source needs.
func checkChecker(c *schema.Checker, v document.Value) {
	source, command, file := v.Get("source"), v.Get("command"), v.Get("path")
	for _, key := range []string{"artifacts", "collect"} {
		if of := v.Get(key); of.Len() > 0 && !v.Get("image").Given() {
			c.Errorf(of, "name the checker's own image", "%q is for a checker with an image", key)
		}
	}
	if source.Kind() == 0 || source.Is(CheckerCommand) {
		if command.Kind() == 0 {
			c.Errorf(v, "the command that checks; exit status 0 passes", "key %q is missing", "command")
		}
		if file.Kind() != 0 {
			c.Errorf(file, `a path needs "source": "pytest" or "script"`, "a command has no path")
		}
		return
	}
	if file.Kind() == 0 {
		c.Errorf(v, "the file below asset_roots.eval", "key %q is missing", "path")
	}
	if command.Kind() != 0 {
		c.Errorf(command, "remove one of the two", "a checker of source %q has no command", source.Text())
	}
}

// Checker says how a final workspace is checked; the zero Checker, that it is not. Where the author gave no value, a
// field is zero. It prints as "<redacted>".
type Checker struct {
	hidden.Fields
	Source        string            `key:"source" enum:"command,pytest,script" doc:"Where the check comes from, \"command\" unless given."`                                                                                                                                        // CheckerCommand, CheckerPytest or CheckerScript
	Command       schema.Command    `key:"command" doc:"The command that checks."`                                                                                                                                                                                                 // set if Source is CheckerCommand
	Path          string            `key:"path" rule:"path" doc:"The pytest file or directory, or the script, below asset_roots.eval. The directory that holds it is mounted at /tests and, at its path, below /opt/securebench/evaluator, without what any row names as hidden."` // set otherwise: clean
	Workdir       string            `key:"workdir" trim:"space" doc:"Where to run it, environment.workdir unless given."`
	Timeout       time.Duration     `key:"timeout_seconds" rule:"null" doc:"How long it may take."`
	Reward        bool              `key:"reward" doc:"Judge by the number in /logs/verifier/reward.json or reward.txt that the check leaves, as Harbor does, and not by its exit status: 1 or more passes."`
	PytestSummary bool              `key:"pytest_summary" doc:"Besides exit status 0, the last summary that pytest prints has to name passed tests, and none that failed. For scripts that end with other commands than their tests."`
	Image         string            `key:"image" trim:"space" rule:"null image" doc:"An image of the checker's own. Its sandbox then has nothing of the candidate but artifacts, each at its path: /logs/artifacts and those that are listed."`
	Artifacts     []string          `key:"artifacts" rule:"null absolute" items:"An absolute path." doc:"With an image: files and directories, absolute, that the checker gets as the candidate left them."`
	Collect       []Collect         `key:"collect" rule:"null" items:"A command." doc:"With an image: commands that run first, one after the other, on the machine as the candidate left it, such as to write artifacts."`
	Network       bool              `key:"network" doc:"The check fetches what it needs, as far as verification.allowed_domains of the tester file lets it."`
	Env           map[string]string `key:"env" doc:"Environment variables of the sandbox. They are public."` // over the task's
	User          string            `key:"user" trim:"space" rule:"null" doc:"Its user, environment.user or the image's unless given."`
	RunCandidate  bool              `key:"run_candidate" doc:"Close the tests to other users than the checker's, and offer run-candidate, which runs a program as one."`

	// Files is the file or directory below Pack.EvalRoot that sbench mounts:
	//
	//	Path is a directory                Path
	//	Path is a file in a directory      the directory, so that a test finds its conftest.py and its data
	//	Path is a file in EvalRoot itself  Path, since EvalRoot belongs to all tasks
	//	the checker is a command           ""
	Files string
	// Mount is where a sandbox has Files: paths.CheckerMount, or Evaluator if the checker is Relocated; "" for a command.
	Mount     string
	Mounted   string // the path of the file or directory Path in a sandbox; "" for a command
	Misplaced bool   // it is a script beside its tests in EvalRoot itself, which belongs to all tasks
	Shell     bool   // Path is a script that names no interpreter, for bash to run
}

// Collect is a command that collects artifacts.
type Collect struct {
	Command schema.Command `key:"command" rule:"required" doc:"The command."`
	Timeout time.Duration  `key:"timeout_seconds" rule:"null" doc:"How long it may take, by default a minute."`
	User    string         `key:"user" trim:"space" rule:"null" doc:"Its user, environment.user or the image's unless given."`
}

// Evaluator returns where a sandbox has Files below paths.EvaluatorMount; "" for a command.
func (c Checker) Evaluator() string {
	if c.Files == "" {
		return ""
	}
	return path.Join(paths.EvaluatorMount, c.Files)
}

// Relocated reports whether the checker is in SecureBench's layout, a script beside its tests: Mount is
// below paths.EvaluatorMount, and the checker may write to the root of its sandbox.
func (c Checker) Relocated() bool { return c.Mount != "" && c.Mount != paths.CheckerMount }

// TestDir returns the directory of a script's tests in a sandbox: paths.CheckerMount or, if the script is
// beside a directory called tests, that directory.
func (c Checker) TestDir() string {
	if !c.Relocated() {
		return paths.CheckerMount
	}
	return path.Join(c.Mount, scriptTests)
}

// RunPytest is the program that runs tests with the image's pytest or, if it has none, by itself.
const RunPytest = "/opt/sbench/python/run-pytest.py"

// scriptTests is the directory beside a script that holds its tests, as SecureBench has it.
const scriptTests = "tests"

// Args returns the command of the checker in its sandbox.
func (c Checker) Args() []string {
	switch c.Source {
	case CheckerPytest:
		// -I: nothing in the workspace configures the interpreter. Package terminal sets what configures pytest.
		return []string{"python3", "-I", RunPytest, c.Mounted}
	case CheckerScript:
		args := []string{c.Mounted}
		if c.Shell {
			args = []string{"bash", c.Mounted}
		}
		if c.Relocated() { // a script may expect its tests there, or put a link of its own there
			args = append([]string{"sh", "-c", `ln -s "$TEST_DIR" ` + paths.CheckerMount + ` 2>&-; exec "$@"`, "sh"}, args...)
		}
		return args
	}
	return c.Command.Args()
}

func checkerOf(t *Task) Checker {
	checker, v := Checker{Source: CheckerCommand}, t.Eval().Get("checker")
	schema.Decode(v, &checker)
	if checker.Source == CheckerCommand {
		return checker
	}
	checker.Path, _ = paths.Parse(v.Get("path").Text()) // the schema's check has passed
	checker.Files, checker.Mount = path.Dir(checker.Path), paths.CheckerMount
	name := filepath.Join(t.pack.EvalRoot, checker.Path)
	if isDir(name) {
		checker.Files, checker.Mounted = checker.Path, paths.CheckerMount
		return checker
	}
	if checker.Source == CheckerScript {
		begin := beginning(name)
		checker.Shell = begin != "" && !strings.HasPrefix(begin, "#!") && !strings.HasPrefix(begin, "\x7fELF")
	}
	if checker.besideTests(t.pack.EvalRoot) {
		if checker.Misplaced = checker.Files == "."; !checker.Misplaced {
			checker.Mount = checker.Evaluator()
		}
	}
	checker.Mounted = path.Join(checker.Mount, path.Base(checker.Path))
	if checker.Files == "." {
		checker.Files = checker.Path
	}
	return checker
}

// besideTests reports whether the checker is a script beside its tests, in SecureBench's layout. A
// script that itself lies in a directory of that name is among the tests.
func (c Checker) besideTests(evalRoot string) bool {
	dir := path.Dir(c.Path)
	return c.Source == CheckerScript && !c.Reward && path.Base(dir) != scriptTests && isDir(filepath.Join(evalRoot, dir, scriptTests))
}

func isDir(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.IsDir()
}

// beginning returns the first line of a file, as far as an error message needs it.
func beginning(name string) string {
	f, err := os.Open(filepath.Clean(name))
	if err != nil {
		return ""
	}
	defer shut(f)
	line, _ := bufio.NewReader(f).ReadSlice('\n') // an overlong line is judged by its beginning
	return string(line)
}

// ScriptFault returns why neither the kernel nor a shell can execute the script, and a hint how to
// mend it.
func ScriptFault(name string) (hint string, err error) {
	text := beginning(name)
	switch {
	case isDir(name):
		return "name the script in it", errors.New("is a directory")
	case text == "":
		return "", errors.New("is empty, or cannot be read")
	case strings.HasPrefix(text, byteOrderMark):
		return "save the file without one", errors.New("begins with a byte order mark, so that no interpreter is found")
	case !strings.HasPrefix(text, "#!") && !strings.HasPrefix(text, "\x7fELF") && !slices.Contains([]string{"", ".sh", ".bash"}, filepath.Ext(name)):
		return `begin it with a line such as "#!/usr/bin/env python3"`, errors.New("names no interpreter in its first line, and is no shell script by its name")
	case strings.HasSuffix(text, "\r\n"):
		return "save it with the line ends of Unix: sed -i 's/\\r$//' FILE", errors.New("has CRLF line ends, which no interpreter takes")
	}
	return "", nil
}

const byteOrderMark = "\ufeff"
