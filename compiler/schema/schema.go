// Package schema describes the allowed content of a document as data: by hand, or by the tags of a struct ([Fields]),
// which [Decode] fills. A [Checker] checks documents against it, and a test of package compiler generates the JSON
// Schemas in docs/schemas from it, so that the two agree.
package schema

import (
	"fmt"
	"regexp"
	"sync"

	"github.com/securebench/sbench/compiler/document"
)

// Schema says which values are allowed. A kind is allowed if its rule is set; as in JSON
// Schema, a rule applies only to values of its kind. The zero Schema allows nothing.
type Schema struct {
	// Doc describes the value in one or two sentences for authors.
	Doc string
	// Default is what an absent value means, in the types of encoding/json; nil if unstated.
	// It appears in the JSON Schema and does not affect checks.
	Default any

	Any     bool // every value, of every kind
	Null    bool // null, which then means absent
	Boolean bool
	String  *String
	Number  *Number
	Array   *Array
	Object  *Object

	// Check, if not nil, finds errors that the rules cannot express. It is called
	// only for a value that satisfies them.
	Check func(c *Checker, v document.Value)
}

// Allows reports whether some values of the kind are allowed.
func (s *Schema) Allows(kind document.Kind) bool {
	return s.Any || [...]bool{
		document.Null: s.Null, document.Bool: s.Boolean, document.String: s.String != nil,
		document.Number: s.Number != nil, document.Array: s.Array != nil, document.Object: s.Object != nil,
	}[kind]
}

// String is a rule for strings. The zero String allows all of them.
type String struct {
	NonEmpty bool     // at least one character
	NonBlank bool     // at least one character that is not white space
	Enum     []string // the values allowed; empty allows all
	Hint     string   // for a value that is not in Enum and resembles none of them
	// Pattern is a regular expression that stands for Check in the JSON Schema and is used
	// only there. It accepts at least what Check accepts.
	Pattern string
}

// Number is a rule for numbers. The zero Number allows all of them.
type Number struct {
	Integer bool
	Min     *float64 // inclusive; nil is no bound
	Max     *float64 // inclusive, with Min; nil is no bound
	Above   *float64 // exclusive; nil is no bound
	Seconds bool     // a number of seconds; hints say so
}

// Array is a rule for arrays.
type Array struct {
	Items    *Schema
	Min, Max int // number of items; Max 0 is unbounded
}

// Unknown says how to treat a key that an object's rule does not name.
type Unknown uint8

const (
	// Refuse makes every unknown key an error.
	Refuse Unknown = iota
	// Tolerate makes an unknown key a warning, or an error if it looks like a
	// misspelling of a known one.
	Tolerate
	// Accept allows unknown keys that Object.Named and Object.Others allow.
	Accept
)

// Object is a rule for objects.
type Object struct {
	Fields  []Field
	Unknown Unknown
	// Others is the schema of the values of accepted unknown keys; nil allows all.
	Others *Schema
	// Named reports whether an accepted unknown key is allowed; nil allows all. For a key that is not
	// allowed, the problem is the key and Misnamed, such as "is no name of a file".
	Named    func(name string) bool
	Misnamed string
	// Foreign has, for keys of other programs, the hint that says what to write instead.
	Foreign map[string]string
	// Variants are for the JSON Schema only: code that checks such an object picks the
	// variant and checks its fields.
	Variants []Variant
}

// Variant adds rules for the fields of an object whose field Key has the value Value.
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

// Text allows strings with at least one character that is not white space.
func Text(doc string) *Schema { return &Schema{Doc: doc, String: &String{NonBlank: true}} }

// AnyText allows all strings, including the empty one.
func AnyText(doc string) *Schema { return &Schema{Doc: doc, String: &String{}} }

// Enum allows only the given strings.
func Enum(doc string, values ...string) *Schema {
	return &Schema{Doc: doc, String: &String{Enum: values}}
}

// Checked allows strings that satisfy the rule and that check accepts. check returns what is
// wrong with a string, and a hint or "".
func Checked(doc string, rule String, check func(text string) (hint string, err error)) *Schema {
	return &Schema{Doc: doc, String: &rule, Check: func(c *Checker, v document.Value) {
		if hint, err := check(v.Text()); err != nil {
			c.Errorf(v, hint, "%v", err)
		}
	}}
}

// Matching allows strings that match the regular expression pattern. allowed describes them
// for people.
func Matching(doc, pattern, allowed string) *Schema {
	match := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
	return Checked(doc, String{NonBlank: true, Pattern: pattern}, func(text string) (string, error) {
		if !match().MatchString(text) {
			return "allowed are " + allowed, fmt.Errorf("%q holds something else", text)
		}
		return "", nil
	})
}

// Word allows words that need no quotes in a shell, with white space around them.
func Word(doc string) *Schema {
	return Matching(doc, `^\s*[A-Za-z0-9._+-]+\s*$`, "letters, digits and . _ + -")
}

// Boolean allows true and false; an absent value means preset.
func Boolean(doc string, preset bool) *Schema {
	return &Schema{Doc: doc, Boolean: true, Default: preset}
}

func positive(doc string) *Schema { return &Schema{Doc: doc, Number: &Number{Above: new(0.0)}} }

// PositiveInteger allows integers above zero.
func PositiveInteger(doc string) *Schema {
	return &Schema{Doc: doc, Number: &Number{Integer: true, Min: new(1.0)}}
}

// Closed allows objects with no keys but those of fields.
func Closed(doc string, fields ...Field) *Schema {
	return &Schema{Doc: doc, Object: &Object{Fields: fields}}
}

// Open allows objects with any keys.
func Open(doc string) *Schema { return &Schema{Doc: doc, Object: &Object{Unknown: Accept}} }

// Map allows objects with any keys, whose values are all allowed by values.
func Map(doc string, values *Schema) *Schema {
	return &Schema{Doc: doc, Object: &Object{Unknown: Accept, Others: values}}
}

// List allows arrays whose items are all allowed by items.
func List(doc string, items *Schema) *Schema {
	return &Schema{Doc: doc, Array: &Array{Items: items}}
}

// Nullable returns a copy of s that allows null too.
func Nullable(s *Schema) *Schema {
	c := *s
	c.Null = true
	return &c
}
