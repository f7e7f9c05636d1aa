package document

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds how deep values nest, so that no text exhausts the stack.
const maxDepth = 1000

// maxNumber bounds the length of a number in bytes, so that arithmetic on one
// stays cheap.
const maxNumber = 4300

// maxDuplicates bounds the duplicate keys that are reported for a document.
const maxDuplicates = 16

// ParseJSON reads one JSON value and keeps text, which must not change while d is in
// use. Line is the 1-based number of the text's first line. The problems returned
// have no File.
func (d *Document) ParseJSON(text []byte, line int) Problems {
	d.text, d.nodes, d.duplicates = text, d.nodes[:0], d.duplicates[:0]
	p := jsonParser{d: d, s: text, line: line}
	if problem := p.document(); problem != nil {
		d.nodes = d.nodes[:0]
		return Problems{*problem}
	}
	return d.duplicateProblems()
}

func (d *Document) duplicateProblems() Problems {
	var problems Problems
	for _, at := range d.duplicates {
		key := Value{d, at}
		problems = append(problems, Problem{
			Line: key.Line(), Path: d.pathTo(at), Message: fmt.Sprintf("duplicate key %q", key.Text()),
			Hint: "readers disagree on which one counts",
		})
	}
	return problems
}

// pathTo returns the path of the field whose key is the node at.
func (d *Document) pathTo(at uint32) string {
	var path Path
	d.descend(Value{d, 0}, at, &path)
	return path.String()
}

func (d *Document) descend(v Value, at uint32, path *Path) {
	for i, item := range v.Items() {
		if at < item.node().next {
			path.PushIndex(i)
			d.descend(item, at, path)
			return
		}
	}
	for key, value := range v.Fields() {
		if at < value.node().next {
			path.PushKey(key.Text())
			if at > key.at {
				d.descend(value, at, path)
			}
			return
		}
	}
}

// jsonParser is a recursive-descent parser for RFC 8259. Its methods return a
// problem or nil; i is the index of the next byte to read.
type jsonParser struct {
	d     *Document
	s     []byte
	i     int
	depth int
	line  int
}

func (p *jsonParser) fail(at int, hint, format string, args ...any) *Problem {
	return &Problem{
		Line: p.line, Message: fmt.Sprintf("invalid JSON at column %d: ", at+1) + fmt.Sprintf(format, args...), Hint: hint,
	}
}

func (p *jsonParser) document() *Problem {
	if len(p.s) >= 3 && string(p.s[:3]) == "\ufeff" {
		return p.fail(0, "save the file without one", "byte order mark")
	}
	if problem := p.value(); problem != nil {
		return problem
	}
	p.space()
	if p.i < len(p.s) {
		return p.fail(p.i, "one line holds one value", "%s after the end of the value", p.found())
	}
	return nil
}

// space skips white space and counts lines.
func (p *jsonParser) space() {
	for p.i < len(p.s) {
		switch p.s[p.i] {
		case '\n':
			p.line++
		case ' ', '\t', '\r':
		default:
			return
		}
		p.i++
	}
}

// found describes the next byte.
func (p *jsonParser) found() string {
	if p.i >= len(p.s) {
		return "end of the text"
	}
	r, size := utf8.DecodeRune(p.s[p.i:])
	if r == utf8.RuneError && size <= 1 {
		return fmt.Sprintf("invalid UTF-8 byte 0x%02x", p.s[p.i])
	}
	return strconv.QuoteRune(r)
}

func (p *jsonParser) add(kind Kind, start int) uint32 {
	at := uint32(len(p.d.nodes))
	p.d.nodes = append(p.d.nodes, node{start: uint32(start), kind: kind, line: int32(p.line)})
	return at
}

// end completes the node at, whose text ends before the offset end.
func (p *jsonParser) end(at uint32, end int) {
	n := &p.d.nodes[at]
	n.end, n.next = uint32(end), uint32(len(p.d.nodes))
}

func (p *jsonParser) value() *Problem {
	p.space()
	if p.i >= len(p.s) {
		return p.fail(p.i, "", "expected a value, found end of the text")
	}
	switch c := p.s[p.i]; c {
	case '{':
		return p.container(Object, '}')
	case '[':
		return p.container(Array, ']')
	case '"':
		return p.text()
	case 't':
		return p.word("true", Bool, flagTrue)
	case 'f':
		return p.word("false", Bool, 0)
	case 'n':
		return p.word("null", Null, 0)
	default:
		if c == '-' || '0' <= c && c <= '9' {
			return p.number()
		}
		return p.noValue()
	}
}

func (p *jsonParser) noValue() *Problem {
	for _, name := range []string{"NaN", "Infinity"} {
		if p.has(name) {
			return p.fail(p.i, "write null or a string", "%s is no JSON value", name)
		}
	}
	if p.s[p.i] == '\'' {
		return p.fail(p.i, "strings stand in double quotes", "expected a value, found %s", p.found())
	}
	return p.fail(p.i, "", "expected a value, found %s", p.found())
}

func (p *jsonParser) has(word string) bool {
	return len(p.s)-p.i >= len(word) && string(p.s[p.i:p.i+len(word)]) == word
}

func (p *jsonParser) word(word string, kind Kind, flags flag) *Problem {
	if !p.has(word) {
		return p.noValue()
	}
	at := p.add(kind, p.i)
	p.d.nodes[at].flags = flags
	p.i += len(word)
	p.end(at, p.i)
	return nil
}

// container reads an array or an object.
func (p *jsonParser) container(kind Kind, closing byte) *Problem {
	if p.depth++; p.depth > maxDepth {
		return p.fail(p.i, "", "values nest more than %d deep", maxDepth)
	}
	at := p.add(kind, p.i)
	p.i++
	p.space()
	done := p.i < len(p.s) && p.s[p.i] == closing
	if done {
		p.i++
	}
	for !done {
		var problem *Problem
		if kind == Object {
			problem = p.field()
		} else {
			problem = p.value()
		}
		if problem == nil {
			done, problem = p.separator(closing)
		}
		if problem != nil {
			return problem
		}
		p.d.nodes[at].size++
	}
	p.end(at, p.i)
	if kind == Object {
		p.d.checkKeys(at)
	}
	p.depth--
	return nil
}

// separator reads a comma or the closing byte, and reports whether it was the latter.
func (p *jsonParser) separator(closing byte) (done bool, problem *Problem) {
	p.space()
	if p.i < len(p.s) {
		switch p.s[p.i] {
		case ',':
			comma := p.i
			p.i++
			if p.space(); p.i < len(p.s) && p.s[p.i] == closing {
				return false, p.fail(comma, "remove it", "comma before %q", closing)
			}
			return false, nil
		case closing:
			p.i++
			return true, nil
		}
	}
	return false, p.fail(p.i, "", "expected a comma or %q, found %s", closing, p.found())
}

func (p *jsonParser) field() *Problem {
	if p.space(); p.i >= len(p.s) || p.s[p.i] != '"' {
		return p.fail(p.i, "keys stand in double quotes", "expected a key, found %s", p.found())
	}
	if problem := p.text(); problem != nil {
		return problem
	}
	if p.space(); p.i >= len(p.s) || p.s[p.i] != ':' {
		return p.fail(p.i, "", "expected a colon, found %s", p.found())
	}
	p.i++
	return p.value()
}
