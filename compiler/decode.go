package compiler

import (
	"reflect"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/proxy/domain"
)

// decode sets fields of the struct that target points to: each gets the field of v that its
// tag "key" names. v is an object that its schema allows. A field that v lacks, or has as
// null, stays as it is.
func decode(v document.Value, target any) {
	s := reflect.ValueOf(target).Elem()
	for i := range s.NumField() {
		key, ok := s.Type().Field(i).Tag.Lookup("key")
		value := v.Get(key)
		if !ok || value.Kind() == 0 || value.Kind() == document.Null {
			continue
		}
		switch field := s.Field(i).Addr().Interface().(type) {
		case *bool:
			*field = value.IsTrue()
		case *string:
			*field = value.Text()
		case *[]string:
			*field = stringList(value)
		case *[]domain.Domain:
			*field, _ = domain.ParseAll(stringList(value)) // the schema's checks have passed
		case *int:
			n, _ := value.Int64()
			*field = int(n)
		case *int64:
			*field = parseBytes(value)
		case *float64:
			*field, _ = value.Float64()
		case *time.Duration:
			*field = seconds(value)
		case *map[string]string:
			*field = stringMap(value)
		case *Command:
			*field = parseCommand(value)
		default:
			decode(value, field)
		}
	}
}
