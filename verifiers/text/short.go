package text

import (
	"cmp"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Short judges a word, a phrase or a number.
type Short struct {
	Question  string
	Accepted  []string
	Tolerance *big.Rat // how far a number may be off; nil is zero
	Pattern   *regexp.Regexp
}

var (
	// closed is the end of a sentence or of a line that leads to the next; begun is the start of a
	// heading, a quotation or an item.
	closed = expression(`[.!?:]["'*_)]*$`)
	begun  = expression(`^(?:[#>|+•-]|\*\s|\d+[.)]\s)|=`)
	// reply is "yes" or "no" before an explanation.
	reply      = expression(`(?:^|\P{L})(yes|no|true|false|ja|nein|oui|non|sí|sim|não|sì|是的?|不是?|はい|いいえ|네|아니[요오])["*_]*(?:[,.;:!(]| -| because |$)`)
	hasSymbols = expression(`[^\p{L}\p{M}\p{N}\s.,;:!()"'$€£¥%+#-]`)
	perUnit    = expression(`(` + found + `)/\p{L}`)                   // "$26/day"
	twice      = expression(`(` + found + `)[ ,($%]*\bor \$?` + found) // "3/4 (or 75%)"
)

// Judge judges a text.
func (s Short) Judge(text string) Verdict {
	if s.Tolerance == nil {
		s.Tolerance = new(big.Rat)
	}
	read, rule := place(text, s.Pattern, func(lines []string) (string, Rule) {
		first, last := lines[0], lines[len(lines)-1] // "Canberra⏎It was founded in 1913."
		if !closed().MatchString(first) && !begun().MatchString(first) && closed().MatchString(last) {
			return first, FirstLine
		}
		return last, LastLine
	})
	return verdict(s.reason(read), read, rule)
}

// reason returns why what was read does not pass; "" if it does.
func (s Short) reason(read string) string {
	if strings.TrimSpace(read) == "" {
		return None
	}
	line, got := plain(clean(read)), forms(read)
	worst := Wrong
	var phrases, numbers [][]token
	for _, a := range s.Accepted {
		want, words, why := forms(a), wordsOf(a), Wrong
		switch {
		case got[1] == want[1], got[2] == want[2]:
			return ""
		case reply().FindString(want[1]) == want[1]:
			why = replied(fold(line), want[1])
		case len(words) == 1 && words[0].isNumber:
			numbers = append(numbers, words)
		case !hasSymbols().MatchString(want[2]), strings.Contains(got[2], want[2]):
			phrases = append(phrases, words)
		}
		if why == "" {
			return ""
		}
		worst = min(worst, why)
	}
	question := wordsOf(s.Question)
	for _, sentence := range sentences(line) {
		for _, why := range []string{s.number(sentence, numbers, question), s.phrase(sentence, phrases, question)} {
			if why == "" {
				return ""
			}
			worst = min(worst, why)
		}
	}
	return worst
}

// replied judges the replies in a folded line, which have to be the same, and not left open.
func replied(line, want string) string {
	all := reply().FindAllStringSubmatchIndex(line, -1)
	switch {
	case all == nil:
		return Wrong
	case slices.ContainsFunc(all, func(m []int) bool { return line[m[2]:m[3]] != want }), phrasesOf().open.MatchString(line[:all[0][2]]):
		return Several
	}
	return ""
}

// phrase judges a sentence for accepted phrases.
func (s Short) phrase(sentence string, accepted [][]token, question []token) string {
	rest := affirmed(tokenize(sentence).marked(accepted, nil))
	first, _ := utf8.DecodeRuneInString(cmp.Or(s.Accepted...))
	switch {
	case !strings.ContainsFunc(rest, isMark):
		return Wrong
	case isOpen(rest), isList(rest, question, unicode.IsUpper(first)):
		return Several
	}
	return ""
}

// number judges a sentence, or what follows its last "=" or "so", for accepted numbers: it must have
// no other number, except in brackets, those of the question and, beside a year, days.
func (s Short) number(sentence string, accepted [][]token, question []token) string {
	rest := affirmed(tokenize(sentence).marked(accepted, s.Tolerance))
	rest = perUnit().ReplaceAllString(twice().ReplaceAllString(rest, "$1"), "$1 ")
	isLeftOpen := isOpen(rest)
	if outside := aside().ReplaceAllString(rest, ""); strings.ContainsFunc(outside, isMark) {
		rest = outside // "72 km/h (20 m/s)"
	}
	for _, m := range slices.Backward(phrasesOf().so.FindAllStringIndex(rest, -1)) {
		if strings.ContainsFunc(rest[m[0]:], func(r rune) bool { return isMark(r) || unicode.IsDigit(r) }) {
			rest = rest[m[0]:]
			break
		}
	}
	isAccepted := func(t token) bool {
		return slices.ContainsFunc(accepted, func(a []token) bool { return same(t, a[0], s.Tolerance) })
	}
	isYear := s.Tolerance.Sign() == 0 && slices.ContainsFunc(accepted, func(a []token) bool { return len(a[0].text) == len("1945") })
	isOther := func(t token) bool {
		isAsked := !slices.ContainsFunc(question, isAccepted) && slices.ContainsFunc(question, func(q token) bool { return q.isNumber && same(q, t, nil) })
		return t.isNumber && !isAsked && !(isYear && len(t.text) <= len("31"))
	}
	switch {
	case !strings.ContainsFunc(rest, isMark):
		return Wrong
	case isLeftOpen, slices.ContainsFunc(tokenize(rest).words, isOther):
		return Several
	}
	return ""
}
