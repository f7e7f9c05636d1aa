package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds how deep values nest, so that no text exhausts the stack.
const maxDepth = 1000

// maxNumber bounds the length of a number in bytes, so that arithmetic stays cheap.
const maxNumber = 4300

// maxExponent bounds the digits of an exponent. The range of float64 bounds only the exponents of numbers other than zero.
const maxExponent = 6

const maxDuplicates = 16

// ParseJSON reads one JSON value and keeps text, which must not change while d is in use.
// line is the 1-based number of the text's first line. The returned problems have no File.
func (d *Document) ParseJSON(text []byte, line int) Problems {
	if problem := d.parse(text, line); problem != nil {
		d.nodes = d.nodes[:0]
		return Problems{*problem}
	}
	return d.duplicates()
}

// parse is ParseJSON without the search for duplicate keys.
func (d *Document) parse(text []byte, line int) *Problem {
	d.text, d.nodes = text, d.nodes[:0]
	s := scanner{d: d, s: text, line: line}
	if !utf8.Valid(text) {
		at := 0
		for r, size := utf8.DecodeRune(text); r != utf8.RuneError || size > 1; r, size = utf8.DecodeRune(text[at:]) {
			at += size
		}
		s.line += bytes.Count(text[:at], []byte("\n"))
		return s.fail(at, "save the file as UTF-8", "invalid UTF-8 byte 0x%02x", text[at])
	}
	if !json.Valid(text) {
		return s.invalid(text)
	}
	s.value(1, 0)
	return s.problem
}

func (d *Document) duplicates() (found Problems) {
	for at := range d.nodes {
		fields := sortedFields(Value{d, uint32(at)})
		for i := 1; i < len(fields) && len(found) < maxDuplicates; i++ {
			if key := fields[i].key; bytes.Equal(fields[i-1].name, fields[i].name) {
				found = append(found, Problem{
					Line: key.Line(), Path: key.Path(),
					Message: fmt.Sprintf("duplicate key %q", key.Text()), Hint: "readers disagree on which one counts",
				})
			}
		}
	}
	return found
}

// invalid returns what encoding/json finds wrong with a text.
func (s *scanner) invalid(text []byte) *Problem {
	var syntax *json.SyntaxError
	if !errors.As(json.Unmarshal(text, new(json.RawMessage)), &syntax) {
		return s.fail(0, "", "malformed value")
	}
	at, message := int(syntax.Offset)-1, syntax.Error()
	if strings.HasPrefix(message, "unexpected end") {
		at = len(text)
	}
	s.line += bytes.Count(text[:at], []byte("\n"))
	return s.fail(at, hint(text[:at], text[at:], message), "%s", message)
}

// hint says what to do about an error of encoding/json between two parts of a text.
func hint(before, after []byte, message string) string {
	begins := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return bytes.HasPrefix(after, []byte(word)) })
	}
	switch {
	case begins("\ufeff"):
		return "save the file without a byte order mark"
	case begins("'"):
		return "keys and strings stand in double quotes"
	case begins("True", "False", "None"):
		return "JSON writes true, false and null: in Python, json.dumps does"
	case begins("NaN", "Infinity"):
		return "write null or a string"
	case begins("}", "]") && bytes.HasSuffix(bytes.TrimRight(before, " \t\r\n"), []byte(",")):
		return "remove the comma before it"
	case len(before) == 0:
		return "JSON is wanted: is the file of another format?"
	case strings.HasSuffix(message, "beginning of object key string"):
		return "keys stand in double quotes"
	case strings.HasSuffix(message, "after top-level value"):
		return "one line holds one value"
	case strings.HasSuffix(message, "in string literal"):
		return "escape it"
	case strings.HasSuffix(message, "in string escape code"):
		return `write \\ for a backslash`
	}
	return ""
}

// scanner makes nodes of a text that is valid JSON, and finds what this package refuses in it.
type scanner struct {
	d       *Document
	s       []byte
	i       int // the index of the next byte
	line    int
	problem *Problem // the first one
}

func (s *scanner) fail(at int, hint, format string, args ...any) *Problem {
	if s.problem == nil {
		s.problem = &Problem{Line: s.line, Message: fmt.Sprintf("invalid JSON at column %d: ", at+1) + fmt.Sprintf(format, args...), Hint: hint}
	}
	return s.problem
}

// next skips white space, commas and colons, and returns the next byte.
func (s *scanner) next() byte {
	for ; ; s.i++ {
		switch c := s.s[s.i]; c {
		case '\n':
			s.line++
		case ' ', '\t', '\r', ',', ':':
		default:
			return c
		}
	}
}

// value reads a value, a key included, in the parent with this index.
func (s *scanner) value(depth, parent int) {
	c, at, start := s.next(), len(s.d.nodes), s.i
	s.d.nodes = append(s.d.nodes, node{start: uint32(start), parent: uint32(parent), line: int32(s.line)})
	kind := Number
	switch c {
	case '{', '[':
		if kind = Array; c == '{' {
			kind = Object
		}
		if depth > maxDepth {
			s.fail(start, "", "values nest more than %d deep", maxDepth)
		}
		size := uint32(0)
		for s.i++; s.problem == nil && s.next() != c+2; size++ { // in ASCII, the closing bracket is two after the opening one
			if kind == Object {
				s.value(depth, at)
			}
			s.value(depth+1, at)
		}
		s.d.nodes[at].size = size
		s.i++
	case '"':
		kind = String
		s.text()
	case 't', 'f', 'n':
		if kind = Bool; c == 'n' {
			kind = Null
		}
		s.i += len("null")
		if c == 'f' {
			s.i++
		}
	default:
		s.number()
	}
	n := &s.d.nodes[at]
	n.kind, n.end, n.next = kind, uint32(s.i), uint32(len(s.d.nodes))
	if kind == String { // without the quotes
		n.start, n.end = n.start+1, n.end-1
	}
}

func (s *scanner) text() {
	start := s.i
	for s.i++; s.s[s.i] != '"'; s.i++ {
		if s.s[s.i] == '\\' {
			s.i++
		}
	}
	s.i++
	if raw := s.s[start:s.i]; bytes.Contains(raw, []byte(`\u`)) && surrogates.Match(pairs.ReplaceAll(raw, nil)) {
		s.fail(start+bytes.Index(raw, []byte(`\u`)), "it stands for no character", "lone surrogate in a string")
	}
}

// surrogates matches the escape of a surrogate, and pairs what has to be removed before: escapes of two surrogates that
// stand for a character, and escapes such as \\, after which a u begins no escape.
var (
	pairs      = regexp.MustCompile(`\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
	surrogates = regexp.MustCompile(`\\u[dD][89a-fA-F]`)
)

// number reads a number. It refuses a number with a fraction or an exponent if the nearest float64 is infinite. It takes an
// integer of any size.
func (s *scanner) number() {
	start := s.i
	for s.i < len(s.s) && strings.IndexByte("+-.0123456789eE", s.s[s.i]) >= 0 {
		s.i++
	}
	raw := string(s.s[start:s.i])
	switch {
	case len(raw) > maxNumber:
		s.fail(start, "", "number has more than %d digits", maxNumber)
	case strings.ContainsAny(raw, ".eE"):
		_, exponent, _ := strings.Cut(strings.ToLower(raw), "e")
		if _, err := strconv.ParseFloat(raw, 64); err != nil || len(strings.TrimLeft(exponent, "+-")) > maxExponent {
			s.fail(start, "", "number is out of range")
		}
	}
}
