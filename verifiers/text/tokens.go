package text

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// A sentence is a folded text without LaTeX, with its words and numbers.
type sentence struct {
	text  string
	words []token
}

// A token is a word or a number. In scripts without spaces each character is a word.
type token struct {
	text     string
	from, to int // in the sentence
	number   bool
	// times is what a word such as "thousand" or a percent sign after a number does to its value;
	// nil for nothing.
	times *big.Rat
}

const (
	spaceless = `\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}` // scripts without spaces
	letter    = `(?:[^\P{L}` + spaceless + `]|[\p{M}\p{N}])`
)

var (
	powerOfTen = regexp.MustCompile(`(\d) ?[×x*] ?10 ?\^ ?([-+]?\d+)\b`)
	onlyPower  = regexp.MustCompile(`\b10 ?\^ ?([-+]?\d+)\b`)
	spaced     = regexp.MustCompile(`\b\d{1,3}(?: \d{3})+\b`)
	minus      = regexp.MustCompile(`\b(?:minus|negative) (\d)`)
	// numeral is all that can be one number; it is read by value.
	numeral = regexp.MustCompile(`^(?:[√±<>≤≥≠] ?)?(?:[-+]?[$€£¥]?|[$€£¥][-+])(?:\d{1,6} \d{1,6}/|\.?)\d(?:[\d.,'/^]*\d)?(?:e[-+]?\d+)?`)
	ordinal = regexp.MustCompile(`^\d+(?:st|nd|rd|th)\b`)
	// wordForm is a word: "isn't", "well-known", "c++", "c#", "h2o", "2nd".
	wordForm = regexp.MustCompile(`^(?:[` + spaceless + `]\p{M}*|` + letter + `+(?:['-]` + letter + `+)*[+#]*)`)
)

// tokenize reads the words of a text.
func tokenize(s string) sentence {
	s = withoutLaTeX(fold(s))
	s = onlyPower.ReplaceAllString(powerOfTen.ReplaceAllString(s, "${1}e$2"), "1e$1")
	s = strings.ReplaceAll(s, "per cent", "percent")
	s = spaced.ReplaceAllStringFunc(s, func(p string) string { return strings.ReplaceAll(p, " ", "") })
	s = minus.ReplaceAllString(s, "-$1")
	var all []token
	before := ' ' // the rune before
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		isNumber, found := true, numeral.FindString(s[i:min(len(s), i+maxNumeral)])
		if found == "" || ordinal.MatchString(s[i:]) || strings.ContainsRune("+-", r) && (isWordRune(before) || before == ')') {
			isNumber, found = false, wordForm.FindString(s[i:])
		}
		end := i + max(len(found), size)
		last := len(all) - 1
		switch factor := factors()[s[i:end]]; {
		case factor != nil && last >= 0 && all[last].number && strings.TrimSpace(s[all[last].to:i]) == "":
			all[last].times, all[last].to = factor, end
		case found != "":
			all = append(all, token{text: found, from: i, to: end, number: isNumber})
		}
		before, _ = utf8.DecodeLastRuneInString(s[:end])
		i = end
	}
	return sentence{s, all}
}

// factors are the words and signs after a number that change its value.
var factors = sync.OnceValue(func() map[string]*big.Rat {
	return map[string]*big.Rat{
		"%": big.NewRat(1, 100), "percent": big.NewRat(1, 100), "hundred": big.NewRat(1e2, 1), "k": big.NewRat(1e3, 1), "thousand": big.NewRat(1e3, 1),
		"mn": big.NewRat(1e6, 1), "million": big.NewRat(1e6, 1), "bn": big.NewRat(1e9, 1), "billion": big.NewRat(1e9, 1), "trillion": big.NewRat(1e12, 1), "dozen": big.NewRat(12, 1),
	}
})

func (t token) percent() bool { return t.times != nil && !t.times.IsInt() }

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsNumber(r) }

// Bounds of the numbers that are compared.
const (
	maxNumeral  = 400
	maxExponent = 400
)

var (
	decimal  = regexp.MustCompile(`^(-?)(\d{1,3}(?:,\d{3})+|\d{1,3}(?:'\d{3})+|\d*)(\.\d+)?(?:e([-+]?\d+))?$`)
	comma    = regexp.MustCompile(`^-?\d+,(?:\d{1,2}|\d{4,})$`)
	fraction = regexp.MustCompile(`^-?\d+/\d+$`)
)

// value returns the value of a number, without a percent sign; nil if it is malformed or out of bounds.
func (t token) value() *big.Rat {
	s := strings.TrimPrefix(strings.NewReplacer("$", "", "€", "", "£", "", "¥", "").Replace(t.text), "+")
	whole, s, isMixed := strings.Cut(s, " ") // 2 1/2
	if !isMixed {
		whole, s = "0", whole
	} else if strings.HasPrefix(whole, "-") {
		s = "-" + s
	}
	switch m := decimal.FindStringSubmatch(s); {
	case m != nil:
		if e, err := strconv.Atoi(m[4]); m[4] != "" && (err != nil || e < -maxExponent || e > maxExponent) {
			return nil
		}
		s = strings.NewReplacer(",", "", "'", "").Replace(s)
	case comma.MatchString(s):
		s = strings.Replace(s, ",", ".", 1)
	case !fraction.MatchString(s):
		return nil
	}
	v, ok := new(big.Rat).SetString(s)
	w, okWhole := new(big.Rat).SetString(whole)
	if !ok || !okWhole || len(s) >= maxNumeral {
		return nil
	}
	if v.Add(v, w); t.times != nil && !t.percent() {
		v.Mul(v, t.times)
	}
	return v
}

// near reports whether two numbers differ by at most tolerance. 25% is 25 and also 0.25.
func near(a, b token, tolerance *big.Rat) bool {
	if a.text == b.text && a.times == nil && b.times == nil {
		return true
	}
	v, w := a.value(), b.value()
	if v == nil || w == nil {
		return false
	}
	within := func(v, w *big.Rat) bool {
		d := new(big.Rat).Sub(v, w)
		return d.Abs(d).Cmp(tolerance) <= 0
	}
	hundredth := big.NewRat(1, 100)
	return within(v, w) || a.percent() && !b.percent() && within(v.Mul(v, hundredth), w) || b.percent() && !a.percent() && within(v, w.Mul(w, hundredth))
}

func same(a, b token) bool {
	return a.text == b.text && a.times == nil && b.times == nil || a.number && b.number && near(a, b, new(big.Rat))
}

// particle is what Korean adds to the last word of a phrase.
var particle = regexp.MustCompile(`^(?:은|는|이|가|을|를|의|에|에서|로|으로|입니다|이에요|예요|이다)$`)

func particled(word, root string) bool {
	end, ok := strings.CutPrefix(word, root)
	return ok && particle.MatchString(end)
}

// find returns the indices at which needle begins in hay. An empty needle is never found.
func find(hay, needle []token) (at []int) {
	for i := 0; len(needle) > 0 && i+len(needle) <= len(hay); i++ {
		n := 0
		for n < len(needle) && same(hay[i+n], needle[n]) {
			n++
		}
		if n == len(needle) || n == len(needle)-1 && particled(hay[i+n].text, needle[n].text) {
			at = append(at, i)
		}
	}
	return at
}
