package text

import (
	"cmp"
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
	// aside is what stands in brackets beside the answer; in "O(n)" they are part of it.
	aside = regexp.MustCompile(`(^|[^\p{Latin}\d])\([^()]*\)`)
	// closed is the end of a sentence or of a line that leads to the next; begun is the start of a
	// heading, a quotation or an item.
	closed = regexp.MustCompile(`[.!?:。]["'*_)]*$`)
	begun  = regexp.MustCompile(`^(?:[#>|+•-]|\*\s|\d+[.)]\s)|=`)
	// reply is "yes" or "no" before an explanation.
	reply      = regexp.MustCompile(`(?:^|\P{L})(yes|no|true|false|ja|nein|oui|non|sí|sim|não|sì|是的?|不是?|はい|いいえ|네|아니[요오])["*_]*(?:[,.;:!(。]| -| because |$)`)
	concluded  = regexp.MustCompile(`[=≈]|\b(?:so|thus|hence|therefore)\b`)
	hasSymbols = regexp.MustCompile(`[^\p{L}\p{M}\p{N}\s.,;:!()"'$€£¥%+#-]`)
)

// Judge judges a text.
func (s Short) Judge(text string) Verdict {
	if s.Tolerance == nil {
		s.Tolerance = new(big.Rat)
	}
	read, rule := place(text, s.Pattern, func(first, last string) bool { // "Canberra⏎It was founded in 1913."
		return !closed.MatchString(first) && !begun.MatchString(first) && closed.MatchString(last)
	})
	return verdict(s.reason(read), read, rule)
}

// reason returns why what was read does not pass; "" if it does.
func (s Short) reason(read string) string {
	if strings.TrimSpace(read) == "" {
		return None
	}
	line := cmp.Or(bare(aside.ReplaceAllString(withoutLaTeX(clean(read)), "$1 ")), read)
	line = phrasesOf().tail.ReplaceAllString(contrast.ReplaceAllString(line, " "), "")
	whole, got, said := forms(read), forms(line), tokenize(line)
	worst := Wrong
	var phrases [][]token
	for _, a := range s.Accepted {
		want, words, why := forms(a), tokenize(a).words, Wrong
		switch {
		case whole[1] == want[1], whole[2] == want[2], got[2] == want[2]:
			return ""
		case reply.FindString(want[1]) == want[1]:
			why = replied(said.text, want[1])
		case len(words) == 1 && words[0].number:
			why = s.number(said, words[0])
		case !hasSymbols.MatchString(want[2]), strings.Contains(got[2], want[2]):
			phrases = append(phrases, words)
		}
		if why == "" {
			return ""
		}
		if why != Wrong {
			worst = why
		}
	}
	if why := phrase(said, phrases); why != Wrong {
		return why
	}
	return worst
}

// replied judges the replies in a line, which have to be one, and not in doubt.
func replied(line, want string) string {
	why := Wrong
	for _, m := range reply.FindAllStringSubmatchIndex(line, -1) {
		switch {
		case line[m[2]:m[3]] != want:
			return Several
		case why == Wrong:
			why = spoils(line[:m[2]])
		}
	}
	return why
}

// number judges a sentence, or what follows its last "=" or "so", for an accepted number: it must
// have no other number, except those of the question and, beside a year, days.
func (s Short) number(said sentence, accepted token) string {
	from := -1
	for _, m := range concluded.FindAllStringIndex(said.text, -1) {
		if said.text[m[0]] != 's' || slices.ContainsFunc(said.words, func(t token) bool { return t.number && t.from > m[0] }) {
			from = m[0]
		}
	}
	asked := tokenize(s.Question).words
	isAccepted := func(t token) bool { return t.number && near(t, accepted, s.Tolerance) }
	isOther := func(t token) bool {
		isDay := len(accepted.text) == len("1945") && s.Tolerance.Sign() == 0 && len(t.text) <= len("31")
		isAsked := !slices.ContainsFunc(asked, isAccepted) && slices.ContainsFunc(asked, func(q token) bool { return q.number && same(q, t) })
		return t.number && t.from > from && !isAccepted(t) && !isAsked && !isDay
	}
	switch {
	case !slices.ContainsFunc(said.words, func(t token) bool { return t.from > from && isAccepted(t) }):
		return Wrong
	case slices.ContainsFunc(said.words, isOther):
		return Several
	}
	return spoils(said.without(func(i int) bool { return isAccepted(said.words[i]) }))
}

// phrase judges a line for accepted phrases.
func phrase(said sentence, accepted [][]token) string {
	_, rest := said.named(accepted)
	if !strings.Contains(rest, found) {
		return Wrong
	}
	if why := spoils(rest); why != "" || !isList(rest) {
		return why
	}
	return Several
}
