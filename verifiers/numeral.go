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

// joinNumbers joins the tokens of each number that consists of several: words
// ("twenty-two"), powers, fractions, and factors ("3 × 10^8", "2 thousand", "25%").
func joinNumbers(ts []token) []token {
	out := ts[:0]
	for i := 0; i < len(ts); i++ {
		t := ts[i]
		if n, size := wordNumeral(ts[i:]); size > 0 {
			t, i = token{kind: number, text: n.text, raw: t.raw, glued: t.glued, num: n}, i+size-1
		}
		if t.kind == number {
			for t.num.value != nil {
				n, size := extend(t.num, ts[i+1:])
				if size == 0 {
					break
				}
				t.num, t.text, i = n, n.text, i+size
			}
		}
		out = append(out, t)
	}
	return out
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
	names := [...]string{"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
		"fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
		"twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"}
	i := slices.Index(names[:], w)
	if i >= 20 {
		return 10 * (i - 18)
	}
	return i
}

// joinDates joins the tokens of each date with day, month and year, and the weekday before
// it. For numbers, only the order year, month, day is unambiguous.
func joinDates(ts []token) []token {
	out := ts[:0]
	for i := 0; i < len(ts); i++ {
		if text, size := dateAt(ts[i:]); size > 0 {
			out = append(out, token{kind: date, text: text, raw: text, glued: ts[i].glued})
			i += size - 1
			continue
		}
		out = append(out, ts[i])
	}
	return out
}

// dateAt returns the date at the start of ts as year-month-day, and how many
// tokens it takes.
func dateAt(ts []token) (string, int) {
	i := 0
	skip := func(texts ...string) {
		for _, s := range texts {
			if i < len(ts) && ts[i].text == s {
				i++
			}
		}
	}
	read := func(lo, hi int) int {
		if i < len(ts) && ts[i].kind == number {
			if n, err := strconv.Atoi(ts[i].text); err == nil && lo <= n && n <= hi {
				i++
				return n
			}
		}
		return 0
	}
	month := func() int {
		if i < len(ts) && ts[i].kind == word {
			if m := monthOf(ts[i].text); m > 0 {
				i++
				skip(".")
				return m
			}
		}
		return 0
	}
	day := func() int {
		d := read(1, 31)
		if d > 0 && i < len(ts) && ts[i].glued {
			skip("st", "nd", "rd", "th")
		}
		return d
	}
	if ts[0].kind == word && strings.HasSuffix(ts[0].text, "day") && len(ts[0].text) >= 6 {
		i++
		skip(",", "the")
	}
	var y, m, d int
	if i < len(ts) && ts[i].kind == word {
		if m = month(); m > 0 {
			d = day()
			skip(",")
			y = read(1000, 9999)
		}
	} else if i < len(ts) && ts[i].kind == number {
		if y, m, d = numericDate(ts[i:]); y > 0 {
			return fmt.Sprintf("%d-%d-%d", y, m, d), i + 5
		} else if d = day(); d > 0 {
			skip(".", "of")
			m = month()
			skip(",")
			y = read(1000, 9999)
		}
	}
	if y == 0 || m == 0 || d == 0 {
		return "", 0
	}
	return fmt.Sprintf("%d-%d-%d", y, m, d), i
}

// numericDate reads 2016-02-07.
func numericDate(ts []token) (y, m, d int) {
	if len(ts) < 5 || ts[1].text != "-" && ts[1].text != "/" || ts[3].text != ts[1].text {
		return 0, 0, 0
	}
	part := func(t token, size int) int {
		if t.kind != number || len(t.text) != size {
			return 0
		}
		n, _ := strconv.Atoi(t.text)
		return n
	}
	y, m, d = part(ts[0], 4), part(ts[2], 2), part(ts[4], 2)
	if m == 0 || d == 0 || m > 12 || d > 31 {
		return 0, 0, 0
	}
	return y, m, d
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
