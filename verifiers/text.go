package verifiers

import (
	"iter"
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

// matched is a pass, with the rule that was met; the rule names no answer.
func matched(rule string) Verdict {
	v := passed()
	v.Metadata = map[string]any{"matched": rule}
	return v
}

// fold returns s as it is compared: NFKC, full case folding, nothing invisible,
// one kind of quote, dash and digit, line breaks as "\n". It takes linear time.
func fold(s string) string {
	folded := cases.Fold().String(norm.NFKC.String(unify(s)))
	return unify(norm.NFKC.String(folded))
}

// plain is fold with case and compatibility forms kept, to tell apart what fold
// makes equal.
func plain(s string) string { return unify(norm.NFC.String(unify(s))) }

// unify drops what cannot be seen and makes alike what looks alike. It keeps
// apart what NFKC would join to another number: "10²" is not 102.
func unify(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	last := noNumber
	for _, r := range s {
		if r = unifyRune(r); r < 0 {
			continue
		}
		class := classify(r)
		if class != noNumber && last != noNumber && (class != last || class == otherNumber) {
			if class == superscript {
				b.WriteByte('^')
			} else {
				b.WriteByte(' ')
			}
		}
		b.WriteRune(r)
		last = class
	}
	return b.String()
}

// unifyRune returns the rune that stands for r, or -1 for one without a look.
func unifyRune(r rune) rune {
	switch {
	case ' ' <= r && r <= '~':
		return r
	case r == '\n', r == '\r', r == '\v', r == '\f', r == 0x85, r == 0x2028, r == 0x2029:
		return '\n'
	case unicode.IsSpace(r), r == 0x2800: // a blank that is no space
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
	case r == 0x2044, r == 0x2215:
		return '/'
	case r > unicode.MaxASCII && unicode.IsDigit(r):
		return asciiDigit(r)
	}
	return r
}

// asciiDigit relies on Unicode's promise that decimal digits stand in runs of
// ten, from zero up.
func asciiDigit(r rune) rune {
	for _, t := range unicode.Nd.R16 {
		if lo, hi := rune(t.Lo), rune(t.Hi); lo <= r && r <= hi {
			return '0' + (r-lo)%10
		}
	}
	for _, t := range unicode.Nd.R32 {
		if lo, hi := rune(t.Lo), rune(t.Hi); lo <= r && r <= hi {
			return '0' + (r-lo)%10
		}
	}
	return r
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

// lines returns the lines that are not blank, their white space made single.
func lines(s string) []string {
	var out []string
	for line := range strings.SplitSeq(s, "\n") {
		if fields := strings.Fields(line); len(fields) > 0 {
			out = append(out, strings.Join(fields, " "))
		}
	}
	return out
}

// oneLine returns s on one line, its white space made single.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// maxPeels bounds what is taken off around an answer, and so the time.
const maxPeels = 12

// readings yields the forms in which a line may be an answer: the line, then
// with ever more of what surrounds an answer taken away. Explicit reports
// whether a lead-in says that it is the answer. A line of any other shape,
// such as "not a", keeps what it has.
func readings(line string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		explicit := false
		s := strings.TrimSpace(line)
		for range maxPeels {
			s = trimEdges(s)
			if s == "" || !yield(s, explicit) {
				return
			}
			if inner, ok := unwrap(s); ok {
				s = inner
				continue
			}
			rest, says, ok := cutLead(s)
			if !ok {
				return
			}
			s, explicit = rest, explicit || says
		}
	}
}

// trimEdges drops quotes and punctuation around s. A point before a digit is
// part of the number.
func trimEdges(s string) string {
	const dropped = " \"'`.,;:"
	s = strings.TrimRight(s, dropped)
	t := strings.TrimLeft(s, dropped)
	if n := len(s) - len(t); n > 0 && s[n-1] == '.' && t != "" && t[0] >= '0' && t[0] <= '9' {
		return s[n-1:]
	}
	return t
}

// unwrap takes one layer of brackets, markdown or LaTeX off.
func unwrap(s string) (string, bool) {
	for _, pair := range [][2]string{
		{`\boxed{`, "}"}, {`\text{`, "}"}, {`\(`, `\)`}, {"(", ")"}, {"[", "]"}, {"{", "}"}, {"$", "$"},
	} {
		if len(s) >= len(pair[0])+len(pair[1]) && strings.HasPrefix(s, pair[0]) && strings.HasSuffix(s, pair[1]) {
			return s[len(pair[0]) : len(s)-len(pair[1])], true
		}
	}
	if t := strings.Trim(s, "*_"); t != s {
		return t, true
	}
	if t := strings.TrimLeft(s, "#"); t != s && strings.HasPrefix(t, " ") {
		return t, true
	}
	return s, false
}

// cutLead takes one word of a lead-in off. Says reports whether the word
// announces an answer.
func cutLead(s string) (rest string, says, ok bool) {
	end := strings.IndexFunc(s, func(r rune) bool { return r != '\'' && !unicode.IsLetter(r) })
	if end <= 0 || end > 12 || !strings.ContainsRune(" :=*_,", rune(s[end])) {
		return s, false, false
	}
	switch strings.ToLower(s[:end]) {
	case "answer", "ans", "final", "solution", "result", "choose", "pick", "select", "correct", "right", "best", "is", "think", "believe":
		says = true
	case "the", "my", "our", "i", "i'd", "i'll", "so", "thus", "hence", "therefore", "then", "and", "option", "choice", "letter",
		"it", "it's", "that", "that's", "would", "must", "be":
	default:
		return s, false, false
	}
	rest = strings.TrimLeft(strings.TrimLeft(s[end:], ":=*_,"), " :=")
	return rest, says, rest != ""
}

// A word is a whole token of a folded text. Words of one clause have no
// punctuation between them.
type word struct {
	text   string
	clause int
}

// words splits a folded text at everything that is no letter, mark or digit.
// It keeps "isn't", "3.14", "1,000", "-5", "c++" and "c#" whole. Scripts that
// write no spaces give one word a rune.
func words(s string) []word {
	var out []word
	rs := []rune(s)
	clause := 0
	for i := 0; i < len(rs); {
		start := i
		if !startsWord(rs, i) {
			if strings.ContainsRune(".,;:!?/|&•\n", rs[i]) {
				clause++
			}
			i++
			continue
		}
		for i++; i < len(rs) && continuesWord(rs, i); i++ {
		}
		text := string(rs[start:i])
		if text == "but" {
			clause++
		}
		out = append(out, word{text, clause})
	}
	return out
}

func isWordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsNumber(r)
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

// isSpaceless reports whether r is of a script that writes no spaces.
func isSpaceless(r rune) bool {
	return r > unicode.MaxLatin1 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

func startsWord(rs []rune, i int) bool {
	if rs[i] == '-' || rs[i] == '.' {
		return i+1 < len(rs) && isDigit(rs[i+1]) && (i == 0 || rs[i-1] == ' ' || rs[i-1] == '\n' || rs[i-1] == '(')
	}
	return isWordRune(rs[i])
}

func continuesWord(rs []rune, i int) bool {
	r, before := rs[i], rs[i-1]
	last := i+1 == len(rs)
	switch {
	case unicode.IsMark(r):
		return true
	case isWordRune(r):
		return !isSpaceless(r) && !isSpaceless(before)
	case r == '\'':
		return !last && unicode.IsLetter(before) && unicode.IsLetter(rs[i+1])
	case r == '.' || r == ',':
		return !last && isDigit(before) && isDigit(rs[i+1])
	case r == '+' || r == '#':
		return unicode.IsLetter(before) && (last || !isWordRune(rs[i+1])) || r == before && (last || !isWordRune(rs[i+1]))
	}
	return false
}

func texts(ws []word) []string {
	out := make([]string, len(ws))
	for i, w := range ws {
		out[i] = w.text
	}
	return out
}

// find returns where needle begins in hay, overlaps included, in linear time
// (Knuth, Morris and Pratt). Nothing is found of an empty needle.
func find(hay, needle []string) []int {
	if len(needle) == 0 || len(needle) > len(hay) {
		return nil
	}
	fail := make([]int, len(needle)+1)
	for i, k := 1, 0; i < len(needle); i++ {
		for k > 0 && needle[i] != needle[k] {
			k = fail[k]
		}
		if needle[i] == needle[k] {
			k++
		}
		fail[i+1] = k
	}
	var at []int
	for i, k := 0, 0; i < len(hay); i++ {
		for k > 0 && (k == len(needle) || hay[i] != needle[k]) {
			k = fail[k]
		}
		if hay[i] == needle[k] {
			k++
		}
		if k == len(needle) {
			at = append(at, i+1-k)
		}
	}
	return at
}

// isNegation reports whether w denies what stands near it.
func isNegation(w string) bool {
	switch w {
	case "not", "no", "never", "neither", "nor", "none", "non", "cannot", "without", "except", "wrong", "incorrect", "false",
		"untrue", "isnt", "wasnt", "arent", "dont", "unlike", "instead":
		return true
	}
	return strings.HasSuffix(w, "n't")
}

// denies reports whether any word is a negation.
func denies(ws []string) bool { return slices.ContainsFunc(ws, isNegation) }
