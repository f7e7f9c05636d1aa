package compiler

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/compiler/testerfile"
)

// Functions for the external tests.
var CheckMount = checkMount

// Active reports whether the family has a verifier: its schemas are closed.
func (f *Family) Active() bool { return !f.open() }

// SchemaFile is a JSON Schema in docs/schemas.
type SchemaFile struct {
	Name    string
	Content []byte
}

// SchemaFiles returns the JSON Schemas of manifests, tester files, rows of any family, and rows of each
// family. They are generated from the definitions that check these files, and accept the same files.
func SchemaFiles(agents []testerfile.AgentType, families []*Family) ([]SchemaFile, error) {
	var files []SchemaFile
	add := func(name, title string, s *schema.Schema) error {
		content, err := writeSchema(s, title)
		files = append(files, SchemaFile{name + ".schema.json", content})
		return err
	}
	err := add("manifest", "SecureBench pack manifest", manifestSchema(families))
	if err == nil {
		err = add("tester", "SecureBench tester file 0.2", testerfile.Schema(agents))
	}
	if err == nil {
		err = add("row", "SecureBench row of any family", anyRowSchema(families))
	}
	for _, f := range families {
		if err == nil {
			err = add("row."+f.Name, fmt.Sprintf("SecureBench %s row", f.Name), &schema.Schema{Doc: f.Doc, Object: familyRule(f)})
		}
	}
	return files, err
}

// anyRowSchema is the schema of rows that name their family themselves.
func anyRowSchema(families []*Family) *schema.Schema {
	rule := rowRule(families)
	for _, f := range families {
		var fields []schema.Field
		for _, field := range familyRule(f).Fields {
			if field.Name == "input" || field.Name == "eval" {
				fields = append(fields, field)
			}
		}
		rule.Variants = append(rule.Variants, schema.Variant{Key: "family", Value: f.Name, Fields: fields})
	}
	return &schema.Schema{Doc: "One task.", Object: rule}
}

// familyRule is the rule for rows of one family.
func familyRule(f *Family) *schema.Object {
	rule := rowRule([]*Family{f})
	for i, field := range rule.Fields {
		if object := map[string]*schema.Object{"input": f.Input, "eval": f.Eval}[field.Name]; object != nil {
			field.Schema.Object, field.Schema.Null = object, !f.Active()
			rule.Fields[i].Required = f.Active()
		}
	}
	return rule
}

// writeSchema returns s as an indented JSON Schema with this title. It accepts everything that a Checker accepts. What only
// Check functions refuse, it may accept too.
func writeSchema(s *schema.Schema, title string) ([]byte, error) {
	// The version of JSON Schema that editors support best.
	all := append(object{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", title}}, jsonOf(s)...)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(all)
	return b.Bytes(), err
}

// An object is written in its order, which for properties is the order that authors expect.
type object []member

type member struct {
	name  string
	value any
}

func (o *object) add(given bool, name string, value any) {
	if given {
		*o = append(*o, member{name, value})
	}
}

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		_ = enc.Encode(m.name)
		b.WriteByte(':')
		if err := enc.Encode(m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func jsonOf(s *schema.Schema) (js object) {
	text, number, array := s.String, s.Number, s.Array
	if text == nil {
		text = new(schema.String)
	}
	if number == nil {
		number = new(schema.Number)
	}
	if array == nil {
		array = new(schema.Array)
	}
	kind := map[bool]string{true: "integer", false: "number"}[number.Integer]
	var types []string
	for _, t := range []struct {
		allowed bool
		name    string
	}{{s.String != nil, "string"}, {s.Number != nil, kind}, {s.Boolean, "boolean"}, {s.Array != nil, "array"}, {s.Object != nil, "object"}, {s.Null, "null"}} {
		if t.allowed {
			types = append(types, t.name)
		}
	}
	var enum []any
	for _, value := range text.Enum {
		enum = append(enum, value)
	}
	if enum != nil && s.Null {
		enum = append(enum, nil)
	}
	js.add(s.Doc != "", "description", s.Doc)
	if len(types) == 1 {
		js.add(!s.Any, "type", types[0])
	} else {
		js.add(!s.Any, "type", types)
	}
	js.add(enum != nil, "enum", enum)
	js.add(s.Default != nil, "default", s.Default)
	js.add(text.NonEmpty, "minLength", 1)
	js.add(text.Pattern != "" || text.NonBlank, "pattern", cmp.Or(text.Pattern, `\S`))
	js.add(number.Min != nil, "minimum", number.Min)
	js.add(number.Max != nil, "maximum", number.Max)
	js.add(number.Above != nil, "exclusiveMinimum", number.Above)
	js.add(array.Min > 0, "minItems", array.Min)
	js.add(array.Max > 0, "maxItems", array.Max)
	if array.Items != nil {
		js.add(true, "items", jsonOf(array.Items))
	}
	if s.Object != nil {
		js = append(js, jsonOfObject(s.Object)...)
	}
	return js
}

func jsonOfObject(r *schema.Object) (js object) {
	var required []string
	var properties object
	for _, f := range r.Fields {
		properties.add(true, f.Name, jsonOf(f.Schema))
		if f.Required {
			required = append(required, f.Name)
		}
	}
	js.add(required != nil, "required", required)
	js.add(properties != nil, "properties", properties)
	switch {
	case r.Unknown == schema.Refuse:
		js.add(true, "additionalProperties", false)
	case r.Others != nil:
		js.add(true, "additionalProperties", jsonOf(r.Others))
	}
	var all []object
	for _, v := range r.Variants {
		condition := object{{"required", []string{v.Key}}, {"properties", object{{v.Key, object{{"const", v.Value}}}}}}
		then := jsonOfObject(&schema.Object{Fields: v.Fields, Unknown: schema.Accept})
		all = append(all, object{{"if", condition}, {"then", then}})
	}
	js.add(all != nil, "allOf", all)
	return js
}
