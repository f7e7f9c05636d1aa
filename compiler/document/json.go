package document

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds how deep values nest, so that no text exhausts the stack.
const maxDepth = 1000

// maxNumber bounds the length of a number in bytes, so that arithmetic stays cheap.
const maxNumber = 4300

// maxDuplicates bounds the duplicate keys reported for a document.
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
	p := jsonParser{d: d, s: text, line: line}
	return p.document()
}

// duplicates returns a problem for each repeated key, up to maxDuplicates.
func (d *Document) duplicates() (found Problems) {
	for at := range d.nodes {
		fields := Value{d, uint32(at)}.sorted()
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

const byteOrderMark = "\ufeff"

func (p *jsonParser) document() *Problem {
	if p.has(byteOrderMark) {
		return p.fail(0, "save the file without one", "byte order mark")
	}
	if problem := p.value(); problem != nil {
		return problem
	}
	if p.space(); p.i < len(p.s) {
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
	if p.space(); p.i >= len(p.s) {
		return p.fail(p.i, "", "expected a value, found end of the text")
	}
	switch p.s[p.i] {
	case '{':
		return p.container(Object, '}')
	case '[':
		return p.container(Array, ']')
	case '"':
		return p.text()
	case 't':
		return p.word("true", Bool)
	case 'f':
		return p.word("false", Bool)
	case 'n':
		return p.word("null", Null)
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return p.number()
	default:
		return p.noValue()
	}
}

func (p *jsonParser) noValue() *Problem {
	for _, name := range []string{"NaN", "Infinity", "-Infinity"} {
		if p.has(name) {
			return p.fail(p.i, "write null or a string", "%s is no JSON value", name)
		}
	}
	hint := ""
	switch {
	case p.has("'"):
		hint = "strings stand in double quotes"
	case p.has("True"), p.has("False"), p.has("None"):
		hint = "JSON writes true, false and null: in Python, json.dumps does"
	case p.i == 0 && (p.has("\xff\xfe") || p.has("\xfe\xff")):
		hint = "this looks like UTF-16: save the file as UTF-8"
	}
	return p.fail(p.i, hint, "expected a value, found %s", p.found())
}

func (p *jsonParser) has(word string) bool { return bytes.HasPrefix(p.s[p.i:], []byte(word)) }

func (p *jsonParser) word(word string, kind Kind) *Problem {
	if !p.has(word) {
		return p.noValue()
	}
	at := p.add(kind, p.i)
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
	done := p.next(closing)
	for !done {
		var problem *Problem
		if kind == Object {
			problem = p.key()
		}
		if problem == nil {
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
	p.depth--
	return nil
}

// next reads the byte c, if it is the next, and reports whether it is.
func (p *jsonParser) next(c byte) bool {
	if p.i >= len(p.s) || p.s[p.i] != c {
		return false
	}
	p.i++
	return true
}

// separator reads a comma or the closing byte, and reports whether it was the latter.
func (p *jsonParser) separator(closing byte) (done bool, problem *Problem) {
	p.space()
	comma := p.i
	if p.next(closing) {
		return true, nil
	}
	if !p.next(',') {
		return false, p.fail(p.i, "", "expected a comma or %q, found %s", closing, p.found())
	}
	if p.space(); p.next(closing) {
		return false, p.fail(comma, "remove it", "comma before %q", closing)
	}
	return false, nil
}

// key reads a field's key and the colon after it.
func (p *jsonParser) key() *Problem {
	if p.space(); !p.has(`"`) {
		return p.fail(p.i, "keys stand in double quotes", "expected a key, found %s", p.found())
	}
	if problem := p.text(); problem != nil {
		return problem
	}
	if p.space(); !p.next(':') {
		return p.fail(p.i, "", "expected a colon, found %s", p.found())
	}
	return nil
}
