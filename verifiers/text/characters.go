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
	return strings.Map(unify, norm.NFKC.String(s))
}

// unaccented returns s decomposed, without the accents of Latin letters.
func unaccented(s string) string { return accents().ReplaceAllString(norm.NFD.String(s), "$1") }

// fold folds the case of a clean text.
func fold(s string) string { return cases.Fold().String(s) }

// unify returns the rune that replaces r, or -1 if r is invisible or private.
func unify(r rune) rune {
	switch {
	case strings.ContainsRune("\n\r\v\f\u0085\u2028\u2029", r):
		return '\n'
	case unicode.IsSpace(r), unicode.IsControl(r):
		return ' '
	case unicode.In(r, unicode.Cf, unicode.Co, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		return -1
	case unicode.Is(unicode.Pd, r), r == '−':
		return '-'
	case strings.ContainsRune("“”„‟«»「」『』", r):
		return '"'
	case strings.ContainsRune("‘’‚‛′", r):
		return '\''
	case strings.ContainsRune("⁄∕", r):
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
		{expression("~~[^~\n]+~~|(?i:<(?:s|del|strike)(?: [^<>]*)?>[^<>]*</(?:s|del|strike)>)|\\\\(?:x?cancel|sout)\\{[^{}]*\\}"), ""}, // what is struck out
		{expression(`<!--(?s:.*?)-->|<\|[^<>|\n]*\|>|\\(?:begin|end)\{[^{}]*\}`), ""},                                                  // comments, tokens of a template
		{expression("(?m:^[ \t]*(?:```.*|[-=|:*_ ]{3,})$)|`"), ""},                                                                     // fences, rules and rows under a table's head
		{expression(`(^|[^\p{Latin}\p{N}*])\*{1,3}([^\s*](?:[^*\n]*[^\s*])?)\*{1,3}`), "$1$2"},                                         // emphasis
		{expression(`(?mi:^[# ]*step \d+ ?[:.)])`), ""},                                                                                // the number of a step
		{expression(`\[([^\[\]\n]+)\]\(https?://[^\s()]*\)`), "$1"},                                                                    // a link
		{expression(`<sup>([^<>]*)</sup>`), "^$1"},
		{expression(`>([^<>]*)</(?:p|li|div|tr|h[1-6])>|(\S)<br ?/?>`), ">$1$2\n"},
		{expression(`<[a-z][a-z0-9]*(?: [^<>]*)?>([^<>]*)</[a-z0-9]+>`), "$1"},
		{expression(`\\[dt]?frac *(?:\{([^{}]*)\}|(\d)) *(?:\{([^{}]*)\}|(\d))`), "$1$2/$3$4"},
		{expression(`\\(?:[\\,;:!\s]|(?:left|right|displaystyle|q?quad)\b)`), " "},
		{expression(`\} *\{`), ", "},                                   // between two arguments
		{expression(`\\[A-Za-z]+\*? ?\{|\\?[{}]|\\[()\[\]]|\$\$`), ""}, // commands, and where formulas begin and end
		{expression(`\\([A-Za-z]{2,}|[^\p{L}\p{N}\s])`), "$1"},         // names, and escapes
		{expression(`([\p{L})])_(\d)`), "$1$2"},
		{expression(`\^(\d?[+-])($|[^\p{L}\p{N}])`), "$1$2"}, // a charge
		{expression(`(\d) ?[×*·⋅] ?([a-z]\b)`), "$1$2"},
		{expression(`√ ?\(([\p{L}\p{N}]+)\)`), "√$1"},
		{expression(`[ \t]+`), " "},
		{expression(`(?i)\b(\d\d?)(?:st|nd|rd|th|\.)(?: of)?( ` + month + `\b)|\b(` + month + ` \d\d?)(?:st|nd|rd|th)\b`), "$1$2$3"}, // an ordinal
	}
	initials = expression(`\b\p{L}\.(?: ?\p{L}\.)+`)
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

// bare returns a plain text without quotes, brackets, emoji and punctuation around it.
func bare(s string) string {
	for range 4 { // one may be within another
		s = around().ReplaceAllString(s, "$1$2$3$4$5$6")
	}
	return s
}

var (
	emoji = `\x{2600}-\x{2715}\x{2719}-\x{274B}\x{274D}-\x{27BF}\x{1F000}-\x{1FAFF}` // but for crosses
	// around matches "!" only where it is no factorial.
	around  = expression(`^[ "'*_~|,;:!=≈>#` + emoji + `]+|[ "'*_~|.,;:` + emoji + `]+$|(^|\D)!+$|^\((.*)\)$|^\[(.*)\]$|^\{(.*)\}$|^<(.*)>$|^\$(.*)\$$`)
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
