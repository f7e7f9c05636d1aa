package document

import "strconv"

// number reads a number and refuses those that a float64 holds only as an
// infinity.
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
	if fraction {
		p.d.nodes[at].flags = flagFraction
		if p.i-start > 16 || p.exponentDigits(start) > 2 {
			if _, err := strconv.ParseFloat(string(p.s[start:p.i]), 64); err != nil || p.exponentDigits(start) > 6 {
				return p.fail(start, "", "number is out of range")
			}
		}
	}
	return nil
}

// integer reads digits that do not begin with a needless zero.
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

// fraction reads the rest of a number and reports whether there was any.
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

// exponentDigits counts the digits of the exponent of the number that begins
// at start and ends at p.i.
func (p *jsonParser) exponentDigits(start int) int {
	for i := start; i < p.i; i++ {
		if p.s[i]|0x20 != 'e' {
			continue
		}
		i++
		if p.s[i] == '+' || p.s[i] == '-' {
			i++
		}
		return p.i - i
	}
	return 0
}
