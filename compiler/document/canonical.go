package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Canonical returns a value in canonical form, which is the same for all texts with the same
// content: UTF-8 JSON without white space, in which
//
//   - the fields of an object are sorted by the bytes of their keys
//   - strings escape only control characters, quotes and backslashes, as \" \\ \b \f \n \r \t, and other
//     control characters as \u00xx in lower case
//   - integers are unchanged, except that -0 is 0
//   - every other number is its exact decimal value: digits without trailing zeros, "e", exponent
//
// So 1.50 and 15E-1 are both 15e-1, while 1 and 1.0 (1e0) stay distinct: only 1 is an integer.
func Canonical(v Value) []byte { return appendValue(nil, v, true) }

// Compact returns a value as JSON without white space, with sorted keys and numbers as written.
func Compact(v Value) []byte { return appendValue(nil, v, false) }

// Indented returns a value as JSON for people: indented by two spaces per level,
// keys sorted, numbers as written.
func Indented(v Value) []byte {
	var b bytes.Buffer
	_ = json.Indent(&b, Compact(v), "", "  ") // what Compact returns is valid
	return b.Bytes()
}

// Marshal returns a Go value as JSON without white space, in which < > & are themselves. Keys of maps are sorted.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// appendValue appends v in canonical form, but numbers only if canonical is set.
func appendValue(dst []byte, v Value, canonical bool) []byte {
	comma := func(i int) {
		if i > 0 {
			dst = append(dst, ',')
		}
	}
	switch v.Kind() {
	case Bool:
		return strconv.AppendBool(dst, v.IsTrue())
	case Number:
		if !canonical {
			return append(dst, v.Raw()...)
		}
		return appendNumber(dst, v.Raw(), v.IsInteger())
	case String:
		return AppendQuoted(dst, v.bytes())
	case Array:
		dst = append(dst, '[')
		for i, item := range v.Items() {
			comma(i)
			dst = appendValue(dst, item, canonical)
		}
		return append(dst, ']')
	case Object:
		dst = append(dst, '{')
		for i, f := range sortedFields(v) {
			comma(i)
			dst = append(AppendQuoted(dst, f.name), ':')
			dst = appendValue(dst, f.value, canonical)
		}
		return append(dst, '}')
	}
	return append(dst, "null"...)
}

type field struct {
	name       []byte
	key, value Value
}

// sortedFields returns the fields of an object by the bytes of their names.
func sortedFields(v Value) []field {
	fields := make([]field, 0, v.Len())
	for key, value := range v.Fields() {
		fields = append(fields, field{key.bytes(), key, value})
	}
	slices.SortStableFunc(fields, func(a, b field) int { return bytes.Compare(a.name, b.name) })
	return fields
}

// AppendQuoted appends s, which must be valid UTF-8, as a JSON string in canonical
// form.
func AppendQuoted(dst, s []byte) []byte {
	dst = append(dst, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20:
			dst = append(dst, c)
		default:
			if i := strings.IndexByte("\b\f\n\r\t", c); i >= 0 {
				dst = append(dst, '\\', "bfnrt"[i])
			} else {
				dst = fmt.Appendf(dst, `\u%04x`, c)
			}
		}
	}
	return append(dst, '"')
}

// appendNumber appends the canonical form of a number that the parser accepted.
func appendNumber(dst, raw []byte, integer bool) []byte {
	negative := raw[0] == '-'
	if negative {
		raw = raw[1:]
	}
	if integer {
		if negative && string(raw) != "0" {
			dst = append(dst, '-')
		}
		return append(dst, raw...)
	}
	exponent := 0
	if e := bytes.IndexAny(raw, "eE"); e >= 0 {
		exponent, _ = strconv.Atoi(string(raw[e+1:])) // the parser bounds exponents
		raw = raw[:e]
	}
	whole, fraction, _ := bytes.Cut(raw, []byte("."))
	exponent -= len(fraction)
	digits := bytes.TrimLeft(slices.Concat(whole, fraction), "0")
	trimmed := bytes.TrimRight(digits, "0")
	if len(trimmed) == 0 {
		return append(dst, "0e0"...)
	}
	exponent += len(digits) - len(trimmed)
	if negative {
		dst = append(dst, '-')
	}
	dst = append(append(dst, trimmed...), 'e')
	return strconv.AppendInt(dst, int64(exponent), 10)
}
