package schema

import (
	"bytes"
	"encoding/json"
)

// dialect is the version of JSON Schema that is written; editors know it best.
const dialect = "http://json-schema.org/draft-07/schema#"

// JSONSchema returns the schema as an indented JSON Schema with this title. It
// accepts everything that a Checker accepts. What only Check functions refuse,
// it may accept too.
func (s *Schema) JSONSchema(title string) ([]byte, error) {
	js := s.json()
	js.Schema, js.Title = dialect, title
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(js); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// jsonSchema has the keywords that are used, in the order they are written.
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

// properties are written in their order, which is the one authors expect.
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

func (s *Schema) json() *jsonSchema {
	js := &jsonSchema{Description: s.Doc, Default: s.Default}
	var types []string
	if s.String != nil {
		types = append(types, "string")
		s.String.json(js)
	}
	if s.Number != nil {
		types = append(types, s.Number.json(js))
	}
	if s.Boolean {
		types = append(types, "boolean")
	}
	if s.Array != nil {
		types = append(types, "array")
		js.MinItems, js.MaxItems = s.Array.Min, s.Array.Max
		if s.Array.Items != nil {
			js.Items = s.Array.Items.json()
		}
	}
	if s.Object != nil {
		types = append(types, "object")
		s.Object.json(js)
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

func (r *String) json(js *jsonSchema) {
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

// json returns the type's name.
func (r *Number) json(js *jsonSchema) string {
	if r.Min.Set {
		js.Minimum = &r.Min.Value
	}
	if r.Above.Set {
		js.ExclusiveMinimum = &r.Above.Value
	}
	if r.Integer {
		return "integer"
	}
	return "number"
}

func (r *Object) json(js *jsonSchema) {
	for _, f := range r.Fields {
		js.Properties = append(js.Properties, property{f.Name, f.Schema.json()})
		if f.Required {
			js.Required = append(js.Required, f.Name)
		}
	}
	switch {
	case r.Unknown == Refuse:
		js.AdditionalProperties = false
	case r.Others != nil:
		js.AdditionalProperties = r.Others.json()
	}
	for _, v := range r.Variants {
		condition := &jsonSchema{Required: []string{v.Key}, Properties: properties{{v.Key, &jsonSchema{Const: v.Value}}}}
		then := &jsonSchema{}
		(&Object{Fields: v.Fields, Unknown: Accept}).json(then)
		js.AllOf = append(js.AllOf, &jsonSchema{If: condition, Then: then})
	}
}
