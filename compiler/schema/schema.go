// Package schema says as data what a document may hold. The same definitions
// check a document and are written out as JSON Schema, by the test that keeps
// docs/schemas, so the two agree.
package schema

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/securebench/sbench/compiler/document"
)

// Schema says which values are allowed. A kind is allowed if its rule is set,
// and then the rule holds for values of that kind only, as in JSON Schema. The
// zero Schema allows nothing.
type Schema struct {
	// Doc describes the value in one or two sentences for authors.
	Doc string
	// Default is what an absent value means, as JSON, for editors.
	Default any

	Any     bool // every value, of every kind
	Null    bool // null, which then means absent
	Boolean bool
	String  *String
	Number  *Number
	Array   *Array
	Object  *Object

	// Check finds what the rules cannot say. It is called for a value that
	// satisfies them.
	Check func(c *Checker, v document.Value)
}

// String is a rule for strings. The zero String allows all of them.
type String struct {
	NonEmpty bool // at least one character
	NonBlank bool // at least one character that is no white space
	Enum     []string
	// Pattern is what Check enforces, for JSON Schema alone: a regular
	// expression that accepts at least what Check accepts.
	Pattern string
}

// Number is a rule for numbers. The zero Number allows all of them.
type Number struct {
	Integer bool
	Min     *float64 // nil is no bound
	Above   *float64 // exclusive
}

// At returns a bound.
func At(value float64) *float64 { return &value }

// Array is a rule for arrays.
type Array struct {
	Items    *Schema
	Min, Max int // number of items; Max 0 is unbounded
}

// Unknown says what becomes of a key that an object's rule does not name.
type Unknown uint8

const (
	// Refuse makes every unknown key an error.
	Refuse Unknown = iota
	// Tolerate makes an unknown key a warning, and an error if it looks like
	// a misspelt known one.
	Tolerate
	// Accept takes unknown keys, checked against Object.Others if that is set.
	Accept
)

// Object is a rule for objects.
type Object struct {
	Fields  []Field
	Unknown Unknown
	// Others is for the values of unknown keys that are accepted.
	Others *Schema
	// OthersDoc says what unknown keys are for.
	OthersDoc string
	// CheckName says what is wrong with an unknown key that is accepted.
	CheckName func(name string) error
	// Variants are for JSON Schema alone: whoever checks such an object picks
	// the variant and checks its fields.
	Variants []Variant
}

// Variant says which rules fields have besides, if the field Key is Value.
type Variant struct {
	Key, Value string
	Fields     []Field
}

// Field is one key of an object.
type Field struct {
	Name     string
	Required bool
	Schema   *Schema
}

// lookup returns the index of the field that key names, or -1.
func (r *Object) lookup(key document.Value) int {
	for i := range r.Fields {
		if key.Is(r.Fields[i].Name) {
			return i
		}
	}
	return -1
}

// Text allows strings with at least one character that is no white space.
func Text(doc string) *Schema { return &Schema{Doc: doc, String: &String{NonBlank: true}} }

// AnyText allows all strings, the empty one too.
func AnyText(doc string) *Schema { return &Schema{Doc: doc, String: &String{}} }

// Enum allows some strings.
func Enum(doc string, values ...string) *Schema {
	return &Schema{Doc: doc, String: &String{Enum: values}}
}

// Boolean allows true and false.
func Boolean(doc string, preset bool) *Schema {
	return &Schema{Doc: doc, Boolean: true, Default: preset}
}

// Positive allows numbers above zero.
func Positive(doc string) *Schema { return &Schema{Doc: doc, Number: &Number{Above: At(0)}} }

// PositiveInteger allows integers above zero.
func PositiveInteger(doc string) *Schema {
	return &Schema{Doc: doc, Number: &Number{Integer: true, Min: At(1)}}
}

// Closed allows objects with no other keys than these.
func Closed(doc string, fields ...Field) *Schema {
	return &Schema{Doc: doc, Object: &Object{Fields: fields}}
}

// Open allows all objects.
func Open(doc string) *Schema { return &Schema{Doc: doc, Object: &Object{Unknown: Accept}} }

// List allows arrays of items.
func List(doc string, items *Schema) *Schema {
	return &Schema{Doc: doc, Array: &Array{Items: items}}
}

// Nullable returns a copy of s that allows null too.
func Nullable(s *Schema) *Schema {
	c := *s
	c.Null = true
	return &c
}

// isBlank reports whether a string is empty or white space, without a copy where
// it can do without.
func isBlank(v document.Value) bool {
	raw := v.Raw()
	if len(raw) > 2 {
		if c := raw[1]; c < utf8.RuneSelf && c != '\\' && !unicode.IsSpace(rune(c)) {
			return false
		}
	}
	return strings.TrimSpace(v.Text()) == ""
}
