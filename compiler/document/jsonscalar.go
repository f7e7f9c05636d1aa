package document

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxExponent bounds the digits of an exponent: a number whose digits are all zero is in
// range with any exponent.
const maxExponent = 6

// text reads a string.
func (p *jsonParser) text() *Problem {
	at := p.add(String, p.i+1)
	for p.i++; p.i < len(p.s); {
		r, size := rune(p.s[p.i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(p.s[p.i:])
		}
		switch {
		case r == '"':
			p.end(at, p.i)
			p.i++
			return nil
		case r == '\\':
			if problem := p.escape(); problem != nil {
				return problem
			}
		case r < 0x20:
			return p.fail(p.i, "escape it", "control character 0x%02x in a string", r)
		case r == utf8.RuneError && size == 1:
			return p.fail(p.i, "", "%s in a string", p.found())
		default:
			p.i += size
		}
	}
	return p.fail(p.i, "", "string has no end")
}

// escape reads an escape sequence.
func (p *jsonParser) escape() *Problem {
	start := p.i
	switch rest := p.s[start+1:]; {
	case len(rest) == 0:
		return p.fail(start, "", "string has no end")
	case strings.IndexByte(`"\/bfnrt`, rest[0]) >= 0:
		p.i += 2
		return nil
	case rest[0] != 'u':
		return p.fail(start, `write \\ for a backslash`, "unknown escape in a string")
	}
	high, ok := p.unicode()
	if !ok {
		return p.fail(start, "", `\u needs four hexadecimal digits`)
	}
	if utf16.IsSurrogate(high) {
		if low, ok := p.unicode(); !ok || utf16.DecodeRune(high, low) == utf8.RuneError {
			return p.fail(start, "it stands for no character", "lone surrogate in a string")
		}
	}
	return nil
}

// unicode reads an escape of the form \uXXXX, if there is one.
func (p *jsonParser) unicode() (rune, bool) {
	if !p.has(`\u`) || len(p.s)-p.i < 6 {
		return 0, false
	}
	r, err := strconv.ParseUint(string(p.s[p.i+2:p.i+6]), 16, 32)
	p.i += 6
	return rune(r), err == nil
}

// likeNumber matches the start of a text as far as it could be a number.
var likeNumber = regexp.MustCompile(`^-?[0-9]*(\.[0-9]*)?([eE][-+]?[0-9]*)?`)

// number reads a number. It refuses a fraction or exponent whose nearest float64 is
// infinite.
func (p *jsonParser) number() *Problem {
	start := p.i
	raw := likeNumber.Find(p.s[start:])
	p.i += len(raw)
	at := p.add(Number, start)
	p.end(at, p.i)
	switch {
	case string(raw) == "-" && p.has("Infinity"):
		p.i = start
		return p.noValue()
	case !json.Valid(raw):
		return p.fail(start, "", "malformed number")
	case len(raw) > maxNumber:
		return p.fail(start, "", "number has more than %d digits", maxNumber)
	case !bytes.ContainsAny(raw, ".eE"):
		return nil
	}
	digits := 0 // of the exponent
	if e := bytes.IndexAny(raw, "eE"); e >= 0 {
		digits = len(bytes.TrimLeft(raw[e+1:], "+-"))
	}
	if _, err := strconv.ParseFloat(string(raw), 64); err != nil || digits > maxExponent {
		return p.fail(start, "", "number is out of range")
	}
	return nil
}
