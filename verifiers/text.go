package verifiers

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Reasons of the in-process verifiers.
const (
	reasonWrong    = "wrong_answer"
	reasonSeveral  = "several_answers"
	reasonNone     = "no_answer"
	reasonRejected = "rejected_answer"
)

// matched returns a pass and names the rule that applied, which reveals no answer.
func matched(rule string) Verdict {
	v := passed()
	v.Assurance = Sealed
	v.Metadata = map[string]any{"matched": rule}
	return v
}

// fold returns s in the form for comparisons: NFKC, full case folding, nothing invisible,
// one kind of quote, dash and digit, line breaks as "\n". It takes linear time.
func fold(s string) string {
	folded := cases.Fold().String(norm.NFKC.String(unify(s)))
	return unify(norm.NFKC.String(folded))
}

// plain is like fold but keeps the case.
func plain(s string) string { return unify(norm.NFKC.String(unify(s))) }

// unify drops invisible characters and replaces variants of quotes, dashes, digits and
// spaces. It separates what NFKC would join into another number: "10²" is not 102.
func unify(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	last := noNumber
	for _, r := range s {
		if r = unifyRune(r); r < 0 {
			continue
		}
		class := classify(r)
		switch {
		case class == superscript && last != superscript && b.Len() > 0:
			b.WriteByte('^')
		case class != noNumber && last != noNumber && (class != last || class == otherNumber):
			b.WriteByte(' ')
		}
		b.WriteRune(r)
		last = class
	}
	return b.String()
}

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
	case strings.ContainsRune("“”„‟«»", r):
		return '"'
	case strings.ContainsRune("‘’‚‛′", r):
		return '\''
	case r == '。', r == '｡':
		return '.'
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

type numberClass int

const (
	noNumber numberClass = iota
	decimalDigit
	superscript
	otherNumber // ½, ①, ₂
)

func classify(r rune) numberClass {
	switch {
	case '0' <= r && r <= '9':
		return decimalDigit
	case r <= unicode.MaxASCII, !unicode.Is(unicode.No, r):
		return noNumber
	case r == 0xb2, r == 0xb3, r == 0xb9, r == 0x2070, 0x2074 <= r && r <= 0x2079:
		return superscript
	}
	return otherNumber
}

// oneLine returns s with each run of white space replaced by one space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// bare returns a folded text on one line without the quotes and punctuation
// around it, unless there is nothing else.
func bare(s string) string {
	line := oneLine(s)
	t := strings.TrimRight(line, " \"'`.,;:*")
	t = strings.TrimLeft(t, " \"'`,;:*")
	if t == "" || strings.Trim(t, ".") == "" {
		return line
	}
	return t
}

// find returns the indices where needle begins in hay, overlaps included, in linear
// time (Knuth, Morris and Pratt). An empty needle is never found.
func find(hay, needle []string) []int {
	if len(needle) == 0 || len(needle) > len(hay) {
		return nil
	}
	all := slices.Concat(needle, []string{"\n"}, hay) // no word is a line break
	border := make([]int, len(all))                   // how many words at the needle's start the text ends with
	var at []int
	for i := 1; i < len(all); i++ {
		k := border[i-1]
		for k > 0 && all[i] != all[k] {
			k = border[k-1]
		}
		if all[i] == all[k] {
			k++
		}
		if border[i] = k; k == len(needle) {
			at = append(at, i-2*len(needle))
		}
	}
	return at
}
