package patch_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler/patch"
	"github.com/securebench/sbench/internal/test/must"
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
		{"src/*.py", []string{"src/a.py", "src/a/b.py"}, []string{"src/a.pyx", "lib/src/a.py"}},
		{"*/tests/*", []string{"a/b/tests/c"}, []string{"tests/c"}},
		{"src/[!a-c]?.py", []string{"src/dx.py"}, []string{"src/ax.py", "src/d.py"}},
		{"a+(b)[]^]", []string{"a+(b)]", "a+(b)^/c"}, []string{"a+(b)x", "aa(b)]"}},
		{"a[", []string{"a["}, []string{"a"}},
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

func TestSteering(t *testing.T) {
	tests := []struct {
		name        string
		command     []string
		steer, free []string
	}{
		{
			"pytest", []string{"python3", "-m", "pytest", "-q", "tests"},
			[]string{"conftest.py", "a/conftest.py", "pytest.toml", "pyproject.toml", "x/__pycache__/a.cpython-311.pyc", "a.pyc", "evil-1.dist-info/METADATA", "x/entry_points.txt"},
			[]string{"src/a.py", "ci/run", ".github/workflows/x.yml", "Makefile", "bin/deploy.sh", "package.json", "Cargo.toml", "go.mod", "setup.py", "requirements.txt", "contest.py", "pycache/a"},
		},
		{"make", []string{"sh", "-c", "cd x && make check"}, []string{"Makefile", "a/rules.mk", "conftest.py"}, []string{"bin/deploy.sh", "Cargo.toml"}},
		{"a version", []string{"/usr/bin/python3.11", "-m", "unittest"}, []string{"setup.cfg"}, []string{"Makefile"}},
		{"cargo", []string{"cargo", "test", "--offline"}, []string{"Cargo.toml", ".cargo/config.toml", "build.rs"}, []string{"Makefile", "src/lib.rs"}},
		{"npm", []string{"npm", "test"}, []string{"package.json", "jest.config.js"}, []string{"go.mod"}},
		{"a script, which may start anything", []string{"./run-all", "java", "pytest"}, []string{"Makefile", "package.json", "go.mod", "conftest.py", ".bashrc"}, []string{"src/a.py", "lib/text.sh"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rules := patch.Steering(tt.command)
			steers := func(p string) bool { return slices.ContainsFunc(rules, func(r patch.Rule) bool { return r.Names(p) }) }
			for _, p := range tt.steer {
				if !steers(p) {
					t.Errorf("%q is free", p)
				}
			}
			for _, p := range tt.free {
				if steers(p) {
					t.Errorf("%q steers", p)
				}
			}
		})
	}
}

func TestTestNames(t *testing.T) {
	for p, want := range map[string]struct {
		file      bool
		directory string
	}{
		"a_test.go": {true, ""}, "web/a.test.ts": {true, ""}, "web/a.spec.tsx": {true, ""}, "x/test_a.py": {true, ""}, "t/a.t": {true, "t"},
		"tests/data.txt": {false, "tests"}, "src/Test/java/A.java": {false, "src/Test"}, "a/tests/b/test/c": {false, "a/tests"}, "testdata/x": {false, "testdata"},
		"src/CalcTest.java": {true, ""}, "src/Contest.java": {}, "src/Latest.kt": {}, "src/Contests.cs": {}, "src/Contest.php": {},
		"src/a.py": {}, "testing/a.py": {}, "latest.py": {}, "test": {},
	} {
		if file, directory := patch.TestFile(p), patch.TestDirectory(p); file != want.file || directory != want.directory {
			t.Errorf("%q: %v, %q", p, file, directory)
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

// TestPage shows that the documentation prints the names of tests.
func TestPage(t *testing.T) {
	page := must.Read(t, "../../docs/verifiers.md")
	code := func(names []string) string { return "`" + strings.Join(names, "` `") + "`" }
	files, directories := patch.NamesOfTests()
	want := "| | names |\n|---|---|\n| test files | " + code(files) + " |\n| directories of tests | " + code(directories) + " |\n"
	if !strings.Contains(string(page), want) {
		t.Errorf("docs/verifiers.md lacks this table:\n%s", want)
	}
}
