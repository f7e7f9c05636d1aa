package record_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/run/record"
)

// TestReasons: the table, the page and the sources name the same reasons.
func TestReasons(t *testing.T) {
	page, err := os.ReadFile("../../docs/records.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), record.ReasonsTable()) {
		t.Errorf("docs/records.md lacks this table:\n%s", record.ReasonsTable())
	}
	given := regexp.MustCompile(`(?:(?:failed|faulty|deny)\(|Reason:\s+|Reason\s+=\s+|Failure\{|reason[A-Z][a-z]+\s+=\s+|= (?:Faulty|Failed), (?:0, )?|record\.Error, )"([a-z0-9]+(?:_[a-z0-9]+)+|infrastructure)"`)
	known := record.Reasons()
	var text strings.Builder
	for _, dir := range []string{"candidate", "harness", "run", "verifiers"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(name string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "reasons.go") {
				return err
			}
			source, err := os.ReadFile(name)
			text.Write(source)
			for _, m := range given.FindAllSubmatch(source, -1) {
				if !slices.ContainsFunc(known, func(r record.Reason) bool { return r.Name == string(m[1]) }) {
					t.Errorf("%s gives the reason %q, which the table lacks", name, m[1])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range known {
		if !strings.Contains(text.String(), `"`+r.Name+`"`) && !strings.HasPrefix(r.Name, "max_") {
			t.Errorf("nothing gives the reason %q", r.Name)
		}
	}
}
