package compiler

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/compiler/testerfile"
)

// Functions for the external tests.
var ParseMount = parseMount

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

// writeSchema returns s as an indented JSON Schema with this title. It accepts
// everything that a Checker accepts. What only Check functions refuse, it may
// accept too.
func writeSchema(s *schema.Schema, title string) ([]byte, error) {
	js := jsonOf(s)
	// The version of JSON Schema that editors support best.
	js.Schema, js.Title = "http://json-schema.org/draft-07/schema#", title
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(js)
	return b.Bytes(), err
}

// jsonSchema has the keywords that are used, in the order in which they are written.
type jsonSchema struct {
	Schema               string        `json:"$schema,omitempty"`
	Title                string        `json:"title,omitempty"`
	Description          string        `json:"description,omitempty"`
	Type                 any           `json:"type,omitempty"` // a string or several
	Const                any           `json:"const,omitempty"`
	Enum                 []any         `json:"enum,omitempty"`
	Default              any           `json:"default,omitempty"`
	MinLength            int           `json:"minLength,omitempty"`
	Pattern              string        `json:"pattern,omitempty"`
	Minimum              *float64      `json:"minimum,omitempty"`
	ExclusiveMinimum     *float64      `json:"exclusiveMinimum,omitempty"`
	MinItems             int           `json:"minItems,omitempty"`
	MaxItems             int           `json:"maxItems,omitempty"`
	Items                *jsonSchema   `json:"items,omitempty"`
	Required             []string      `json:"required,omitempty"`
	Properties           properties    `json:"properties,omitempty"`
	AdditionalProperties any           `json:"additionalProperties,omitempty"`
	If                   *jsonSchema   `json:"if,omitempty"`
	Then                 *jsonSchema   `json:"then,omitempty"`
	AllOf                []*jsonSchema `json:"allOf,omitempty"`
}

// properties are written in the order of the definitions, which authors expect.
type properties []property

type property struct {
	name   string
	schema *jsonSchema
}

func (ps properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, p := range ps {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(p.name)
		if err != nil {
			return nil, err
		}
		value, err := marshal(p.schema)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// marshal is json.Marshal without escapes for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

func jsonOf(s *schema.Schema) *jsonSchema {
	js := &jsonSchema{Description: s.Doc, Default: s.Default}
	var types []string
	if s.String != nil {
		types = append(types, "string")
		jsonOfString(s.String, js)
	}
	if s.Number != nil {
		types = append(types, jsonOfNumber(s.Number, js))
	}
	if s.Boolean {
		types = append(types, "boolean")
	}
	if s.Array != nil {
		types = append(types, "array")
		js.MinItems, js.MaxItems = s.Array.Min, s.Array.Max
		if s.Array.Items != nil {
			js.Items = jsonOf(s.Array.Items)
		}
	}
	if s.Object != nil {
		types = append(types, "object")
		jsonOfObject(s.Object, js)
	}
	if s.Null {
		types = append(types, "null")
		if js.Enum != nil {
			js.Enum = append(js.Enum, nil)
		}
	}
	switch {
	case s.Any:
	case len(types) == 1:
		js.Type = types[0]
	default:
		js.Type = types
	}
	return js
}

func jsonOfString(r *schema.String, js *jsonSchema) {
	for _, value := range r.Enum {
		js.Enum = append(js.Enum, value)
	}
	switch {
	case r.Pattern != "":
		js.Pattern = r.Pattern
	case r.NonBlank:
		js.Pattern = `\S`
	}
	if r.NonEmpty {
		js.MinLength = 1
	}
}

// jsonOfNumber sets the bounds and returns the type's name.
func jsonOfNumber(r *schema.Number, js *jsonSchema) string {
	js.Minimum, js.ExclusiveMinimum = r.Min, r.Above
	if r.Integer {
		return "integer"
	}
	return "number"
}

func jsonOfObject(r *schema.Object, js *jsonSchema) {
	for _, f := range r.Fields {
		js.Properties = append(js.Properties, property{f.Name, jsonOf(f.Schema)})
		if f.Required {
			js.Required = append(js.Required, f.Name)
		}
	}
	switch {
	case r.Unknown == schema.Refuse:
		js.AdditionalProperties = false
	case r.Others != nil:
		js.AdditionalProperties = jsonOf(r.Others)
	}
	for _, v := range r.Variants {
		condition := &jsonSchema{Required: []string{v.Key}, Properties: properties{{v.Key, &jsonSchema{Const: v.Value}}}}
		then := &jsonSchema{}
		jsonOfObject(&schema.Object{Fields: v.Fields, Unknown: schema.Accept}, then)
		js.AllOf = append(js.AllOf, &jsonSchema{If: condition, Then: then})
	}
}
