package record_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/record"
)

// reasons returns the failure reasons in the table of docs/records.md.
func reasons(t *testing.T) []string {
	t.Helper()
	page := must.Read(t, "../../docs/records.md")
	_, table, found := strings.Cut(string(page), "\n| `failure_reason` | status | |\n|---|---|---|\n")
	if !found {
		t.Fatal("docs/records.md has no table of reasons")
	}
	row := regexp.MustCompile("^\\| (`[a-z0-9_]+`(?:, `[a-z0-9_]+`)*) \\| `([a-z]+)` \\| \\S.* \\|\n$")
	var names []string
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		m := row.FindStringSubmatch(line)
		if m == nil || !slices.Contains([]record.Status{record.Failed, record.Error, record.Pending}, record.Status(m[2])) {
			t.Fatalf("docs/records.md: %q is no row of the table", line)
		}
		for name := range strings.SplitSeq(m[1], ", ") {
			name = strings.Trim(name, "`")
			if slices.Contains(names, name) {
				t.Fatalf("docs/records.md: %q stands twice", name)
			}
			names = append(names, name)
		}
	}
	return names
}

// TestReasons: the page and the sources name the same reasons.
func TestReasons(t *testing.T) {
	given := regexp.MustCompile(`(?:(?:Fail|Fault|failed|deny)\(|Reason:\s+|Reason\s+=\s+|Failure\{|reason[A-Z][a-z]+\s+=\s+|= (?:Faulty|Failed), (?:0, )?|record\.(?:Error|Pending), |cmp\.Or\([a-zA-Z.]+, )"([a-z0-9]+(?:_[a-z0-9]+)+|infrastructure)"`)
	known := reasons(t)
	var text strings.Builder
	for _, dir := range []string{"candidate", "harness", "run", "verifiers"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(name string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			source, err := os.ReadFile(name)
			text.Write(source)
			for _, m := range given.FindAllSubmatch(source, -1) {
				if !slices.Contains(known, string(m[1])) {
					t.Errorf("%s gives the reason %q, which the table lacks", name, m[1])
				}
			}
			return err
		})
		must.Do(t, err)
	}
	for _, name := range known {
		if !strings.Contains(text.String(), `"`+name+`"`) && !strings.HasPrefix(name, "max_") {
			t.Errorf("nothing gives the reason %q", name)
		}
	}
}
