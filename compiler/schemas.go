package compiler

import (
	"fmt"

	"github.com/securebench/sbench/compiler/schema"
)

// SchemaFile is a JSON Schema as it stands in docs/schemas.
type SchemaFile struct {
	Name    string
	Content []byte
}

// SchemaFiles returns the JSON Schemas of manifests, of tester files, and of
// rows: of every family, and of one family each. They are written from the
// definitions that check these files, and accept what those accept.
func SchemaFiles() ([]SchemaFile, error) {
	var files []SchemaFile
	add := func(name, title string, s *schema.Schema) error {
		content, err := s.JSONSchema(title)
		files = append(files, SchemaFile{name + ".schema.json", content})
		return err
	}
	err := add("manifest", "SecureBench pack manifest", manifestSchema())
	if err == nil {
		err = add("tester", "SecureBench tester file 0.2", testerSchema())
	}
	if err == nil {
		err = add("row", "SecureBench row of any family", anyRowSchema())
	}
	for _, f := range registry() {
		if err == nil {
			name := string(f.Family)
			err = add("row."+name, fmt.Sprintf("SecureBench %s row", name), &schema.Schema{Doc: f.doc, Object: rowRule(f)})
		}
	}
	return files, err
}

// anyRowSchema is for rows that name their family themselves.
func anyRowSchema() *schema.Schema {
	rule := rowRule(nil)
	for _, f := range registry() {
		var fields []schema.Field
		for _, field := range rowRule(f).Fields {
			if field.Name == "input" || field.Name == "eval" {
				fields = append(fields, field)
			}
		}
		rule.Variants = append(rule.Variants, schema.Variant{Key: "family", Value: string(f.Family), Fields: fields})
	}
	return &schema.Schema{Doc: "One task.", Object: rule}
}
