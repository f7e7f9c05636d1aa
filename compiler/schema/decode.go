package schema

import (
	"reflect"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/proxy/domain"
)

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
