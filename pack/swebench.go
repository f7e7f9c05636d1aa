package pack

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/patch"
)

type sweBenchOptions struct {
	Hints bool `json:"hints,omitempty" help:"swebench: show the agent hints_text."`
	// TestCommands, by repository, override the known ones.
	TestCommands map[string]string `json:"test_commands,omitempty" name:"test-command" mapsep:"none" placeholder:"REPO=COMMAND" help:"swebench: command of a repository's tests; {tests} and {files} stand for them."`
}

// testbed is the repository's path in the published images.
const testbed = "/testbed"

const testSeconds = 1800

var (
	commitID   = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)
	instanceID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	repoName   = regexp.MustCompile(`^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$`)
)

// row makes a task of a row of SWE-bench (Lite, Verified, Multilingual). Its tests are the tests that the record names, or
// the test files that the record's test_patch touches.
func (o *sweBenchOptions) row(r *record) (Row, error) {
	i := newInstance(r)
	if len(r.problems) > 0 {
		return Row{ID: i.id}, nil
	}
	command, err := i.command(o.TestCommands)
	if err != nil {
		r.wrong("$.repo", "%v", err)
	}
	row := i.row(command)
	if hints := r.optional("hints_text"); o.Hints && strings.TrimSpace(hints) != "" {
		row.Input["hints"] = hints
	}
	copyKeys(row.Metadata, r.value, "version", "environment_setup_commit", "created_at", "difficulty")
	return row, nil
}

// instance is one row of the benchmark.
type instance struct {
	id, repo, base, problem, gold, test string
	testPaths                           []string
	failToPass, passToPass              []string
}

func newInstance(r *record) instance {
	i := instance{
		id: r.text("instance_id"), repo: r.text("repo"), base: r.text("base_commit"), problem: r.text("problem_statement"),
		gold: r.text("patch"), test: r.text("test_patch"),
		failToPass: r.names("FAIL_TO_PASS"), passToPass: r.names("PASS_TO_PASS"),
	}
	for _, c := range []struct {
		key, value string
		form       *regexp.Regexp
	}{{"instance_id", i.id, instanceID}, {"repo", i.repo, repoName}, {"base_commit", i.base, commitID}} {
		if c.value != "" && !c.form.MatchString(c.value) {
			r.wrong("$."+c.key, "%q has not the form %s", c.value, c.form)
		}
	}
	if len(i.failToPass) == 0 && len(r.problems) == 0 {
		r.wrong("$.FAIL_TO_PASS", "no test")
	}
	r.patchPaths("patch", i.gold)
	i.testPaths = r.patchPaths("test_patch", i.test)
	return i
}

// names reads a list of tests: an array, or a string that contains one as JSON.
func (r *record) names(key string) []string {
	v := r.value.Get(key)
	var doc document.Document
	if v.Kind() == document.String {
		if problems := doc.ParseJSON([]byte(v.Text()), 1); len(problems) > 0 {
			r.wrong("$."+key, "the string holds no list: %s", problems[0].Message)
			return nil
		}
		v = doc.Root()
	}
	if v.Kind() != document.Array {
		r.wrong("$."+key, "expected an array, or a string that holds one")
		return nil
	}
	names := []string{}
	for i, item := range v.Items() {
		if item.Kind() != document.String || strings.TrimSpace(item.Text()) == "" {
			r.wrong(fmt.Sprintf("$.%s[%d]", key, i), "expected the name of a test")
			continue
		}
		names = append(names, item.Text())
	}
	return names
}

func (r *record) patchPaths(key, text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil // reported already
	}
	files, err := patch.Parse(text)
	if err != nil {
		r.wrong("$."+key, "malformed patch: %v", err)
		return nil
	}
	var paths []string
	for _, f := range files {
		for _, p := range f.Paths() {
			if err := patch.CheckPath(p); err != nil {
				r.wrong("$."+key, "%v", err)
			}
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func (i instance) row(command []string) Row {
	return Row{
		ID:    i.id,
		Input: map[string]any{"repo": i.repo, "base_commit": i.base, "instructions": i.problem},
		Eval: map[string]any{
			"tests": map[string]any{
				"source": "command", "command": command, "workdir": testbed, "timeout_seconds": testSeconds,
				"test_patch": map[string]any{"source": "inline", "patch": i.test},
			},
			"gold_patch": i.gold,
		},
		Metadata: map[string]any{"fail_to_pass": i.failToPass, "pass_to_pass": i.passToPass, "test_files": i.testPaths},
		Names: map[string]string{
			"instance_id": strings.ToLower(i.id), "instance": strings.ReplaceAll(strings.ToLower(i.id), "__", "_1776_"),
			"repo": strings.ReplaceAll(strings.ToLower(i.repo), "/", "__"),
		},
	}
}

// testCommands returns the commands of the repositories of SWE-bench Verified, as its
// authors run them. {tests} stands for the names of the tests if pytest can take them,
// otherwise for the test files; {labels} is the same for Django's runner; {files} always
// stands for the files.
func testCommands() map[string]string {
	const pytest = "python -m pytest -rA {tests}"
	return map[string]string{
		"astropy/astropy":           "python -m pytest -rA -vv -o console_output_style=classic --tb=no {tests}",
		"django/django":             "./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 {labels}",
		"matplotlib/matplotlib":     pytest,
		"mwaskom/seaborn":           "python -m pytest --no-header -rA {tests}",
		"pallets/flask":             pytest,
		"psf/requests":              pytest,
		"pydata/xarray":             pytest,
		"pylint-dev/pylint":         pytest,
		"pytest-dev/pytest":         pytest,
		"scikit-learn/scikit-learn": pytest,
		"sphinx-doc/sphinx":         "tox --current-env -epy39 -v -- {tests}",
		"sympy/sympy":               "PYTHONWARNINGS='ignore::UserWarning,ignore::SyntaxWarning' bin/test -C --verbose {files}",
	}
}

// activate enters the conda environment of the published images, if there is one.
const activate = "if [ -f /opt/miniconda3/bin/activate ]; then . /opt/miniconda3/bin/activate && conda activate testbed; fi"

// command returns the shell command that runs the tests. They are positional parameters, so
// that the shell never interprets their names as code.
func (i instance) command(more map[string]string) ([]string, error) {
	template, ok := more[i.repo]
	if !ok {
		template, ok = testCommands()[i.repo]
	}
	if !ok {
		return nil, fmt.Errorf("no test command is known for %q: give --test-command '%s=python3 -m pytest -q {tests}'", i.repo, i.repo)
	}
	var kind string
	var args []string
	switch {
	case strings.Contains(template, "{tests}"):
		kind, args = "{tests}", i.pytestArgs()
	case strings.Contains(template, "{labels}"):
		kind, args = "{labels}", i.djangoLabels()
	case strings.Contains(template, "{files}"):
		kind, args = "{files}", i.files()
	default:
		return []string{"bash", "-c", activate + "; " + template}, nil
	}
	if len(args) == 0 {
		return nil, fmt.Errorf("the test_patch touches no test file in Python for %s", kind)
	}
	line := activate + "; " + strings.ReplaceAll(template, kind, `"$@"`)
	return append([]string{"bash", "-c", line, "bash"}, args...), nil
}

// files returns the Python test files that the tests' patch touches.
func (i instance) files() []string {
	return slices.DeleteFunc(slices.Clone(i.testPaths), func(p string) bool {
		base := path.Base(p)
		return path.Ext(base) != ".py" || base == "__init__.py" || base == "conftest.py"
	})
}

// Bounds on the tests that a command names: their number, and the length of their names in
// bytes. By default, Linux accepts at most 2 MiB of arguments; see execve(2).
const (
	maxNames     = 4000
	maxNameBytes = 512 << 10
)

// pytestArgs returns the names of the tests that have to pass. If a name is truncated or not pytest's, it returns the test
// files.
func (i instance) pytestArgs() []string {
	names := slices.Concat(i.failToPass, i.passToPass)
	size := 0
	for _, n := range names {
		file, rest, ok := strings.Cut(n, "::")
		size += len(n) + 1
		if !ok || !strings.HasSuffix(file, ".py") || strings.HasPrefix(n, "-") || strings.Contains(rest, "[") != strings.HasSuffix(rest, "]") {
			return i.files()
		}
	}
	if len(names) > maxNames || size > maxNameBytes {
		return i.files()
	}
	return names
}

// djangoName matches a test as unittest prints it: its name, and in parentheses the class,
// with or without that name.
var djangoName = regexp.MustCompile(`^(test\w*) \(([\w.]+)\)$`)

// djangoLabels returns the tests that have to pass as labels for Django's runner. unittest prints the docstring of a test
// in place of its name. For a row with such a test, djangoLabels returns the modules of the test files.
func (i instance) djangoLabels() []string {
	var labels []string
	names := slices.Concat(i.failToPass, i.passToPass)
	for _, n := range names {
		m := djangoName.FindStringSubmatch(n)
		if m == nil || len(names) > maxNames {
			return i.djangoModules()
		}
		labels = append(labels, strings.TrimSuffix(m[2], "."+m[1])+"."+m[1])
	}
	return labels
}

func (i instance) djangoModules() []string {
	var modules []string
	for _, p := range i.files() {
		modules = append(modules, strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(p, "tests/"), ".py"), "/", "."))
	}
	return modules
}
