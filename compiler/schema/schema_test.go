package schema_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
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
			if got := schema.Suggest(test.written, known); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func check(t *testing.T, s *schema.Schema, text string) []string {
	t.Helper()
	var d document.Document
	if problems := d.ParseJSON([]byte(text), 1); len(problems) > 0 {
		t.Fatal(problems)
	}
	c := schema.Checker{}
	ok := c.Check(s, d.Root())
	var got []string
	errs := 0
	for _, p := range c.Problems {
		got = append(got, p.Path+": "+p.Message)
		if !p.Warning {
			errs++
		}
	}
	if ok != (errs == 0) {
		t.Errorf("Check says %v with %d errors", ok, errs)
	}
	return got
}

func TestCheck(t *testing.T) {
	inner := &schema.Object{Fields: []schema.Field{{Name: "n", Required: true, Schema: &schema.Schema{Number: &schema.Number{Min: new(0.0), Integer: true}}}}}
	s := schema.Closed("",
		schema.Field{Name: "a", Schema: schema.List("", &schema.Schema{Object: inner})},
		schema.Field{Name: "b", Schema: schema.Nullable(schema.Boolean("", true))},
		schema.Field{Name: "c", Schema: &schema.Schema{}},
	)
	tests := []struct {
		text string
		want []string
	}{
		{`{}`, nil},
		{`{"a":[{"n":0}],"b":null}`, nil},
		{`{"a":[{"n":-1},{"n":1.0},{},3],"b":1}`, []string{
			"$.a[0].n: expected an integer of at least 0, found -1", "$.a[1].n: expected an integer of at least 0, found 1.0",
			`$.a[2]: key "n" is missing`, "$.a[3]: expected an object, found a number (3)", "$.b: expected a boolean, found a number (1)",
		}},
		{`{"c":1}`, []string{"$.c: expected , found a number (1)"}}, // the zero Schema allows nothing
		{`[]`, []string{"$: expected an object, found an array"}},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			if diff := cmp.Diff(test.want, check(t, s, test.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestManyProblems shows that the number of problems is bounded.
func TestManyProblems(t *testing.T) {
	got := check(t, schema.List("", schema.Text("")), "["+strings.Repeat("1,", 100_000)+"1]")
	if len(got) != 100 || got[99] != ": and more problems" {
		t.Errorf("%d problems, the last %q", len(got), got[len(got)-1])
	}
}
