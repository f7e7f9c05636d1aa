package verifiers

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// exactTolerance returns f as the decimal that the author wrote; nil if f is negative or
// not finite.
func exactTolerance(f float64) *big.Rat {
	if f < 0 {
		return nil
	}
	r, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64)) // nil if it is no number
	return r
}

// A numeral is a number in a text: digits, or words, powers, fractions and
// factors such as "thousand" and "%".
type numeral struct {
	text    string   // without thousands separators
	value   *big.Rat // nil if the number is malformed or out of bounds
	comma   bool     // its comma was read as a decimal point
	percent bool
}

// Bounds of the numbers that are compared.
const (
	maxNumeralLength = 400
	maxExponent      = 400
)

// scanNumeral reads the number at i: a sign, digits with commas, apostrophes or single
// spaces between groups of three, a fraction and an exponent. It returns the number's end. A
// number directly followed by more digits is malformed.
func scanNumeral(rs []rune, i int) (numeral, int) {
	start, n := i, numeral{}
	if rs[i] == '-' || rs[i] == '+' {
		i++
	}
	first := i
	i = digits(rs, i)
	size, grouped := i-first, false
	if 1 <= size && size <= 3 {
		for i+3 < len(rs) && strings.ContainsRune(",' ", rs[i]) && digits(rs, i+1) == i+4 && (!grouped || rs[i] == rs[first+size]) {
			grouped = true
			i += 4
		}
	}
	if i+1 < len(rs) && rs[i] == '.' && isDigit(rs[i+1]) {
		i = digits(rs, i+1)
	} else if !grouped && i+1 < len(rs) && rs[i] == ',' && isDigit(rs[i+1]) {
		n.comma = true
		i = digits(rs, i+1)
	}
	if i+1 < len(rs) && unicode.ToLower(rs[i]) == 'e' {
		exp := i + 1
		if rs[exp] == '-' || rs[exp] == '+' {
			exp++
		}
		if end := digits(rs, exp); end > exp {
			i = end
		}
	}
	n.text = strings.TrimPrefix(strings.ToLower(string(rs[start:i])), "+")
	if n.comma {
		n.text = strings.Replace(n.text, ",", ".", 1)
	} else if grouped {
		n.text = strings.ReplaceAll(n.text, string(rs[first+size]), "")
	}
	end := i
	for i+1 < len(rs) && strings.ContainsRune(".,", rs[i]) && isDigit(rs[i+1]) {
		i = digits(rs, i+1)
	}
	if i > end {
		return numeral{text: string(rs[start:i])}, i
	}
	n.value = parseDecimal(n.text)
	return n, i
}

func digits(rs []rune, i int) int {
	for i < len(rs) && isDigit(rs[i]) {
		i++
	}
	return i
}

func parseDecimal(s string) *big.Rat {
	if len(s) > maxNumeralLength {
		return nil
	}
	if _, exp, ok := strings.Cut(s, "e"); ok {
		if e, err := strconv.Atoi(exp); err != nil || e < -maxExponent || e > maxExponent {
			return nil
		}
	}
	r, _ := new(big.Rat).SetString(s) // nil if it is no number
	return r
}

// join replaces each part of ts that read finds at a token by what it returns, with the number
// of tokens; 0 if there is none.
func join(ts []token, read func([]token) (token, int)) []token {
	out := ts[:0]
	for i := 0; i < len(ts); i++ {
		t := ts[i]
		if joined, size := read(ts[i:]); size > 0 {
			joined.glued = t.glued
			t, i = joined, i+size-1
		}
		out = append(out, t)
	}
	return out
}

// numberAt returns the number at the start of ts, and how many tokens it takes: words
// ("twenty-two"), powers, fractions, and factors ("3 × 10^8", "2 thousand", "25%").
func numberAt(ts []token) (token, int) {
	n, size := wordNumeral(ts)
	if ts[0].kind == number {
		n, size = ts[0].num, 1
	}
	for more := size; more > 0 && n.value != nil; size += more {
		n, more = extend(n, ts[size:])
	}
	return token{kind: number, text: n.text, raw: ts[0].raw, num: n}, size
}

// extend returns the number that n forms with the tokens that follow it, ts, and how many of
// these belong to it.
func extend(n numeral, ts []token) (numeral, int) {
	if len(ts) == 0 {
		return n, 0
	}
	operand := func(i int) *big.Rat {
		if i < len(ts) && ts[i].kind == number && (ts[i].num.text == "" || ts[i].num.text[0] != '+') {
			return ts[i].num.value
		}
		return nil
	}
	product := func(f *big.Rat) *big.Rat {
		if n.value.Num().BitLen()+n.value.Denom().BitLen() > maxProduct {
			return nil
		}
		return new(big.Rat).Mul(n.value, f)
	}
	switch t := ts[0]; {
	case t.text == "^" && operand(1) != nil && !strings.Contains(n.text, "^"):
		return numeral{text: n.text + "^" + ts[1].text, value: power(n.value, operand(1))}, 2
	case t.text == "/" && operand(1) != nil && operand(1).Sign() > 0 && !strings.Contains(n.text, "/"):
		return numeral{text: n.text + "/" + ts[1].text, value: product(new(big.Rat).Inv(operand(1)))}, 2
	case (t.text == "×" || t.text == "x" || t.text == "*") && !strings.Contains(n.text, "×") && operand(1) != nil && ts[1].text == "10" && len(ts) > 3 && ts[2].text == "^" && operand(3) != nil:
		if p := power(operand(1), operand(3)); p != nil {
			return numeral{text: n.text + "×10^" + ts[3].text, value: product(p)}, 4
		}
	case n.percent:
	case t.text == "%" || t.text == "percent":
		return numeral{text: n.text + "%", value: n.value, comma: n.comma, percent: true}, 1
	case t.text == "per" && len(ts) > 1 && ts[1].text == "cent":
		return numeral{text: n.text + "%", value: n.value, comma: n.comma, percent: true}, 2
	case factor.has(t.text):
		f, _ := new(big.Rat).SetString(factor.of(t.text))
		return numeral{text: n.text + " " + t.text, value: product(f)}, 1
	}
	return n, 0
}

// maxProduct bounds a multiplied number in bits.
const maxProduct = 1 << 14

// power returns b to the power of e, or nil if it is out of bounds.
func power(b, e *big.Rat) *big.Rat {
	if !e.IsInt() || !e.Num().IsInt64() || b.Sign() == 0 {
		return nil
	}
	n := e.Num().Int64()
	if n < -maxExponent || n > maxExponent || b.Num().BitLen()+b.Denom().BitLen() > 128 {
		return nil
	}
	size := big.NewInt(max(n, -n))
	r := new(big.Rat).SetFrac(new(big.Int).Exp(b.Num(), size, nil), new(big.Int).Exp(b.Denom(), size, nil))
	if n < 0 {
		r.Inv(r)
	}
	return r
}

// wordNumeral reads a number below a hundred in words, and "a thousand". It skips "one"
// before other words, which is usually a pronoun.
func wordNumeral(ts []token) (numeral, int) {
	if ts[0].kind != word {
		return numeral{}, 0
	}
	n, size := smallNumber(ts[0].text), 1
	scaled := len(ts) > 1 && factor.has(ts[1].text)
	switch {
	case ts[0].text == "a" && scaled && len(ts[1].text) > 4 && ts[1].text != "third" && ts[1].text != "quarter":
		n = 1
	case n < 0, n == 1 && !scaled && len(ts) > 1:
		return numeral{}, 0
	case n >= 20 && len(ts) > 1:
		next := 1
		if ts[1].text == "-" && len(ts) > 2 {
			next = 2
		}
		if unit := smallNumber(ts[next].text); 1 <= unit && unit <= 9 {
			n, size = n+unit, next+1
		}
	}
	return numeral{text: strconv.Itoa(n), value: big.NewRat(int64(n), 1)}, size
}

func smallNumber(w string) int {
	names := [...]string{
		"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
		"thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
		"twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
	}
	i := slices.Index(names[:], w)
	if i >= 20 {
		return 10 * (i - 18)
	}
	return i
}

// dateForms are the ways to write a date; what ends with "?" may be missing. For numbers, only
// the order year, month, day is unambiguous.
var dateForms = [...]string{
	"month .? day ordinal? ,? year", "day ordinal? .? of? month .? ,? year", "yyyy - mm - dd", "yyyy / mm / dd",
}

// dateAt returns the date at the start of ts, with the weekday before it, as year-month-day,
// and how many tokens it takes.
func dateAt(ts []token) (token, int) {
	_, start := datePattern(ts, "weekday ,? the?")
	for _, form := range dateForms {
		if found, size := datePattern(ts[start:], form); size > 0 {
			text := fmt.Sprintf("%d-%d-%d", found['y'], found['m'], found['d'])
			return token{kind: date, text: text, raw: text}, start + size
		}
	}
	return token{}, 0
}

// datePattern returns the parts of a date that a form names, by their first letters, and how
// many tokens they take.
func datePattern(ts []token, form string) (found map[byte]int, size int) {
	for part := range strings.FieldsSeq(form) {
		part, optional := strings.CutSuffix(part, "?")
		n := 0
		if size < len(ts) {
			n = datePart(ts[size], part)
		}
		switch {
		case n == 0 && !optional:
			return nil, 0
		case n == 0:
			continue
		case found == nil:
			found = map[byte]int{}
		}
		found[part[0]] = n
		size++
	}
	return found, size
}

// datePart returns the value of t as a part of a date, 1 for one without a value, and 0 if it
// is not that part.
func datePart(t token, part string) int {
	n := 0
	if t.kind == number {
		n, _ = strconv.Atoi(t.text) // 0 for a fraction
	}
	within := func(lo, hi int) bool { return lo <= n && n <= hi }
	fits := t.text == part
	switch part {
	case "weekday":
		fits = t.kind == word && strings.HasSuffix(t.text, "day") && len(t.text) >= 6
	case "month":
		n = monthOf(t.text)
		fits = t.kind == word && n > 0
	case "ordinal":
		fits = t.glued && slices.Contains([]string{"st", "nd", "rd", "th"}, t.text)
	case "day":
		fits = within(1, 31)
	case "year":
		fits = within(1000, 9999)
	case "yyyy":
		fits = within(1, 9999) && len(t.text) == 4
	case "mm":
		fits = within(1, 12) && len(t.text) == 2
	case "dd":
		fits = within(1, 31) && len(t.text) == 2
	}
	if !fits {
		return 0
	}
	return max(n, 1)
}

func monthOf(w string) int {
	months := [...]string{"january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"}
	for i, m := range months {
		if w == m || w == m[:3] || w == "sept" && i == 8 {
			return i + 1
		}
	}
	return 0
}
