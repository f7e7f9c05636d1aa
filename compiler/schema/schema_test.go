package schema_test

import (
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/internal/test/must"
)

func TestSuggest(t *testing.T) {
	known := []string{"timeout_seconds", "allowed_domains", "id", "eval", "environment", "read_only"}
	tests := []struct{ written, want string }{
		{"timeout-seconds", "timeout_seconds"}, {"timeoutSeconds", "timeout_seconds"}, {"timout", "timeout_seconds"}, {"time_out", "timeout_seconds"},
		{"alowed_domains", "allowed_domains"}, {"environemnt", "environment"}, {"ID", "id"}, {"ids", "id"}, {"readonly", "read_only"}, {"evla", "eval"},
		{"difficulty", ""}, {"x", ""}, {"", ""}, {"name", ""}, {strings.Repeat("a", 100), ""},
	}
	for _, test := range tests {
		t.Run(test.written, func(t *testing.T) {
			want := test.want
			if want != "" {
				want = `did you mean "` + want + `"?`
			}
			must.Equal(t, want, schema.Suggest(test.written, known))
		})
	}
}

// TestManyProblems shows that the number of problems is bounded.
func TestManyProblems(t *testing.T) {
	var d document.Document
	if problems := d.ParseJSON([]byte("["+strings.Repeat("1,", 100_000)+"1]"), 1); len(problems) > 0 {
		t.Fatal(problems)
	}
	c := schema.Checker{}
	if ok := c.Check(schema.List("", schema.Text("")), d.Root()); ok || len(c.Problems) != 100 || c.Problems[99].Message != "and more problems" {
		t.Errorf("%d problems, the last %v", len(c.Problems), c.Problems[len(c.Problems)-1])
	}
}
