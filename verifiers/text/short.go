package text

import (
	"math/big"
	"regexp"
	"slices"
	"strings"
)

// A Short judges a word, a phrase or a number.
type Short struct {
	Question  string
	Accepted  []string
	Tolerance *big.Rat // how far a number may be off; nil is zero
	Pattern   *regexp.Regexp
}

var (
	// closed is the end of a sentence. other is the first line of a text that is no answer: an exclamation, what leads
	// to the next line, an item or an equation. long is a heading, a sentence of over two words, or over four words.
	closed = expression(`\p{L}.*[.!?:]["')]*$`)
	other  = expression(`^(?:[|+•*-]|\d+[.)]\s)|=|[!?:]["')]*$`)
	long   = expression(`^[#>]|(?:\S\s.*){2}\.["')]*$|(?:\S\s.*){4}|[\p{Han}\p{Hiragana}]{7}`)
	bullet = expression(`^(?:[-+•*]|\d+[.)])\s+((?:[^\s:=]*[^\s:=.!?]\s?){1,3})$`) // "- New York"
	// reply is "yes" or "no" before an explanation.
	reply = expression(`(?:^|\P{L})(yes|no|true|false|ja|nein|oui|non|sí|sim|não|sì|是的?|不是?|はい|いいえ|네|아니[요오])"? ?(?:[,.;:!(]|-|because |です|입니다|$)`)
	// hasSymbols matches what words do not have: other symbols, or a sign within a formula, such as "x+1" or "3-4i".
	hasSymbols = expression(`[^\p{L}\p{M}\p{N}\s.,;:!()"'$€£¥%+#-]|(?:^|[^\p{L}\p{M}])\p{L}[+-]\d|\d[+-]\d+\p{L}(?:[^\p{L}\p{M}]|$)`)
	beside     = expression(`(` + found + `)(?:[ ,($%]*\bor \$?` + found + `|/\p{L})`) // "3/4 (or 75%)", "$26/day"
	// part is an answer within a longer formula, and row an answer of numbers beside other numbers.
	part    = expression(`(?:\d|[+×√] ?|[\d/√+×-]\(|\b(?:log|ln|exp|sin|cos|tan|mod) ?\(?)` + found + `|` + found + `(?:\)? ?(?:[+×^√]|mod\b|[inx-z]\b|[a-z] ?\+)|\) ?/|e\b)|^[^\p{L}]*` + found + `!`)
	extra   = expression(`\([^()]*\)| - \p{L}{2}.*`) // "72 km/h (20 m/s)", "42.195 km - that is 26.2 miles"
	row     = expression(`\d ?[,;] ?` + found + `|` + found + ` ?[,;] ?[-+]?\d`)
	premise = expression(`^.*(?:` + so + `|[=≈])(.*[\d` + textRange + `].*)$`)
)

// Judge judges a text.
func (s Short) Judge(text string) Verdict {
	read, rule := place(text, s.Pattern, s.pick)
	return verdict(s.reason(read), read, rule)
}

// pick picks the first line if it is an answer before a sentence that explains it. Else it picks the last line, with the
// item before it if it is an item.
func (s Short) pick(lines []string) (string, Rule) {
	first, before, last := lines[0], lines[len(lines)-2], lines[len(lines)-1]
	isAnswer, concludes := s.reason(first) == "", conclusion().MatchString(last)
	switch {
	case other().MatchString(first), !closed().MatchString(last):
	case isAnswer && s.reason(last) == Wrong && !concludes, // "It is Canberra.⏎It was founded in 1913."
		!long().MatchString(first) && (isAnswer || len(lines) == 2 && !concludes || !strings.HasSuffix(first, ".")): // not "Let's see."
		return first, FirstLine
	}
	if bullet().MatchString(before) && bullet().MatchString(last) {
		return bullet().ReplaceAllString(before, "$1") + "; " + bullet().ReplaceAllString(last, "$1"), LastLine
	}
	return last, LastLine
}

// reason returns why what was read does not pass; "" if it does.
func (s Short) reason(read string) string {
	got, worst := forms(read), Wrong
	parts, question := sentences(read), wordsOf(s.Question)
	for _, a := range s.Accepted {
		a = plain(clean(a))
		want, accepted := forms(a), tokenize(a)
		switch {
		case got[1] == want[1]:
			return ""
		case reply().FindString(want[1]) == want[1]:
			worst = min(worst, replied(fold(read), want[1]))
		case len(accepted.words) == 0:
		case len(accepted.words) == 1 && accepted.words[0].isNumber, !hasSymbols().MatchString(want[1]),
			strings.Contains(got[1], want[1]) && !strings.Contains(got[1], "-"+want[1]):
			for _, part := range parts {
				worst = min(worst, s.judge(part, accepted, question))
			}
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
	case slices.ContainsFunc(all, func(m []int) bool { return line[m[2]:m[3]] != want }), openness().MatchString(line[:all[0][2]]), isDenied(line[:all[0][2]]):
		return Several
	}
	return ""
}

// judge judges a sentence for one accepted answer. No other number than a numeric answer may follow the last
// "=" or "so", but for numbers in brackets or of the question, and a day beside a year.
func (s Short) judge(said string, accepted sentence, question []token) string {
	rest, first := affirmed(tokenize(said).marked([][]token{accepted.words}, 0, s.Tolerance)), accepted.words[0]
	words := slices.DeleteFunc(slices.Clone(accepted.words), func(t token) bool { return t.isNumber })
	isNumber, isRow := first.isNumber && len(words) == len(accepted.words)-1, len(words) == 0 && len(accepted.words) > 1
	if isNumber && len(words) == 0 { // "5 km/h" is not 5 km
		rest = beside().ReplaceAllString(rest, "$1 ")
	}
	switch {
	case !marks().MatchString(rest):
		return Wrong
	case isOpen(rest), !isNumber && (part().MatchString(rest) || isList(rest, accepted.text, question)), isRow && row().MatchString(rest):
		return Several
	case !isNumber:
		return ""
	}
	if outside := extra().ReplaceAllString(rest, ""); marks().MatchString(outside) {
		rest = outside
	}
	rest = premise().ReplaceAllString(rest, "$1")
	isYear := len(first.text) == len("1945")
	isOther := func(t token) bool { // than a day beside a year
		return t.isNumber && !(isYear && len(t.text) <= len("31")) && !(has(question, t) && !has(question, first))
	}
	if !marks().MatchString(rest) || part().MatchString(rest) || slices.ContainsFunc(tokenize(rest).words, isOther) {
		return Several
	}
	return ""
}
