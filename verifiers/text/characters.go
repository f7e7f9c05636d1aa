package text

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

var (
	superscripts = expression(`[⁰¹²³⁴-⁹]+`)
	fractions    = expression(`([0-9])([¼-¾⅐-⅞])`)
	struckOut    = expression(`~~[^~\n]+~~`)
)

// clean returns s in NFKC, without invisible characters and struck-out words, with one kind of
// quote, dash, decimal digit and space, and "\n" for each line break. It keeps apart what NFKC
// would join into another number: "10²" is not 102, and "1½" not 11/2.
func clean(s string) string {
	s = fractions().ReplaceAllString(superscripts().ReplaceAllString(s, "^$0"), "$1 $2")
	return struckOut().ReplaceAllString(unify(norm.NFKC.String(unify(s))), "")
}

// fold is like clean, and folds the case.
func fold(s string) string { return unify(norm.NFKC.String(cases.Fold().String(clean(s)))) }

func unify(s string) string { return strings.Map(unifyRune, s) }

// unifyRune returns the rune that replaces r, or -1 if r is invisible.
func unifyRune(r rune) rune {
	switch {
	case ' ' <= r && r <= '~':
		return r
	case r == '\n', r == '\r', r == '\v', r == '\f', r == 0x85, r == 0x2028, r == 0x2029:
		return '\n'
	case unicode.IsSpace(r), r == 0x2800: // the blank Braille pattern, a symbol
		return ' '
	case unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		return -1
	case unicode.IsControl(r):
		return ' '
	case unicode.Is(unicode.Pd, r), r == 0x2212:
		return '-'
	case strings.ContainsRune("“”„‟«»「」『』", r):
		return '"'
	case strings.ContainsRune("‘’‚‛′", r):
		return '\''
	case r == '、':
		return ','
	case r == 0x2044, r == 0x2215:
		return '/'
	case r > unicode.MaxASCII && unicode.IsDigit(r):
		return asciiDigit(r)
	}
	return r
}

// asciiDigit relies on Unicode's encoding of decimal digits as runs of ten, zero to nine.
func asciiDigit(r rune) rune {
	n := rune(0)
	for unicode.IsDigit(r - n - 1) {
		n++
	}
	return '0' + n%10
}

var (
	latexFraction = expression(`\\[dt]?frac(?:\{([^{}]*)\}\{([^{}]*)\}|(\d)(\d))`)
	subscript     = expression(`([\p{L})])_\{?(\d+)\}?`)
	latexCommand  = expression(`\\(?:text|textbf|mathrm|mathbf|ce|left|right|displaystyle|boxed)\b`)
	latexSymbols  = strings.NewReplacer("{,}", ",", `\times`, "×", `\cdot`, "×", `\approx`, "≈", `\pm`, "±", `\neq`, "≠", `\ne `, "≠", `\geq`, "≥", `\leq`, "≤", `\sqrt`, "√", `\%`, "%", `\$`, "$",
		`\(`, "", `\)`, "", `\[`, "", `\]`, "", `\,`, " ", `\ `, " ", "{", "", "}", "")
	bullet = expression(`^[ \t]*(?:[-*+•] +|#+ +)+`)
)

// withoutLaTeX writes commands of LaTeX as plain text.
func withoutLaTeX(s string) string {
	if !strings.ContainsAny(s, `\{_`) {
		return s
	}
	s = subscript().ReplaceAllString(latexFraction().ReplaceAllString(s, "$1$3/$2$4"), "$1$2")
	return latexSymbols.Replace(latexCommand().ReplaceAllString(s, ""))
}

// oneLine returns s with each run of white space replaced by one space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// bare returns one line without list marks, Markdown emphasis, quotes, outer brackets, emoji and
// closing punctuation.
func bare(s string) string {
	t := oneLine(withoutLaTeX(s))
	t = bullet().ReplaceAllString(t, "")
	for before := len(t) + 1; len(t) < before; {
		before = len(t)
		t = strings.TrimRightFunc(t, func(r rune) bool { return strings.ContainsRune(" \"'`*_~|.,;:!。", r) || isEmoji(r) })
		t = strings.TrimLeftFunc(t, func(r rune) bool { return strings.ContainsRune(" \"'`*_~|,;:!=≈", r) || isEmoji(r) })
		if n := len(t); n > 1 && strings.Contains("() [] {} <> $$", t[:1]+t[n-1:]) {
			t = t[1 : n-1]
		}
	}
	return t
}

func isEmoji(r rune) bool { return 0x1F000 <= r && r <= 0x1FAFF || 0x2600 <= r && r <= 0x27BF }
