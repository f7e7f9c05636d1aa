package text

import (
	"cmp"
	"html"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

var (
	superscripts = expression(`[⁻⁰¹²³⁴-⁹]+`)
	fractions    = expression(`([0-9])([¼-¾⅐-⅞]|\\[dt]?frac)`)
	accents      = expression(`(\p{Latin})\p{Mn}+`)
	fullWidth    = strings.NewReplacer("，", ", ", "、", ", ", "；", "; ", "：", ": ", "。", ". ", "！", "! ", "？", "? ")
)

// clean returns s in NFKC, without invisible and private characters, and with one kind each of punctuation, digits
// and line breaks. "10²" does not become 102, nor "1½" or "1\frac12" 11/2.
func clean(s string) string {
	s = html.UnescapeString(s) // before private characters are removed
	s = fractions().ReplaceAllString(superscripts().ReplaceAllString(fullWidth.Replace(s), "^$0"), "$1 $2")
	return unify(norm.NFKC.String(unify(s)))
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

// A markup is what HTML, LaTeX, Markdown and templates of chats put around words, and what is left of it.
type markup struct {
	of   func() *regexp.Regexp
	left string
}

var (
	symbols = strings.NewReplacer(`\times`, "×", `\cdot`, "×", `\approx`, "≈", `\pm`, "±", `\neq`, "≠", `\ne `, "≠", `\geq`, "≥", `\leq`, "≤", `\sqrt`, "√", "sqrt(", "√(", `\neg`, "not ",
		`\pi`, "π", `^\circ`, "", `^{\circ}`, "", " & ", " and ")
	markups = []markup{
		{expression("~~[^~\n]+~~|(?i:<(?:s|del|strike)(?: [^<>]*)?>[^<>]*</(?:s|del|strike)>)|<!--(?s:.*?)-->|(?mi:^[# ]*step \\d+ ?[:.)])|\\\\(?:x?cancel|sout)\\{[^{}]*\\}|<\\|[^<>|\n]*\\|>|\\\\(?:begin|end)\\{[^{}]*\\}|(?m:^[ \t]*(?:```.*|[-=|:*_ ]{3,})$)|`"), ""}, // struck out, a comment, the number of a step, a token, a fence, a rule
		{expression(`(^|[^\p{Latin}\p{N}*])\*{1,3}([^\s*](?:[^*\n]*[^\s*])?)\*{1,3}`), "$1$2"},
		{expression(`\[([^\[\]\n]+)\]\(https?://[^\s()]*\)`), "$1"},
		{expression(`<sup>([^<>]*)</sup>`), "^$1"},
		{expression(`>([^<>]*)</(?:p|li|div|tr|h[1-6])>|(\S)<br ?/?>`), ">$1$2\n"},
		{expression(`<[a-z][a-z0-9]*(?: [^<>]*)?>([^<>]*)</[a-z0-9]+>`), "$1"},
		{expression(`\\[dt]?frac *(?:\{([^{}]*)\}|(\d)) *(?:\{([^{}]*)\}|(\d))`), "$1$2/$3$4"},
		{expression(`\\(?:[\\,;:!\s]|(?:left|right|displaystyle|q?quad)\b)`), " "},
		{expression(`\} *\{`), ", "}, // between two arguments
		{expression(`\\[A-Za-z]+\*? ?\{|\\?[{}]|\\[()\[\]]|\$\$`), ""},
		{expression(`\\([A-Za-z]{2,}|[^\p{L}\p{N}\s])`), "$1"},
		{expression(`([\p{L})])_(\d)`), "$1$2"},
		{expression(`\^(\d?[+-])($|[^\p{L}\p{N}])`), "$1$2"}, // a charge
		{expression(`(\d) ?[×*·⋅] ?([a-z]\b)`), "$1$2"},
		{expression(`√ ?\(([\p{L}\p{N}]+)\)`), "√$1"},
		{expression(`[ \t]+`), " "},
		{expression(`(?i)\b(\d\d?)(?:st|nd|rd|th|\.)(?: of)?( ` + month + `\b)|\b(` + month + ` \d\d?)(?:st|nd|rd|th)\b`), "$1$2$3"}, // an ordinal
	}
	factorial = expression(`\d!$`)
	initials  = expression(`\b\p{L}\.(?: ?\p{L}\.)+`)
)

// plain returns a clean text without markup and the dots of initials.
func plain(s string) string {
	for range 2 { // one may be within another
		s = symbols.Replace(s)
		for _, m := range markups {
			s = m.of().ReplaceAllString(s, m.left)
		}
	}
	return initials().ReplaceAllStringFunc(s, strings.NewReplacer(".", "", " ", "").Replace)
}

// bare returns a plain text without quotes, outer brackets, emoji and punctuation around it.
func bare(s string) string {
	for before := len(s) + 1; len(s) < before; {
		before = len(s)
		if s = strings.TrimRightFunc(s, func(r rune) bool { return strings.ContainsRune(" \"'*_~|.,;:", r) || isEmoji(r) }); !factorial().MatchString(s) {
			s = strings.TrimRight(s, "!")
		}
		s = strings.TrimLeftFunc(s, func(r rune) bool { return strings.ContainsRune(" \"'*_~|,;:!=≈>#", r) || isEmoji(r) })
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

// forms returns a plain text in the forms that are compared one after another: as it is, and without differences in
// case, what surrounds it, an article, and spaces beside symbols.
func forms(s string) [2]string {
	line := strings.Join(strings.Fields(s), " ")
	last := article().ReplaceAllString(tight().ReplaceAllString(unaccented(bare(fold(line))), "$1"), "")
	return [2]string{line, cmp.Or(last, fold(line))}
}
