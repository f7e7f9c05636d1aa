package request

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of a request's JSON. Real agents' requests have some thousands of values, nested
// less than 20 deep.
const (
	maxDepth  = 256
	maxValues = 1 << 17
)

var (
	errSyntax   = errors.New("the body is not valid JSON")
	errUTF8     = errors.New("the body is not valid UTF-8")
	errDepth    = errors.New("the body is nested too deep")
	errValues   = errors.New("the body has too many values")
	errKeyTwice = errors.New("the body has an object with a key twice")
	errKey      = errors.New("the body has a key that is no Unicode text")
)

// A value is one value of a request. A nil value is absent.
type value struct {
	key     string // of a member
	name    []byte // the key as written, with its quotes; nil unless a member
	raw     []byte // as written
	parts   []*value
	index   map[string]*value // of many members, by key; nil until it is needed
	in      *value            // nil for the whole request
	gone    bool              // removed
	changed bool              // the parts differ from raw
}

// parse reads a body, which must be one JSON value (RFC 8259) that all parsers read alike: no
// repeated key in an object, even spelled with escapes, no invalid UTF-8, nothing after the value.
// Lone surrogates in texts and numbers out of range pass, which package document would refuse:
// agents send them, and the provider decides about them.
func parse(body []byte) (root *value, values int, err error) {
	if !utf8.Valid(body) {
		return nil, 0, errUTF8
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowInvalidUTF8(true)) // now only half a surrogate pair
	var in, next *value                                                              // next has its key already
	for root == nil || in != nil {
		kind := d.PeekKind()
		container := kind == '{' || kind == '['
		var raw []byte
		if container || kind == '}' || kind == ']' {
			_, err = d.ReadToken()
		} else {
			raw, err = d.ReadValue()
		}
		end := int(d.InputOffset())
		raw = body[end-len(raw) : end] // what jsontext returned is valid only until its next call
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			return nil, values, errKeyTwice
		case err != nil:
			return nil, values, errSyntax
		case kind == '}' || kind == ']':
			in.raw = body[len(body)-len(in.raw) : end]
			in = in.in
			continue
		case next == nil && in.kind() == '{':
			key, ok := unquote(raw)
			if !ok {
				return nil, values, errKey
			}
			next = &value{in: in, key: key, name: raw}
			continue
		}
		v := cmp.Or(next, &value{in: in})
		if v.raw = raw; container {
			v.raw = body[end-1:] // until its end is known
		}
		if next = nil; in == nil {
			root = v
		} else {
			in.parts = append(in.parts, v)
		}
		if container {
			in = v
		}
		if values++; values > maxValues {
			return nil, values, errValues
		}
		if d.StackDepth() > maxDepth {
			return nil, values, errDepth
		}
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return nil, values, errSyntax
	}
	return root, values, nil
}

// unquote decodes a string of valid JSON. It returns false for half a surrogate pair, which parsers
// read differently.
func unquote(raw []byte) (string, bool) {
	s, err := jsontext.AppendUnquote(nil, raw)
	return string(s), err == nil
}

// kind returns the first byte of a value: one of {["tfn, '-' or a digit; 0 if absent.
func (v *value) kind() byte {
	if v == nil {
		return 0
	}
	return v.raw[0]
}

// null reports whether a value is absent or null, which the APIs treat alike.
func (v *value) null() bool { return v == nil || v.kind() == 'n' }

// text decodes a string. It returns false if v is no string.
func (v *value) text() (string, bool) {
	if v.kind() != '"' {
		return "", false
	}
	return unquote(v.raw)
}

// field returns a member of an object, nil if there is none.
func (v *value) field(key string) *value {
	if v.kind() != '{' {
		return nil
	}
	if len(v.parts) > fewParts && v.index == nil {
		v.index = map[string]*value{}
		for _, m := range v.parts {
			v.index[m.key] = m
		}
	}
	if v.index != nil {
		if m := v.index[key]; m != nil && !m.gone {
			return m
		}
		return nil
	}
	for _, m := range v.parts {
		if m.key == key && !m.gone {
			return m
		}
	}
	return nil
}

// fewParts can be compared one by one, even for each value inside them.
const fewParts = 16

// word returns the value of a string member; "" if absent or null. It returns false for any
// other value.
func (v *value) word(key string) (string, bool) {
	if m := v.field(key); !m.null() {
		return m.text()
	}
	return "", true
}

// emptied reports whether all parts were removed.
func (v *value) emptied() bool {
	return v.changed && !slices.ContainsFunc(v.parts, func(p *value) bool { return !p.gone })
}

// touch marks everything that contains v as changed.
func (v *value) touch() {
	for in := v.in; in != nil && !in.changed; in = in.in {
		in.changed = true
	}
}

// remove removes v from its parent.
func (v *value) remove() {
	v.gone = true
	v.touch()
}

// replace replaces v with JSON without changing its key.
func (v *value) replace(json string) {
	v.raw, v.parts, v.index, v.gone, v.changed = []byte(json), nil, nil, false, false
	v.touch()
}

// add adds a member to an object.
func (v *value) add(key, json string) {
	v.changed, v.index = true, nil
	v.touch()
	v.parts = append(v.parts, &value{key: key, name: []byte(strconv.Quote(key)), raw: []byte(json), in: v})
}

// appendTo appends the value in the form to send.
func (v *value) appendTo(b []byte) []byte {
	if !v.changed {
		return append(b, v.raw...)
	}
	b = append(b, v.raw[0])
	first := true
	for _, p := range v.parts {
		if p.gone {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		if first = false; p.name != nil {
			b = append(append(b, p.name...), ':')
		}
		b = p.appendTo(b)
	}
	return append(b, v.raw[0]+2)
}
