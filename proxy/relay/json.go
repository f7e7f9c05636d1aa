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
	errDepth    = errors.New("the body is nested too deep")
	errValues   = errors.New("the body holds too many values")
	errKeyTwice = errors.New("the body holds an object with a key twice")
	errKey      = errors.New("the body holds a key that is no Unicode text")
)

// checkJSON returns nil if data is one JSON value (RFC 8259) that every parser
// reads alike: no key twice in an object, not even spelled with escapes, no invalid
// UTF-8, nothing after the value. Otherwise the provider might read what was removed
// here, or miss what was not.
//
// encoding/json checks the grammar. Its tokens are not used, since they hide how a key
// is written and copy every string.
func checkJSON(data []byte) error {
	switch {
	case !utf8.Valid(data):
		return errUTF8
	case !json.Valid(data):
		return errSyntax
	}
	var open []map[string]bool // the keys of each object that the scanner is in, nil for an array
	s := scanner{data: data}
	for values := 0; s.skipTo(0); {
		first := data[s.pos]
		if first == '}' || first == ']' {
			open = open[:len(open)-1]
			s.pos++
			continue
		}
		if first == '"' {
			text := s.take()
			if rest := bytes.TrimLeft(data[s.pos:], " \t\r\n"); len(rest) > 0 && rest[0] == ':' {
				if err := addKey(open[len(open)-1], text); err != nil {
					return err
				}
				continue
			}
		}
		if values++; values > maxValues {
			return errValues
		}
		if len(open) > maxDepth {
			return errDepth
		}
		switch first {
		case '{':
			open = append(open, map[string]bool{})
			s.pos++
		case '[':
			open = append(open, nil)
			s.pos++
		case '"':
		default:
			s.take()
		}
	}
	return nil
}

// addKey adds a key, as it is written, to the keys of its object.
func addKey(keys map[string]bool, raw []byte) error {
	key, ok := unquote(raw)
	switch {
	case !ok:
		return errKey
	case keys[key]:
		return errKeyTwice
	}
	keys[key] = true
	return nil
}

// unquote decodes a string of valid JSON. It returns false for half a surrogate pair,
// which some parsers keep and others replace.
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

// halfPair reports whether a string has an escaped surrogate without its other half.
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
