package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a request's JSON. Real agents' requests have some thousands of values, nested
// less than 20 deep.
const (
	maxDepth  = 256
	maxValues = 1 << 18
	maxNodes  = 1 << 17 // values that are not data
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
	in      *value // nil for the whole request
	opened  bool   // parts are there
	gone    bool   // removed
	changed bool   // the parts differ from raw
}

// parse reads a body, which must be one JSON value (RFC 8259) that all parsers read alike:
// no repeated key in an object, even spelled with escapes, no invalid UTF-8, nothing after
// the value. Otherwise the provider and the relay could read different requests.
//
// encoding/json checks the grammar. Its tokens would hide how a key is written, and copy every string.
// Package document would refuse lone surrogates and numbers out of range, but agents send such values,
// and the provider decides about them.
func parse(body []byte) (root *value, values int, err error) {
	switch {
	case !utf8.Valid(body):
		return nil, 0, errUTF8
	case !json.Valid(body):
		return nil, 0, errSyntax
	}
	p := &parser{data: body}
	p.next()
	begin := p.pos
	if err := p.value(0); err != nil {
		return nil, p.values, err
	}
	return &value{raw: body[begin:p.pos]}, p.values, nil
}

// open reads the parts of an object or an array. nodes counts values; open returns false if there are too many.
func (v *value) open(nodes *int) bool {
	if v.opened {
		return true
	}
	v.opened = true
	p := &parser{data: v.raw, read: true}
	for p.pos++; p.next() != v.raw[0]+2; { // in ASCII, a closing bracket is its opening one plus 2
		if *nodes++; *nodes > maxNodes {
			return false
		}
		part := &value{in: v}
		if v.raw[0] == '{' {
			part.name = p.text()
			part.key, _ = unquote(part.name)
			p.next()
		}
		begin := p.pos
		_ = p.value(0) // was checked by parse
		part.raw = v.raw[begin:p.pos]
		v.parts = append(v.parts, part)
	}
	return true
}

// A parser reads valid JSON.
type parser struct {
	data   []byte
	pos    int
	values int      // so far
	read   bool     // the keys were checked
	keys   []string // of the objects around pos
}

// fewKeys can be compared one by one.
const fewKeys = 16

// next advances to the next value, key or end, and returns its first byte.
func (p *parser) next() byte {
	for strings.IndexByte(" \t\r\n,:", p.data[p.pos]) >= 0 {
		p.pos++
	}
	return p.data[p.pos]
}

// value reads a value and checks its keys.
func (p *parser) value(depth int) error {
	if p.values++; p.values > maxValues {
		return errValues
	}
	if depth > maxDepth {
		return errDepth
	}
	switch kind := p.next(); kind {
	case '{', '[':
		return p.parts(kind, depth)
	case '"':
		p.text()
	default:
		for p.pos < len(p.data) && strings.IndexByte(" \t\r\n,]}", p.data[p.pos]) < 0 {
			p.pos++
		}
	}
	return nil
}

// parts reads an object or an array.
func (p *parser) parts(kind byte, depth int) error {
	first := len(p.keys) // of this object's
	var many map[string]bool
	for p.pos++; p.next() != kind+2; {
		if kind == '{' {
			name := p.text()
			if !p.read {
				key, ok := unquote(name)
				if !ok {
					return errKey
				}
				if many[key] || many == nil && slices.Contains(p.keys[first:], key) {
					return errKeyTwice
				}
				if p.keys = append(p.keys, key); many != nil {
					many[key] = true
				} else if len(p.keys)-first == fewKeys {
					many = map[string]bool{}
					for _, k := range p.keys[first:] {
						many[k] = true
					}
				}
			}
		}
		if err := p.value(depth + 1); err != nil {
			return err
		}
	}
	p.keys = p.keys[:first]
	p.pos++
	return nil
}

// text reads a string, and returns it with its quotes.
func (p *parser) text() []byte {
	begin := p.pos
	for p.pos++; p.data[p.pos] != '"'; p.pos++ {
		if p.data[p.pos] == '\\' {
			p.pos++
		}
	}
	p.pos++
	return p.data[begin:p.pos]
}

// unquote decodes a string of valid JSON. It returns false for half a surrogate pair, which parsers
// read differently. encoding/json replaces it by U+FFFD, so unquote also returns false for any U+FFFD
// in a string with escapes.
func unquote(raw []byte) (string, bool) {
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	var s string
	if json.Unmarshal(raw, &s) != nil || strings.ContainsRune(s, utf8.RuneError) {
		return "", false
	}
	return s, true
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

// field returns a member of an object that was opened, nil if there is none.
func (v *value) field(key string) *value {
	if v.kind() == '{' {
		for _, m := range v.parts {
			if m.key == key && !m.gone {
				return m
			}
		}
	}
	return nil
}

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
	for in := v.in; in != nil; in = in.in {
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
	v.raw, v.parts, v.gone, v.changed = []byte(json), nil, false, false
	v.touch()
}

// add adds a member to an object.
func (v *value) add(key, json string) {
	v.changed = true
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
