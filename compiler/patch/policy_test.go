package patch_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler/patch"
)

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		glob string
		yes  []string
		no   []string
	}{
		{"src", []string{"src", "src/a", "src/a/b.py"}, []string{"srcs/a", "lib/src/a"}},
		{"./src/", []string{"src/a", "src/a/b.py"}, []string{"lib/src/a", "a"}},
		{"src/*", []string{"src/a", "src/a/b.py"}, []string{"src", "lib/a"}},
		{"*.py", []string{"a.py", "src/a.py"}, []string{"a.txt", "src/a.pyx"}},
		{"src/**", []string{"src/a", "src/a/b"}, []string{"src", "a"}},
		{"**/a.py", []string{"a.py", "x/y/a.py"}, []string{"x/y/b.py"}},
		{"src/**/test", []string{"src/test", "src/a/test/b"}, []string{"test", "src/tests"}},
		{"setup.cfg", []string{"setup.cfg"}, []string{"x/setup.cfg"}},
		{".", []string{"a", "a/b"}, nil},
	} {
		for _, p := range tt.yes {
			if !patch.Match([]string{tt.glob}, p) {
				t.Errorf("%q does not match %q", tt.glob, p)
			}
		}
		for _, p := range tt.no {
			if patch.Match([]string{tt.glob}, p) {
				t.Errorf("%q matches %q", tt.glob, p)
			}
		}
	}
}

func TestSensitive(t *testing.T) {
	for _, p := range []string{
		"a_test.go", "web/a.test.ts", "web/a.spec.tsx", "x/test_a.py", "x/a_test.py", "conftest.py", "a/conftest.py", "ci/run", "x/__pycache__/a.cpython-311.pyc",
		"a.pyc", "bin/setup.zsh", "Makefile", "tests/data.txt", "Cargo.toml", "sub/package.json", ".github/workflows/x.yml", "evil-1.dist-info/entry_points.txt", "x/entry_points.txt",
	} {
		if _, ok := patch.Sensitive(p); !ok {
			t.Errorf("%q is free", p)
		}
	}
	for _, p := range []string{"src/a.py", "a.go", "web/a.ts", "cities/x", "testing/a.py", "README.md", "latest.py", "pycache/a", "contest.py"} {
		if r, ok := patch.Sensitive(p); ok {
			t.Errorf("%q is %s", p, r.Kind)
		}
	}
}

func TestRunners(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"./tests/runtests.py", "-v"}, "tests/runtests.py"},
		{[]string{"sh", "-c", "PYTHONWARNINGS=x bin/test -C"}, "bin/test"},
		{[]string{"bash", "-c", ". env/activate; python -W error tools/run.py x && ./b"}, "tools/run.py"},
		{[]string{"python3", "-m", "tools.check", "x"}, "tools/check.py"},
		{[]string{"sh", "-c", "(timeout 60 ./go) | tee log"}, "go"},
		{[]string{"sh", "-c", "env -i A=b node lib/run.js"}, "lib/run.js"},
	} {
		if got := patch.Runners(tt.args); !slices.Contains(got, tt.want) {
			t.Errorf("%q: %q lack %q", tt.args, got, tt.want)
		}
	}
	if got := patch.Runners([]string{"python3", "-m", "pytest", "src/a.py"}); slices.Contains(got, "src/a.py") {
		t.Errorf("%q names what is tested", got)
	}
}

// TestPage shows that the documentation prints the table.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/verifiers.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| | paths |\n|---|---|\n"
	for _, r := range patch.Rules() {
		table += "| " + r.Kind + " | `" + strings.Join(r.Globs, "` `") + "` |\n"
	}
	if !strings.Contains(string(page), table) {
		t.Errorf("docs/verifiers.md lacks this table:\n%s", table)
	}
}
