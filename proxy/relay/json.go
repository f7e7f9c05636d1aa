package relay

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf8"
)

// Bounds of a request's JSON. The requests of real agents hold some thousands of
// values, nested less than 20 deep.
const (
	maxDepth  = 256
	maxValues = 1 << 18
)

var (
	errSyntax   = errors.New("the body is not valid JSON")
	errUTF8     = errors.New("the body is not valid UTF-8")
	errTrailing = errors.New("the body holds more than one JSON value")
	errDepth    = errors.New("the body is nested too deep")
	errValues   = errors.New("the body holds too many values")
	errKeyTwice = errors.New("the body holds an object with a key twice")
	errKey      = errors.New("the body holds a key that is no Unicode text")
)

// checkJSON says whether data is one JSON value (RFC 8259) that every parser
// reads alike: no key twice in an object, also not in another spelling by
// escapes, no invalid UTF-8, nothing after it. Otherwise what is taken out here
// may still be there for the provider, or the other way around.
func checkJSON(data []byte) error {
	if !utf8.Valid(data) {
		return errUTF8
	}
	c := checker{data: data}
	c.space()
	if err := c.value(0); err != nil {
		return err
	}
	if c.space(); c.pos != len(data) {
		return errTrailing
	}
	return nil
}

type checker struct {
	data   []byte
	pos    int
	values int
}

// peek returns 0 at the end, which no token begins with.
func (c *checker) peek() byte {
	if c.pos < len(c.data) {
		return c.data[c.pos]
	}
	return 0
}

func (c *checker) space() {
	for c.pos < len(c.data) {
		switch c.data[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

func (c *checker) value(depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	if c.values++; c.values > maxValues {
		return errValues
	}
	switch b := c.peek(); {
	case b == '{':
		return c.object(depth)
	case b == '[':
		return c.array(depth)
	case b == '"':
		_, err := c.str()
		return err
	case b == '-' || '0' <= b && b <= '9':
		return c.number()
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(c.data[c.pos:], []byte(word)) {
			c.pos += len(word)
			return nil
		}
	}
	return errSyntax
}

func (c *checker) array(depth int) error {
	c.pos++
	if c.space(); c.peek() == ']' {
		c.pos++
		return nil
	}
	for {
		c.space()
		if err := c.value(depth + 1); err != nil {
			return err
		}
		if end, err := c.next(']'); end || err != nil {
			return err
		}
	}
}

func (c *checker) object(depth int) error {
	c.pos++
	if c.space(); c.peek() == '}' {
		c.pos++
		return nil
	}
	var seen keySet
	for {
		c.space()
		raw, err := c.str()
		if err != nil {
			return err
		}
		key, ok := unquote(raw)
		if !ok {
			return errKey
		}
		if !seen.add(key) {
			return errKeyTwice
		}
		if c.space(); c.peek() != ':' {
			return errSyntax
		}
		c.pos++
		c.space()
		if err := c.value(depth + 1); err != nil {
			return err
		}
		if end, err := c.next('}'); end || err != nil {
			return err
		}
	}
}

// next takes a comma, or the end.
func (c *checker) next(end byte) (bool, error) {
	c.space()
	b := c.peek()
	c.pos++
	if b != end && b != ',' {
		return false, errSyntax
	}
	return b == end, nil
}

// str takes a string and returns it as it is written, quotes included.
func (c *checker) str() ([]byte, error) {
	start := c.pos
	if c.peek() != '"' {
		return nil, errSyntax
	}
	for c.pos++; c.pos < len(c.data); c.pos++ {
		switch b := c.data[c.pos]; {
		case b == '"':
			c.pos++
			return c.data[start:c.pos], nil
		case b < ' ':
			return nil, errSyntax
		case b == '\\':
			if err := c.escape(); err != nil {
				return nil, err
			}
		}
	}
	return nil, errSyntax
}

// escape takes all but the last byte of an escape.
func (c *checker) escape() error {
	c.pos++
	switch c.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		for range 4 {
			if c.pos++; !isHex(c.peek()) {
				return errSyntax
			}
		}
		return nil
	}
	return errSyntax
}

func isHex(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'f' || 'A' <= b && b <= 'F'
}

func (c *checker) number() error {
	if c.peek() == '-' {
		c.pos++
	}
	if c.peek() == '0' {
		c.pos++
	} else if !c.digits() {
		return errSyntax
	}
	if c.peek() == '.' {
		if c.pos++; !c.digits() {
			return errSyntax
		}
	}
	if b := c.peek(); b == 'e' || b == 'E' {
		c.pos++
		if b := c.peek(); b == '+' || b == '-' {
			c.pos++
		}
		if !c.digits() {
			return errSyntax
		}
	}
	return nil
}

func (c *checker) digits() bool {
	start := c.pos
	for b := c.peek(); '0' <= b && b <= '9'; b = c.peek() {
		c.pos++
	}
	return c.pos > start
}

// keySet is a list while it is short, since nearly all are.
type keySet struct {
	list []string
	set  map[string]struct{}
}

func (k *keySet) add(key string) bool {
	if k.set == nil {
		for _, old := range k.list {
			if old == key {
				return false
			}
		}
		if k.list = append(k.list, key); len(k.list) > 16 {
			k.set = make(map[string]struct{}, 2*len(k.list))
			for _, old := range k.list {
				k.set[old] = struct{}{}
			}
		}
		return true
	}
	if _, ok := k.set[key]; ok {
		return false
	}
	k.set[key] = struct{}{}
	return true
}

// unquote reads a string of checked JSON. It fails on half a surrogate pair,
// which one reader keeps and another replaces.
func unquote(raw []byte) (string, bool) {
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	var s string
	if halfPair(raw) || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// halfPair says whether a string has an escaped surrogate without its other
// half.
func halfPair(raw []byte) bool {
	low := false // a low one must follow at once
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || raw[i+1] != 'u' {
			if low {
				return true
			}
			if raw[i] == '\\' {
				i++
			}
			continue
		}
		unit, _ := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
		isLow := 0xDC00 <= unit && unit < 0xE000
		if low != isLow {
			return true
		}
		low = 0xD800 <= unit && unit < 0xDC00
		i += 5
	}
	return low
}
