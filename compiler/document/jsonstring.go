package document

import (
	"encoding/binary"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// text reads a string.
func (p *jsonParser) text() *Problem {
	at := p.add(String, p.i+1)
	p.i++
	for {
		p.i += plainPrefix(p.s[p.i:])
		if p.i >= len(p.s) {
			return p.fail(p.i, "", "string has no end")
		}
		switch c := p.s[p.i]; {
		case c == '"':
			p.end(at, p.i)
			p.i++
			return nil
		case c == '\\':
			p.d.nodes[at].flags |= flagEscaped
			if problem := p.escape(); problem != nil {
				return problem
			}
		case c < 0x20:
			return p.fail(p.i, "escape it", "control character 0x%02x in a string", c)
		default:
			r, size := utf8.DecodeRune(p.s[p.i:])
			if r == utf8.RuneError && size == 1 {
				return p.fail(p.i, "", "invalid UTF-8 byte 0x%02x in a string", c)
			}
			p.i += size
		}
	}
}

// plainPrefix returns how many bytes at the start of s stand for themselves in a
// string: ASCII, but no quote, backslash or control character. It tests eight bytes
// at a time. Borrows only carry to higher bytes, so the test is exact up to the first
// hit, which the loop at the end then finds.
func plainPrefix(s []byte) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; len(s)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(s[i:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		hit := w | (w - ones*0x20) | ((quote - ones) &^ quote) | ((slash - ones) &^ slash)
		if hit&high != 0 {
			break
		}
	}
	for i < len(s) && s[i] >= 0x20 && s[i] < 0x80 && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
}

// escape reads an escape sequence.
func (p *jsonParser) escape() *Problem {
	if p.i+1 >= len(p.s) {
		return p.fail(p.i, "", "string has no end")
	}
	switch c := p.s[p.i+1]; c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		p.i += 2
		return nil
	case 'u':
		return p.unicodeEscape()
	default:
		return p.fail(p.i, `write \\ for a backslash`, "unknown escape in a string")
	}
}

func (p *jsonParser) unicodeEscape() *Problem {
	start := p.i
	high, ok := hex4(p.s, p.i)
	if !ok {
		return p.fail(start, "", `\u needs four hexadecimal digits`)
	}
	p.i += 6
	if !utf16.IsSurrogate(high) {
		return nil
	}
	low, ok := hex4(p.s, p.i)
	if !ok || utf16.DecodeRune(high, low) == utf8.RuneError {
		return p.fail(start, "it stands for no character", "lone surrogate in a string")
	}
	p.i += 6
	return nil
}

// hex4 reads the four digits of the escape \uXXXX that starts at s[i].
func hex4(s []byte, i int) (rune, bool) {
	if i+6 > len(s) || s[i] != '\\' || s[i+1] != 'u' {
		return 0, false
	}
	r, err := strconv.ParseUint(string(s[i+2:i+6]), 16, 32)
	return rune(r), err == nil
}

// appendUnescaped appends the content of a string that the parser has accepted.
func appendUnescaped(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			dst = append(dst, raw[i])
			i++
			continue
		}
		c := raw[i+1]
		if at := strings.IndexByte("bfnrt", c); at >= 0 {
			dst = append(dst, "\b\f\n\r\t"[at])
		} else if c == 'u' {
			r, _ := hex4(raw, i)
			i += 4
			if utf16.IsSurrogate(r) {
				low, _ := hex4(raw, i+2)
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
		} else {
			dst = append(dst, c)
		}
		i += 2
	}
	return dst
}
