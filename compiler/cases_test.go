package compiler_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/validate"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// testCase is one case of an archive in testdata/cases: the files CASE/NAME, the files common/NAME unless
// CASE has a file of the same name, and in CASE/want every problem that Validate finds in them.
type testCase struct {
	name  string
	files map[string]string
	want  int // index of the archive's file
}

func readCases(t *testing.T, path string) (*txtar.Archive, []testCase) {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	must.Do(t, err)
	common := map[string]string{}
	var cases []testCase
	for i, f := range archive.Files {
		name, file, ok := strings.Cut(f.Name, "/")
		if !ok {
			t.Fatalf("%s: file %q is of no case", path, f.Name)
		}
		if name == "common" {
			common[file] = string(f.Data)
			continue
		}
		if len(cases) == 0 || cases[len(cases)-1].name != name {
			files := map[string]string{}
			for file, data := range common {
				files[file] = data
			}
			cases = append(cases, testCase{name: name, files: files, want: -1})
		}
		c := &cases[len(cases)-1]
		if file == "want" {
			c.want = i
		} else {
			c.files[file] = string(f.Data)
		}
	}
	return archive, cases
}

// TestCases checks every case of every archive. With -update it writes what Validate
// reports into the archives, to be reviewed before it is committed.
func TestCases(t *testing.T) {
	archives, err := filepath.Glob("testdata/cases/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal(archives, err)
	}
	total := 0
	for _, path := range archives {
		path := must.Abs(t, path)
		archive, cases := readCases(t, path)
		total += len(cases)
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					got := problemsIn(t, c.files)
					if c.want < 0 {
						t.Fatal("case has no file want")
					}
					if *update {
						archive.Files[c.want].Data = []byte(got)
					} else if diff := cmp.Diff(string(archive.Files[c.want].Data), got); diff != "" {
						t.Error(diff)
					}
				})
			}
		})
		if *update {
			must.Do(t, os.WriteFile(path, txtar.Format(archive), 0o644))
		}
	}
	if total < 150 {
		t.Errorf("only %d cases", total)
	}
}

// problemsIn writes the files into a fresh working directory and returns what Validate
// reports, one line per problem.
func problemsIn(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	filetest.Write(t, dir, files)
	var b strings.Builder
	if _, err := validate.Files(t.Context(), []string{"."}, harness.AgentTypes(), func(p compiler.Problem) {
		b.WriteString(strings.ReplaceAll(p.String(), dir+"/", "") + "\n")
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
