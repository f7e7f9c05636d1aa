// Package document reads JSON and YAML strictly into one small model that has the line of every value, for
// error messages. A [Document] is a flat list of nodes over its text, so that a benchmark row can be
// checked without an allocation per value.
//
// Strict means refusing input that two programs could read differently: duplicate keys, NaN and Infinity,
// invalid UTF-8, lone surrogates, a second value. encoding/json says whether a text is JSON. It does not serve for the rest:
// its values have no lines, and it replaces lone surrogates.
package document

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Kind is the type of a value. The zero Kind is invalid.
type Kind uint8

// The kinds of values.
const (
	Null Kind = iota + 1
	Bool
	Number
	String
	Array
	Object
)

// String returns the kind with its article, such as "a string", for error messages.
func (k Kind) String() string {
	return [...]string{"nothing", "null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// Document is one parsed text. It may be reused for another text, which invalidates every
// Value of the old one. It is safe for concurrent reading.
type Document struct {
	text  []byte
	nodes []node
}

// node is a value or an object key. Nodes are in document order, each directly followed by
// its descendants.
type node struct {
	start, end uint32 // its text as a range of bytes, without the quotes of a string
	parent     uint32 // index of the array or object that it is in; 0 for the root, too
	next       uint32 // index of the first node after the descendants
	size       uint32 // number of items of an array, or of fields of an object
	line       int32
	kind       Kind
}

// Root returns the document's value, or the zero Value if nothing was parsed.
func (d *Document) Root() Value {
	if len(d.nodes) == 0 {
		return Value{}
	}
	return Value{d, 0}
}

// Clone returns a copy that shares no memory with d.
func (d *Document) Clone() *Document {
	return &Document{text: bytes.Clone(d.text), nodes: slices.Clone(d.nodes)}
}

// Value is one value of a document. The zero Value is an absent value; every method but Raw
// accepts it.
type Value struct {
	d  *Document
	at uint32
}

// node returns the zero node for the zero Value.
func (v Value) node() (n node) {
	if v.d != nil {
		n = v.d.nodes[v.at]
	}
	return n
}

// Kind returns the value's kind; zero for the zero Value.
func (v Value) Kind() Kind { return v.node().kind }

// Given reports whether the value is neither absent nor null.
func (v Value) Given() bool { return v.Kind() > Null }

// Line returns the 1-based line on which the value begins; 0 for the zero Value.
func (v Value) Line() int { return int(v.node().line) }

// Path returns where in its document the value is, in the notation $.key[0]["odd key"]. A key has the path
// of its field, and the zero Value has the path $.
func (v Value) Path() string {
	if v.at == 0 {
		return "$"
	}
	parent := Value{v.d, v.node().parent}
	for i, item := range parent.Items() {
		if item == v {
			return parent.Path() + "[" + strconv.Itoa(i) + "]"
		}
	}
	name := ""
	for key, value := range parent.Fields() {
		if key == v || value == v {
			name = key.Text()
		}
	}
	return FieldPath(parent.Path(), name)
}

// Nearest returns the value at a path as Path returns it or, if there is none, the deepest value above the
// path.
func (d *Document) Nearest(path string) (v Value) {
	for at := range d.nodes {
		next := Value{d, uint32(at)}
		if rest, ok := strings.CutPrefix(path, next.Path()); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			v = next
		}
	}
	return v
}

// Raw returns the value's JSON text, which the caller must not change. It panics on
// the zero Value.
func (v Value) Raw() []byte {
	n := v.node()
	if n.kind == String {
		return v.d.text[n.start-1 : n.end+1]
	}
	return v.d.text[n.start:n.end]
}

// Text returns a string's content, and "" for any other kind.
func (v Value) Text() string { return string(v.bytes()) }

// Plain returns a string's content, and the JSON text of any other kind; "" for the zero Value.
func (v Value) Plain() string {
	if v.Kind() == String || v.Kind() == 0 {
		return v.Text()
	}
	return string(v.Raw())
}

// bytes returns a string's content, which may share memory with the document's text,
// and nil for any other kind.
func (v Value) bytes() []byte {
	if v.Kind() != String {
		return nil
	}
	n := v.node()
	if raw := v.d.text[n.start:n.end]; bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	var text string
	_ = json.Unmarshal(v.Raw(), &text) // the parser has accepted it
	return []byte(text)
}

// Is reports whether the value is the string s.
func (v Value) Is(s string) bool { return v.Kind() == String && string(v.bytes()) == s }

// IsTrue reports whether the value is the boolean true.
func (v Value) IsTrue() bool { return v.Kind() == Bool && string(v.Raw()) == "true" }

// IsInteger reports whether the value is a number without fraction or exponent: 1 is an
// integer, 1.0 is not.
func (v Value) IsInteger() bool {
	return v.Kind() == Number && !bytes.ContainsAny(v.Raw(), ".eE")
}

// Int64 returns the value as an int64. It reports false unless the value is an
// integer in that range.
func (v Value) Int64() (int64, bool) {
	if !v.IsInteger() {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v.Raw()), 10, 64)
	return n, err == nil
}

// Float64 returns the float64 nearest to the value. It reports false unless the value
// is a number in that range.
func (v Value) Float64() (float64, bool) {
	if v.Kind() != Number {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(v.Raw()), 64)
	return f, err == nil
}

// Len returns the number of an array's items or an object's fields; 0 for any other kind.
func (v Value) Len() int { return int(v.node().size) }

// Items yields the items of an array with their indexes, and nothing for any
// other kind.
func (v Value) Items() iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) {
		if v.Kind() != Array {
			return
		}
		at := v.at + 1
		for i := range v.Len() {
			if !yield(i, Value{v.d, at}) {
				return
			}
			at = v.d.nodes[at].next
		}
	}
}

// Fields yields the keys (strings) and values of an object in text order, and nothing
// for any other kind.
func (v Value) Fields() iter.Seq2[Value, Value] {
	return func(yield func(Value, Value) bool) {
		if v.Kind() != Object {
			return
		}
		at := v.at + 1
		for range v.Len() {
			if !yield(Value{v.d, at}, Value{v.d, at + 1}) {
				return
			}
			at = v.d.nodes[at+1].next
		}
	}
}

// Get returns the value of an object's field, or the zero Value if there is none.
func (v Value) Get(name string) Value {
	for key, value := range v.Fields() {
		if key.Is(name) {
			return value
		}
	}
	return Value{}
}

// Any returns the value in the types of encoding/json, with numbers as json.Number.
func (v Value) Any() (value any) {
	if v.Kind() != 0 {
		decoder := json.NewDecoder(bytes.NewReader(v.Raw()))
		decoder.UseNumber()
		_ = decoder.Decode(&value) // the parser has accepted it
	}
	return value
}
