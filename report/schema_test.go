package report_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/report"
)

// TestSchema: every field of the JSON form is documented.
func TestSchema(t *testing.T) {
	doc := must.Read(t, "../docs/report.md")
	_, table, found := strings.Cut(string(doc), "\n## JSON\n")
	if !found || !strings.Contains(table, report.Schema) {
		t.Fatal("docs/report.md does not tell of this schema")
	}
	names := map[string]bool{}
	fields(reflect.TypeFor[report.Report](), names)
	if len(names) < 80 {
		t.Fatalf("%d fields", len(names))
	}
	for name := range names {
		if !strings.Contains(table, "`"+name) && !strings.Contains(table, "."+name) {
			t.Errorf("docs/report.md lacks %q", name)
		}
	}
}

// fields collects the JSON names of the fields of a type of package report or stat or of proxy.Usage, and
// of the types of its fields.
func fields(t reflect.Type, names map[string]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || !strings.Contains(t.PkgPath(), "/report") && t != reflect.TypeFor[proxy.Usage]() {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" { // which is in no JSON
			names[name] = true
			fields(f.Type, names)
		}
	}
}
