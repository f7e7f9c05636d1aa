package schema

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/proxy/domain"
)

// Rules are functions that change the schema of a field. The tag rule of the field names them. In a list of strings, a
// rule changes the schema of the items. Every struct may name the rules absolute, image, mount, path and word: for
// Absolute, Image, Mount, Path and Word.
type Rules map[string]func(s *Schema)

func (r Rules) apply(word string, s *Schema) {
	switch word {
	case "required", "null": // rules for the field
	case "absolute":
		*s = *Absolute(s.Doc)
	case "image":
		*s = *Image(s.Doc)
	case "mount":
		*s = *Mount(s.Doc)
	case "path":
		*s = *Path(s.Doc)
	case "word":
		*s = *Word(s.Doc)
	default:
		r[word](s)
	}
}

// As returns a rule that takes another schema for the same description.
func As(other func(doc string) *Schema) func(s *Schema) {
	return func(s *Schema) { *s = *other(s.Doc) }
}

// Fields returns the schemas of the fields of a struct that Decode fills. It passes over a field without the tag doc.
// The type of a field says what the value may be: text that is not blank, a positive number, a time in seconds, and so
// on. Tags say more:
//
//	doc     describes the value
//	rule    words: required; null, which then means absent; names of Rules
//	enum    the texts that are allowed, separated by commas
//	items   describes the items of a list or of a map
//	preset  what an absent value means
func Fields(sample any, rules Rules) []Field { return fieldsOf(reflect.TypeOf(sample), rules) }

func fieldsOf(t reflect.Type, rules Rules) (fields []Field) {
	for f := range t.Fields() {
		doc, described := f.Tag.Lookup("doc")
		if !described {
			continue
		}
		field := Optional(f.Tag.Get("key"), schemaOf(f.Type, doc, f.Tag, rules))
		target := field.Schema
		if f.Type == reflect.TypeFor[[]string]() {
			target = target.Array.Items
		}
		if enum := f.Tag.Get("enum"); enum != "" {
			*target = *Enum(target.Doc, strings.Split(enum, ",")...)
		}
		words := strings.Fields(f.Tag.Get("rule"))
		for _, word := range words {
			rules.apply(word, target)
		}
		field.Required = slices.Contains(words, "required")
		field.Schema.Null = field.Schema.Null || slices.Contains(words, "null")
		if preset := f.Tag.Get("preset"); preset != "" {
			field.Schema.Default = preset
			if f.Type.Kind() == reflect.Bool {
				field.Schema.Default = preset == "true"
			}
		}
		fields = append(fields, field)
	}
	return fields
}

func schemaOf(t reflect.Type, doc string, tag reflect.StructTag, rules Rules) *Schema {
	switch t {
	case reflect.TypeFor[Command]():
		return CommandLine(doc)
	case reflect.TypeFor[time.Duration]():
		return Seconds(doc)
	case reflect.TypeFor[[]domain.Domain]():
		return domains(doc)
	case reflect.TypeFor[map[string]string]():
		return variables(doc)
	}
	switch t.Kind() {
	case reflect.Pointer:
		s := schemaOf(t.Elem(), doc, tag, rules)
		s.Default = nil
		return s
	case reflect.Slice:
		return List(doc, schemaOf(t.Elem(), tag.Get("items"), tag, rules))
	case reflect.Map:
		return Map(doc, schemaOf(t.Elem(), tag.Get("items"), tag, rules))
	case reflect.Struct:
		return Closed(doc, fieldsOf(t, rules)...)
	case reflect.Bool:
		return Boolean(doc, false)
	case reflect.Int, reflect.Int64:
		return PositiveInteger(doc)
	case reflect.Float64:
		return positive(doc)
	}
	return Text(doc)
}
