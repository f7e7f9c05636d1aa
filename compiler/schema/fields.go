package schema

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/proxy/domain"
)

// Rules are functions that change the schema of a field. The tag rule of the field names them. In a list of strings, a
// rule changes the schema of the items. Every struct may name the rules absolute, image, mount, path and word, which are
// the functions of that name.
type Rules map[string]func(s *Schema)

// common are the rules that every struct may name.
var common = Rules{"absolute": As(Absolute), "image": As(Image), "mount": As(Mount), "path": As(Path), "word": As(Word)}

func (r Rules) apply(word string, s *Schema) {
	switch rule, own := r[word]; {
	case word == "required" || word == "null": // rules for the field
	case own:
		rule(s)
	default:
		common[word](s)
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

// Decode sets fields of the struct that target points to, from the object v, which has been checked. The tags of a field
// say what value it gets:
//
//	key   the value of this key of v
//	is    for a boolean: whether the value is this text
//	trim  for a string: the value without white space around it
//
// If v lacks the key, the field stays as it is. Null resets a field, but not the fields of a struct.
func Decode(v document.Value, target any) {
	if v.Given() {
		set(reflect.ValueOf(target).Elem(), v)
	}
}

func set(to reflect.Value, v document.Value) {
	switch field := to.Addr().Interface().(type) {
	case *bool:
		*field = v.IsTrue()
	case *string:
		*field = v.Text()
	case interface{ Decode(v document.Value) }:
		field.Decode(v)
	case *[]domain.Domain:
		*field, _ = domain.ParseAll(Strings(v)) // the schema's checks have passed
	case *int:
		n, _ := v.Int64()
		*field = int(n)
	case *int64:
		*field = parseBytes(v)
	case *float64:
		*field, _ = v.Float64()
	case *time.Duration:
		*field = seconds(v)
	case *Command:
		*field = Command{Shell: v.Text(), Argv: Strings(v)}
	default:
		setCompound(to, v)
	}
}

func setCompound(to reflect.Value, v document.Value) {
	switch to.Kind() {
	case reflect.Pointer:
		to.SetZero()
		if v.Kind() != document.Null {
			to.Set(reflect.New(to.Type().Elem()))
			set(to.Elem(), v)
		}
	case reflect.Slice:
		to.SetZero()
		for _, item := range v.Items() {
			element := reflect.New(to.Type().Elem()).Elem()
			set(element, item)
			to.Set(reflect.Append(to, element))
		}
	case reflect.Map:
		if to.SetZero(); v.Len() > 0 {
			to.Set(reflect.MakeMap(to.Type()))
		}
		for key, value := range v.Fields() {
			element := reflect.New(to.Type().Elem()).Elem()
			set(element, value)
			to.SetMapIndex(reflect.ValueOf(key.Text()), element)
		}
	case reflect.Struct:
		for i := range to.NumField() {
			tag := to.Type().Field(i).Tag
			key, ok := tag.Lookup("key")
			value := v.Get(key)
			switch is := tag.Get("is"); {
			case !ok || value.Kind() == 0:
			case is != "":
				to.Field(i).SetBool(value.Is(is))
			case tag.Get("trim") != "":
				to.Field(i).SetString(strings.TrimSpace(value.Text()))
			default:
				set(to.Field(i), value)
			}
		}
	}
}
