package compiler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/schema"
)

// KeyTable is the table of one section of docs/tester.md.
type KeyTable struct {
	Section string // a key of the tester file
	Rows    string // a line of Markdown for each key
}

// KeyTables returns the tables of all keys of a tester file.
func KeyTables(agents []AgentType) (tables []KeyTable) {
	for _, f := range testerSchema(agents).Object.Fields {
		rows := keyRows(f.Name, f)
		if f.Name == "harness" {
			rows = append(rows, configRows(agents)...)
		}
		tables = append(tables, KeyTable{f.Name, strings.Join(rows, "\n")})
	}
	return tables
}

// configRows returns the rows of harness.config, each with the types of harnesses that it is for.
func configRows(agents []AgentType) (rows []string) {
	kinds := map[string][]string{}
	fields := map[string]schema.Field{}
	var names []string
	types := []string{HarnessCommand}
	for _, a := range agents {
		types = append(types, a.Name)
	}
	configs := harnessConfigs(agents)
	for _, kind := range types {
		for _, f := range configs[kind].Fields {
			if kinds[f.Name] == nil {
				names = append(names, f.Name)
				fields[f.Name] = f
			}
			kinds[f.Name] = append(kinds[f.Name], kind)
		}
	}
	for _, name := range names {
		f := fields[name]
		if len(kinds[name]) < len(types) {
			schema, whose := *f.Schema, strings.Join(kinds[name], ", ")
			if slices.Equal(kinds[name], types[1:]) {
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
