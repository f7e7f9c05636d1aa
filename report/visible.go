package report

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible returns a hostile text as one line of at most most characters, and "…" if it
// was longer. Control characters, and characters that are invisible or change the
// direction of text, are written as escapes.
func Visible(s string, most int) string {
	var b strings.Builder
	n := 0
	for i, r := range s {
		if n == most {
			b.WriteString("…")
			break
		}
		n++
		size := utf8.RuneLen(r)
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case Hidden(r) && size == 1:
			fmt.Fprintf(&b, `\x%02x`, r)
		case Hidden(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Hidden reports whether a character is a control character, is invisible or changes the
// direction of text. Spaces other than U+0020 are hidden, combining marks are not.
func Hidden(r rune) bool {
	return r != ' ' && (!unicode.IsPrint(r) || unicode.Is(unicode.Variation_Selector, r) ||
		unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r))
}

// count returns a number with the noun that it counts, in the singular or plural.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
