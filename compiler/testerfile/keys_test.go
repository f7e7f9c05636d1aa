package testerfile_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/must"
)

var update = flag.Bool("update", false, "rewrite the page")

// TestTesterKeys compares the tables of keys in docs/tester.md with the schema. With -update
// it writes them.
func TestTesterKeys(t *testing.T) {
	const page, head, end = "../../docs/tester.md", "|---|---|---|\n", "\n\n"
	text := must.Read(t, page)
	doc := string(text)
	for _, table := range keyTables() {
		begin := "\n## " + table.Section + "\n"
		before, section, found := strings.Cut(doc, begin)
		intro, rest, isTable := strings.Cut(section, head)
		if !found || !isTable || strings.Contains(intro, "\n## ") {
			t.Errorf("%s has no table in a section %q", page, table.Section)
			continue
		}
		got, after, _ := strings.Cut(rest, end)
		if *update {
			doc = before + begin + intro + head + table.Rows + end + after
		} else if diff := cmp.Diff(got, table.Rows); diff != "" {
			t.Errorf("%s differs from the code; run make golden\n%s", page, diff)
		}
	}
	if *update {
		must.Do(t, os.WriteFile(page, []byte(doc), 0o644))
	}
}

// keyTable is the table of one section of docs/tester.md.
type keyTable struct {
	Section string // a key of the tester file
	Rows    string // a line of Markdown for each key
}

// keyTables returns the tables of all keys of a tester file.
func keyTables() (tables []keyTable) {
	for _, f := range testerfile.Schema(harness.AgentTypes()).Object.Fields {
		rows := keyRows(f.Name, f)
		if f.Name == "harness" {
			rows = append(rows, configRows(f.Schema.Object.Variants)...)
		}
		tables = append(tables, keyTable{f.Name, strings.Join(rows, "\n")})
	}
	return tables
}

// configRows returns the rows of harness.config, each with the types of harnesses that it is for.
func configRows(types []schema.Variant) (rows []string) {
	kinds := map[string][]string{}
	fields := map[string]schema.Field{}
	var names []string
	for _, variant := range types {
		for _, f := range variant.Fields[0].Schema.Object.Fields {
			if kinds[f.Name] == nil {
				names = append(names, f.Name)
				fields[f.Name] = f
			}
			kinds[f.Name] = append(kinds[f.Name], variant.Value)
		}
	}
	for _, name := range names {
		f := fields[name]
		if len(kinds[name]) < len(types) {
			schema, whose := *f.Schema, strings.Join(kinds[name], ", ")
			if len(kinds[name]) == len(types)-1 && kinds[name][0] != testerfile.HarnessCommand {
				whose = "agents"
			}
			schema.Doc = whose + ": " + schema.Doc
			f.Schema = &schema
		}
		rows = append(rows, keyRows("harness.config."+name, f)...)
	}
	return rows
}

// keyRows returns the row of a field or, if the field is an object, the rows of the object's fields.
func keyRows(path string, f schema.Field) (rows []string) {
	s := f.Schema
	if s.Object != nil && s.String == nil && len(s.Object.Fields) > 0 {
		for _, below := range s.Object.Fields {
			rows = append(rows, keyRows(path+"."+below.Name, below)...)
		}
		return rows
	}
	value := kindOf(s)
	switch {
	case f.Required:
		value += ", required"
	case s.Default != nil:
		value += fmt.Sprintf(", by default `%v`", s.Default)
	}
	return []string{fmt.Sprintf("| `%s` | %s | %s |", path, value, strings.ReplaceAll(s.Doc, "|", `\|`))}
}

func kindOf(s *schema.Schema) string {
	var kinds []string
	if s.String != nil && len(s.String.Enum) > 0 {
		values := slices.Clone(s.String.Enum)
		for i, v := range values {
			values[i] = "`" + v + "`"
		}
		kinds = append(kinds, strings.Join(values, ", "))
	} else if s.String != nil {
		kinds = append(kinds, "text")
	}
	if s.Number != nil {
		kind := "number"
		if s.Number.Integer {
			kind = "integer"
		}
		kinds = append(kinds, kind)
	}
	if s.Boolean {
		kinds = append(kinds, "`true` or `false`")
	}
	if s.Array != nil {
		kinds = append(kinds, "list of: "+kindOf(s.Array.Items))
	}
	if s.Object != nil {
		kinds = append(kinds, "object")
	}
	return strings.Join(kinds, " or ")
}
