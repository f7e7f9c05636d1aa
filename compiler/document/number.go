package document

import (
	"bytes"
	"strconv"
)

// maxExponent bounds the digits of an exponent, because a number whose digits are all
// zero is in range with any exponent.
const maxExponent = 6

// number reads a number. It refuses one with a fraction or exponent whose nearest
// float64 is an infinity.
func (p *jsonParser) number() *Problem {
	start := p.i
	if p.s[p.i] == '-' {
		p.i++
		if p.has("Infinity") {
			return p.fail(start, "write null or a string", "-Infinity is no JSON value")
		}
	}
	if !p.integer() {
		return p.fail(start, "", "malformed number")
	}
	fraction, ok := p.fraction()
	if !ok {
		return p.fail(start, "", "malformed number")
	}
	if p.i-start > maxNumber {
		return p.fail(start, "", "number has more than %d digits", maxNumber)
	}
	at := p.add(Number, start)
	p.end(at, p.i)
	if !fraction {
		return nil
	}
	p.d.nodes[at].flags = flagFraction
	raw := p.s[start:p.i]
	digits := 0 // of the exponent
	if e := bytes.IndexAny(raw, "eE"); e >= 0 {
		digits = len(bytes.TrimLeft(raw[e+1:], "+-"))
	}
	if len(raw) <= 16 && digits <= 2 {
		return nil // the usual case, which is never out of range
	}
	if _, err := strconv.ParseFloat(string(raw), 64); err != nil || digits > maxExponent {
		return p.fail(start, "", "number is out of range")
	}
	return nil
}

// integer reads digits and reports whether they are an integer without a leading
// zero.
func (p *jsonParser) integer() bool {
	n := p.digits()
	return n == 1 || n > 1 && p.s[p.i-n] != '0'
}

func (p *jsonParser) digits() int {
	start := p.i
	for p.i < len(p.s) && '0' <= p.s[p.i] && p.s[p.i] <= '9' {
		p.i++
	}
	return p.i - start
}

// fraction reads a fraction and an exponent, and reports whether there is either and
// whether they are well-formed.
func (p *jsonParser) fraction() (any, ok bool) {
	if p.i < len(p.s) && p.s[p.i] == '.' {
		p.i++
		if p.digits() == 0 {
			return true, false
		}
		any = true
	}
	if p.i < len(p.s) && p.s[p.i]|0x20 == 'e' {
		p.i++
		if p.i < len(p.s) && (p.s[p.i] == '+' || p.s[p.i] == '-') {
			p.i++
		}
		if p.digits() == 0 {
			return true, false
		}
		any = true
	}
	return any, true
}
