package text

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A sentence is a plain text with its words and numbers.
type sentence struct {
	text  string
	words []token
}

// A token is a word or a number. In scripts without spaces each character is a word.
type token struct {
	text      string // folded
	from, to  int    // in the sentence
	isNumber  bool
	value     *big.Rat // nil for words, and for numbers that are malformed or out of bounds
	isPercent bool     // which does not change its value
}

const (
	spaceless = `\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}` // scripts without spaces
	letter    = `(?:[^\P{L}` + spaceless + `]|[\p{M}\p{N}])`
)

var (
	powerOfTen = expression(`(\d) ?[×x*] ?10 ?\^ ?([-+]?\d+)\b`)
	onlyPower  = expression(`\b10 ?\^ ?([-+]?\d+)\b`)
	percent    = expression(`(?i)^ ?(?:%|per ?cent)`)
	spaced     = expression(`\b\d{1,3}(?: \d{3})+\b`)
	// tokenForm is an ordinal; all that can be one number, which is read by value, and what multiplies
	// it; or a word: "isn't", "well-known", "c++", "h2o".
	tokenForm = expression(`(?i)\d+(?:st|nd|rd|th)\b|((?:[√±<>≤≥≠] ?)?(?:[-+]?[$€£¥]?|[$€£¥][-+])(?:\d{1,6} \d{1,6}/|\.?)\d(?:[\d.,'/^]*\d)?(?:e[-+]?\d+)?)(?: ?(percent|per cent|dozen|hundred|k|thousand|mn|million|bn|billion|trillion)\b)?|` +
		`[` + spaceless + `]\p{M}*|` + letter + `+(?:['-]` + letter + `+)*[+#]*`)
)

// wordsOf returns the words of any text.
func wordsOf(s string) []token { return tokenize(plain(clean(s))).words }

// tokenize reads the words of a plain text.
func tokenize(s string) sentence {
	s = onlyPower().ReplaceAllString(powerOfTen().ReplaceAllString(s, "${1}e$2"), "1e$1")
	s = spaced().ReplaceAllStringFunc(s, func(p string) string { return strings.ReplaceAll(p, " ", "") })
	var all []token
	for _, m := range tokenForm().FindAllStringSubmatchIndex(s, -1) {
		t := token{from: m[0], to: m[1], isNumber: m[2] >= 0}
		if before, _ := utf8.DecodeLastRuneInString(s[:t.from]); t.isNumber && strings.ContainsAny(s[t.from:t.from+1], "+-") && (isWordRune(before) || before == ')') {
			t.from++ // 10-12
		}
		t.text = fold(s[t.from:t.to])
		if t.isNumber {
			t.value = valueOf(fold(s[t.from:m[3]]))
			t.isPercent = percent().MatchString(s[m[3]:])
		}
		if t.value != nil && m[4] >= 0 {
			t.value.Mul(t.value, big.NewRat(factors[fold(s[m[4]:m[5]])], 1))
		}
		all = append(all, t)
	}
	return sentence{s, all}
}

var factors = map[string]int64{"percent": 1, "per cent": 1, "dozen": 12, "hundred": 1e2, "k": 1e3, "thousand": 1e3, "mn": 1e6, "million": 1e6, "bn": 1e9, "billion": 1e9, "trillion": 1e12}

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsNumber(r) }

// maxNumeral bounds the digits and the exponent of the numbers that are compared.
const maxNumeral = 400

var (
	decimal  = expression(`^(-?)(\d{1,3}(?:,\d{3})+|\d{1,3}(?:'\d{3})+|\d*)(\.\d+)?(?:e([-+]?\d+))?$`)
	comma    = expression(`^-?\d+,(?:\d{1,2}|\d{4,})$`)
	fraction = expression(`^-?\d+/\d+$`)
	currency = strings.NewReplacer("$", "", "€", "", "£", "", "¥", "")
)

// valueOf returns the value of a number; nil if it is malformed or out of bounds.
func valueOf(s string) *big.Rat {
	s = strings.TrimPrefix(currency.Replace(s), "+")
	if whole, part, ok := strings.Cut(s, " "); ok { // 2 1/2
		v, w := valueOf(whole), valueOf(part)
		if v == nil || w == nil {
			return nil
		}
		if strings.HasPrefix(whole, "-") {
			w.Neg(w)
		}
		return v.Add(v, w)
	}
	switch m := decimal().FindStringSubmatch(s); {
	case len(s) >= maxNumeral:
		return nil
	case m != nil:
		if e, err := strconv.Atoi(m[4]); m[4] != "" && (err != nil || e < -maxNumeral || e > maxNumeral) {
			return nil
		}
		s = strings.NewReplacer(",", "", "'", "").Replace(s)
	case comma().MatchString(s):
		s = strings.Replace(s, ",", ".", 1)
	case !fraction().MatchString(s):
		return nil
	}
	if v, ok := new(big.Rat).SetString(s); ok {
		return v
	}
	return nil
}

// same reports whether two tokens are the same word, or numbers that differ by at most tolerance;
// nil is zero. 25% is 25 and also 0.25.
func same(a, b token, tolerance *big.Rat) bool {
	if !a.isNumber || !b.isNumber || a.value == nil || b.value == nil {
		return a.text == b.text && a.isNumber == b.isNumber
	}
	within := func(v, w *big.Rat) bool {
		d := new(big.Rat).Sub(v, w)
		return d.Sign() == 0 || tolerance != nil && d.Abs(d).Cmp(tolerance) <= 0
	}
	hundredth := func(v *big.Rat) *big.Rat { return new(big.Rat).Mul(v, big.NewRat(1, 100)) }
	return within(a.value, b.value) || a.isPercent && !b.isPercent && within(hundredth(a.value), b.value) || b.isPercent && !a.isPercent && within(a.value, hundredth(b.value))
}

// particle is what English and Korean add to the last word of a phrase.
var particle = expression(`^(?:'s|은|는|이|가|을|를|의|에|에서|로|으로|입니다|이에요|예요|이다|이라고|라고)$`)

// find returns the indices at which needle begins in hay. An empty needle is never found.
func find(hay, needle []token, tolerance *big.Rat) (at []int) {
	for i := 0; len(needle) > 0 && i+len(needle) <= len(hay); i++ {
		n := 0
		for n < len(needle) && same(hay[i+n], needle[n], tolerance) {
			n++
		}
		if n == len(needle)-1 {
			if end, ok := strings.CutPrefix(hay[i+n].text, needle[n].text); ok && particle().MatchString(end) {
				n++
			}
		}
		if n == len(needle) {
			at = append(at, i)
		}
	}
	return at
}
