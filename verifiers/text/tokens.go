package text

import (
	"cmp"
	"math/big"
	"slices"
	"strings"
)

// A sentence is a plain text with its words and numbers.
type sentence struct {
	text  string
	words []token
}

// A token is a word or a number. In scripts without spaces each character is a word, but for katakana.
type token struct {
	text      string // folded, without a particle at its end
	from, to  int    // in the sentence
	isNumber  bool
	value     *big.Rat // nil for words, and for numbers that are malformed or out of bounds
	isPercent bool     // which does not change its value
}

const (
	spaceless = `\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}` // scripts without spaces
	letter    = `(?:[^\P{L}\p{Hangul}` + spaceless + `]|[\p{M}\p{N}])`
)

var (
	powerOfTen = expression(`(\d) ?[×x*·⋅] ?10 ?(?:\^|\*\*) ?([-+]?\d+)\b`)
	onlyPower  = expression(`\b10 ?\^ ?([-+]?\d+)\b`)
	dayFirst   = expression(`(?i)\b(\d\d?) (` + month + `),? (\d{4})\b`)
	spaced     = expression(`\b\d{1,3}(?: \d{3})+\b`)
	// particle is what English, French, Italian and Korean add to a word.
	particle = expression(`(?i)^(?:[cdjlmnst]|qu|un|\p{L}{1,3}ll)'|([\p{L}\p{M}\p{N}])(?:'s|은|는|이|가|을|를|의|에|에서|로|으로|입니다|이에요|예요|이다|이라고|라고)$`)
	// tokenForm is an ordinal; all that can be one number, which is read by value, and what multiplies
	// it; or a word: "isn't", "well-known", "c++", "h2o", "cm^2".
	tokenForm = expression(`(?i)\d+(?:st|nd|rd|th)\b|((?:-?[√±<>≤≥≠][ (]{0,2})?[-+]?[$€£¥]?(?:\d{1,6} \d{1,6}/|\.?)\d(?:[\d.,'/^]*\d)?(?:e[-+]?\d+)?(?: ?‰)?)(?: ?(%|(?:per ?cent|dozen|hundred|k|thousand|mn|million|bn|billion|trillion)\b))?|` +
		`[\p{Katakana}ー]+|[` + spaceless + `]\p{M}*|\p{Hangul}+|` + letter + `*[^\P{L}x-z]\^-?\d+\b|` + letter + `+(?:['-]` + letter + `+)*(?:\+\+|#|\+\B)?`)
)

func wordsOf(s string) []token { return tokenize(plain(clean(s))).words }

// tokenize reads the words of a plain text.
func tokenize(s string) sentence {
	s = onlyPower().ReplaceAllString(powerOfTen().ReplaceAllString(s, "${1}e$2"), "1e$1")
	s = dayFirst().ReplaceAllString(s, "$2 $1, $3")
	s = spaced().ReplaceAllStringFunc(s, func(p string) string { return strings.ReplaceAll(p, " ", "") })
	var all []token
	for _, m := range tokenForm().FindAllStringSubmatchIndex(s, -1) {
		t := token{text: unaccented(particle().ReplaceAllString(fold(s[m[0]:m[1]]), "$1")), from: m[0], to: m[1], isNumber: m[2] >= 0}
		if t.isNumber {
			t.value = valueOf(fold(s[m[2]:m[3]]))
			if t.value != nil && m[4] >= 0 {
				factor := factors[fold(s[m[4]:m[5]])]
				t.isPercent = factor == 1
				t.value.Mul(t.value, big.NewRat(factor, 1))
			}
		}
		all = append(all, t)
	}
	return sentence{s, all}
}

var factors = map[string]int64{"%": 1, "percent": 1, "per cent": 1, "dozen": 12, "hundred": 1e2, "k": 1e3, "thousand": 1e3, "mn": 1e6, "million": 1e6, "bn": 1e9, "billion": 1e9, "trillion": 1e12}

// maxNumeral bounds the digits of the numbers that are compared.
const maxNumeral = 400

var (
	decimal  = expression(`^-?(?:(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?:'\d{3})+|\d*)(?:\.\d+)?(?:e[-+]?\d{1,3})?|\d+/\d+)$`)
	comma    = expression(`^-?\d+,(?:\d{1,2}|\d{4,})$`) // a decimal one
	currency = strings.NewReplacer("$", "", "€", "", "£", "", "¥", "", "+", "")
	grouping = strings.NewReplacer(",", "", "'", "")
)

// valueOf returns the value of a number; nil if it is malformed or out of bounds.
func valueOf(s string) *big.Rat {
	s = currency.Replace(s)
	if whole, part, ok := strings.Cut(s, " "); ok { // 2 1/2
		v, w := valueOf(whole), valueOf(part)
		if v == nil || w == nil || v.Sign() < 0 {
			return nil
		}
		return v.Add(v, w)
	}
	switch {
	case len(s) >= maxNumeral:
		return nil
	case comma().MatchString(s):
		s = strings.Replace(s, ",", ".", 1)
	case !decimal().MatchString(s):
		return nil
	}
	v, _ := new(big.Rat).SetString(grouping.Replace(s))
	return v
}

// has reports whether one of the words is the same as w.
func has(words []token, w token) bool {
	return slices.ContainsFunc(words, func(t token) bool { return same(t, w, nil) })
}

// same reports whether two tokens are the same word, or numbers that differ by at most tolerance;
// nil is zero. 25% is 25 and also 0.25.
func same(a, b token, tolerance *big.Rat) bool {
	if a.value == nil || b.value == nil {
		return a.text == b.text
	}
	if b.isPercent {
		a, b = b, a
	}
	return within(a.value, b.value, tolerance) ||
		a.isPercent && !b.isPercent && within(new(big.Rat).Quo(a.value, big.NewRat(100, 1)), b.value, tolerance)
}

func within(v, w, tolerance *big.Rat) bool {
	d := new(big.Rat).Sub(v, w)
	return d.Abs(d).Cmp(cmp.Or(tolerance, new(big.Rat))) <= 0
}
