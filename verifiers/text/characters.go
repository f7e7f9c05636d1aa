package text

import (
	"cmp"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

var (
	superscripts = expression(`[⁻⁰¹²³⁴-⁹]+`)
	fractions    = expression(`([0-9])([¼-¾⅐-⅞]|\\[dt]?frac)`)
	accents      = expression(`(\p{Latin})\p{Mn}+`)
	struckOut    = expression(`~~[^~\n]+~~`)
	fullWidth    = strings.NewReplacer("，", ", ", "、", ", ", "；", "; ", "：", ": ", "。", ". ", "！", "! ", "？", "? ")
)

// clean returns s in NFKC, without invisible and private characters and struck-out words, and with one kind
// each of punctuation, digits and line breaks. "10²" does not become 102, nor "1½" or "1\frac12" 11/2.
func clean(s string) string {
	s = fractions().ReplaceAllString(superscripts().ReplaceAllString(fullWidth.Replace(s), "^$0"), "$1 $2")
	return struckOut().ReplaceAllString(unify(norm.NFKC.String(unify(s))), "")
}

// unaccented returns s decomposed, without the accents of Latin letters.
func unaccented(s string) string { return accents().ReplaceAllString(norm.NFD.String(s), "$1") }

// fold folds the case of a clean text.
func fold(s string) string { return unify(norm.NFKC.String(cases.Fold().String(s))) }

func unify(s string) string { return strings.Map(unifyRune, s) }

// unifyRune returns the rune that replaces r, or -1 if r is invisible or private.
func unifyRune(r rune) rune {
	switch {
	case ' ' <= r && r <= '~':
		return r
	case r == '\n', r == '\r', r == '\v', r == '\f', r == 0x85, r == 0x2028, r == 0x2029:
		return '\n'
	case unicode.IsSpace(r), unicode.IsControl(r), r == 0x2800: // the blank Braille pattern, a symbol
		return ' '
	case unicode.In(r, unicode.Cf, unicode.Co, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		return -1
	case unicode.Is(unicode.Pd, r), r == 0x2212:
		return '-'
	case strings.ContainsRune("“”„‟«»「」『』", r):
		return '"'
	case strings.ContainsRune("‘’‚‛′", r):
		return '\''
	case r == 0x2044, r == 0x2215:
		return '/'
	case unicode.IsDigit(r): // Unicode has decimal digits in runs of ten, from zero to nine
		n := rune(0)
		for unicode.IsDigit(r - n - 1) {
			n++
		}
		return '0' + n%10
	}
	return r
}

var (
	latexFraction = expression(`\\[dt]?frac *(?:\{([^{}]*)\}|(\d)) *(?:\{([^{}]*)\}|(\d))`)
	subscript     = expression(`([\p{L})])\}?(?:_\{?|<sub>)(\d+)(?:\}|</sub>)?`)
	root          = expression(`√ ?\(([\p{L}\p{N}]+)\)`)
	latexCommand  = expression(`\\(?:(?:text|math)[a-z]*|ce|left|right|displaystyle|boxed)\b`)
	latexSymbols  = strings.NewReplacer("$$", "", "{,}", ",", `\times`, "×", `\cdot`, "×", `\approx`, "≈", `\pm`, "±", `\neq`, "≠", `\ne `, "≠", `\geq`, "≥", `\leq`, "≤", `\sqrt`, "√", "sqrt(", "√(", `\neg`, "not ", `\%`, "%", `\$`, "$",
		`\pi`, "π", `^\circ`, "", `^{\circ}`, "", `\{`, "", `\}`, "", `\(`, "", `\)`, "", `\[`, "", `\]`, "", `\,`, " ", `\;`, " ", `\ `, " ", "{", "", "}", "")
	initials = expression(`\b\p{L}\.(?: ?\p{L}\.)+`)
	bullet   = expression(`^[ \t]*(?:[-*+•] +|#+ +)+`)
)

// plain returns a clean text in one line, without commands of LaTeX and the dots of initials.
func plain(s string) string {
	if strings.ContainsAny(s, `\{_$<(`) {
		s = subscript().ReplaceAllString(latexFraction().ReplaceAllString(s, "$1$2/$3$4"), "$1$2")
		s = root().ReplaceAllString(latexSymbols.Replace(latexCommand().ReplaceAllString(s, "")), "√$1")
	}
	s = initials().ReplaceAllStringFunc(s, strings.NewReplacer(".", "", " ", "").Replace)
	return strings.Join(strings.Fields(s), " ")
}

// bare returns a plain text without list marks, Markdown emphasis, quotes, outer brackets, emoji and
// closing punctuation.
func bare(s string) string {
	s = bullet().ReplaceAllString(s, "")
	for before := len(s) + 1; len(s) < before; {
		before = len(s)
		s = strings.TrimRightFunc(s, func(r rune) bool { return strings.ContainsRune(" \"'`*_~|.,;:!", r) || isEmoji(r) })
		s = strings.TrimLeftFunc(s, func(r rune) bool { return strings.ContainsRune(" \"'`*_~|,;:!=≈", r) || isEmoji(r) })
		if n := len(s); n > 1 && strings.Contains("() [] {} <> $$", s[:1]+s[n-1:]) {
			s = s[1 : n-1]
		}
	}
	return s
}

func isEmoji(r rune) bool {
	return 0x1F000 <= r && r <= 0x1FAFF || 0x2600 <= r && r <= 0x27BF && !strings.ContainsRune("✖✗✘❌", r)
}

var (
	tight   = expression(` ?([^\p{L}\p{M}\p{N}\s]) ?`)
	article = expression(`^(?:the|an?) `)
)

// forms returns a text in the forms that are compared one after another: as it is, without
// differences in case, and without what surrounds it, an article, and spaces beside symbols.
func forms(s string) [3]string {
	s = clean(s)
	line := strings.Join(strings.Fields(s), " ")
	last := article().ReplaceAllString(tight().ReplaceAllString(unaccented(bare(fold(plain(s)))), "$1"), "")
	return [3]string{line, fold(line), cmp.Or(last, fold(line))}
}
