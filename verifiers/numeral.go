package verifiers

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// exactTolerance returns the decimal that the author wrote; nil if there is
// none.
func exactTolerance(f float64) *big.Rat {
	if math.IsNaN(f) || math.IsInf(f, 0) || f < 0 {
		return nil
	}
	r, ok := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	if !ok {
		return nil
	}
	return r
}

// A numeral is a number in a text.
type numeral struct {
	text  string // with its sign, as it stands
	whole bool   // nothing else is in the text
	clear bool   // nothing beside it makes it a part of something else
}

// Bounds of the numbers that are compared.
const (
	maxNumeralLength = 400
	maxExponent      = 400
)

// value returns the exact value, or nil if it is out of bounds.
func (n numeral) value() *big.Rat {
	s := strings.ReplaceAll(n.text, ",", "")
	if len(s) > maxNumeralLength {
		return nil
	}
	if _, exp, ok := strings.Cut(s, "e"); ok {
		if e, err := strconv.Atoi(exp); err != nil || e < -maxExponent || e > maxExponent {
			return nil
		}
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil
	}
	return r
}

func wholeNumeral(s string) (numeral, bool) {
	if s == "" || !strings.ContainsRune("+-.0123456789", rune(s[0])) {
		return numeral{}, false
	}
	found := numerals(s)
	return append(found, numeral{})[0], len(found) == 1 && found[0].whole
}

// numerals returns the numbers of a folded text: digits, with commas between
// groups of three, a fraction, an exponent and a sign.
func numerals(s string) []numeral {
	var out []numeral
	for i := 0; i < len(s); {
		start := i
		if !isDigit(rune(s[i])) && (s[i] != '.' || i+1 == len(s) || !isDigit(rune(s[i+1]))) {
			i++
			continue
		}
		i = endOfNumeral(s, i)
		if r, _ := utf8.DecodeLastRuneInString(s[:start]); unicode.IsLetter(r) {
			continue // of a name, such as "h2o"
		}
		clear := endsClearly(s[i:])
		begin, ok := signOf(s, start)
		out = append(out, numeral{s[begin:start] + s[start:i], begin == 0 && i == len(s), clear && ok})
	}
	return out
}

func digits(s string, i int) int {
	for i < len(s) && isDigit(rune(s[i])) {
		i++
	}
	return i
}

// endOfNumeral returns the end of the number that begins at i.
func endOfNumeral(s string, i int) int {
	end := digits(s, i)
	if n := end - i; 1 <= n && n <= 3 {
		for end < len(s) && s[end] == ',' && digits(s, end+1) == end+4 {
			end += 4
		}
	}
	if end < len(s) && s[end] == '.' && digits(s, end+1) > end+1 {
		end = digits(s, end+1)
	}
	if end > i && end < len(s) && s[end] == 'e' {
		exp := end + 1
		if exp < len(s) && (s[exp] == '-' || s[exp] == '+') {
			exp++
		}
		if after := digits(s, exp); after > exp {
			end = after
		}
	}
	return end
}

// endsClearly reports whether a number may end before s.
func endsClearly(s string) bool {
	r, size := utf8.DecodeRuneInString(s)
	switch {
	case s == "", unicode.Is(unicode.Sc, r), strings.ContainsRune(" \n)]}\"':;*_`%°$\\", r):
		return true
	case r == '.' || r == ',':
		next, _ := utf8.DecodeRuneInString(s[size:])
		return !isDigit(next)
	}
	return false
}

// signOf returns where the sign of the number at i begins, or i. It reports
// false if what stands before the number makes another number of it.
func signOf(s string, i int) (int, bool) {
	before, size := utf8.DecodeLastRuneInString(s[:i])
	switch {
	case before == '-' || before == '+':
		return i - 1, beginsClearly(s[:i-1])
	case unicode.Is(unicode.Sc, before): // "-$5" is not five
		r, _ := utf8.DecodeLastRuneInString(strings.TrimRight(s[:i-size], " "))
		return i, !isDigit(r) && !strings.ContainsRune("-+/^", r)
	}
	return i, beginsClearly(s[:i])
}

// beginsClearly reports whether a number may begin behind s.
func beginsClearly(s string) bool {
	if t := strings.TrimRight(s, " "); t != s {
		// A sign apart could be a bullet, a minus or a difference.
		return t == "" || !strings.ContainsRune("-+/^", rune(t[len(t)-1]))
	}
	return s == "" || strings.ContainsRune("\n([{\"'=:,;*_`~", rune(s[len(s)-1]))
}
