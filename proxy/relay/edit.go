package relay

import (
	"bytes"
	"strconv"
)

// The functions of this file read JSON that passed checkJSON, one level at a time:
// values that no rule inspects are skipped, and sent on byte for byte.

// A member is one member of an object, with name and value as they are written.
type member struct {
	key   string
	name  []byte // the key with its quotes
	value []byte
}

// kindOf returns the first byte of a value: one of {["tfn, '-' or a digit.
func kindOf(v []byte) byte {
	if len(v) == 0 {
		return 0
	}
	return v[0]
}

func isNull(v []byte) bool { return kindOf(v) == 'n' }

// text decodes a string. It returns false if v is not one.
func text(v []byte) (string, bool) {
	if kindOf(v) != '"' {
		return "", false
	}
	return unquote(v)
}

// members returns the members of an object, or nil if v is something else.
func members(v []byte) []member {
	if kindOf(v) != '{' {
		return nil
	}
	var all []member
	s := scanner{v, 1}
	for s.skipTo('}') {
		name := s.take()
		key, _ := unquote(name)
		s.skipTo(0)
		all = append(all, member{key, name, s.take()})
	}
	return all
}

// elements returns the elements of an array, or nil if v is something else.
func elements(v []byte) [][]byte {
	if kindOf(v) != '[' {
		return nil
	}
	var all [][]byte
	s := scanner{v, 1}
	for s.skipTo(']') {
		all = append(all, s.take())
	}
	return all
}

func joinMembers(all []member) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(m.name)
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

func joinElements(all [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(all, []byte{','})...), ']')
}

// newMember makes a member that the relay adds. value is JSON.
func newMember(key, value string) member {
	return member{key, []byte(strconv.Quote(key)), []byte(value)}
}

type scanner struct {
	data []byte
	pos  int
}

// skipTo goes to the next value. It returns false if the closing byte end comes first,
// or the data ends.
func (s *scanner) skipTo(end byte) bool {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r', ',', ':':
			s.pos++
		default:
			return s.data[s.pos] != end
		}
	}
	return false
}

// take returns the value at the current position and moves past it.
func (s *scanner) take() []byte {
	start, depth := s.pos, 0
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case '"':
			s.skipString()
		case '{', '[':
			depth++
			s.pos++
		case '}', ']':
			if depth == 0 { // after a number or a word
				return s.data[start:s.pos]
			}
			depth--
			s.pos++
		case ' ', '\t', '\n', '\r', ',', ':':
			if depth == 0 {
				return s.data[start:s.pos]
			}
			s.pos++
			continue
		default:
			s.pos++
			continue
		}
		if depth == 0 {
			break
		}
	}
	return s.data[start:s.pos]
}

func (s *scanner) skipString() {
	for s.pos++; ; {
		end := s.pos + bytes.IndexByte(s.data[s.pos:], '"') // valid JSON has one
		for s.pos <= end {
			escape := bytes.IndexByte(s.data[s.pos:end], '\\')
			if escape < 0 {
				s.pos = end + 1
				return
			}
			s.pos += escape + 2
		}
	}
}
