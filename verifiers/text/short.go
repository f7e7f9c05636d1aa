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
	// closed is the end of a sentence or of a line that leads to the next; begun is the start of a
	// heading, a quotation or an item.
	closed = expression(`[.!?:。]["'*_)]*$`)
	begun  = expression(`^(?:[#>|+•-]|\*\s|\d+[.)]\s)|=`)
	// reply is "yes" or "no" before an explanation.
	reply      = expression(`(?:^|\P{L})(yes|no|true|false|ja|nein|oui|non|sí|sim|não|sì|是的?|不是?|はい|いいえ|네|아니[요오])["*_]*(?:[,.;:!(。]| -| because |$)`)
	concluded  = expression(`(?:[=≈]|\b(?:so|thus|hence|therefore)\b)[^\d=≈` + found + `]*[\d` + found + `]`)
	hasSymbols = expression(`[^\p{L}\p{M}\p{N}\s.,;:!()"'$€£¥%+#-]`)
)

// Judge judges a text.
func (s Short) Judge(text string) Verdict {
	if s.Tolerance == nil {
		s.Tolerance = new(big.Rat)
	}
	read, rule := place(text, s.Pattern, func(first, last string) bool { // "Canberra⏎It was founded in 1913."
		return !closed().MatchString(first) && !begun().MatchString(first) && closed().MatchString(last)
	})
	return verdict(s.reason(read, beside(rule)), read, rule)
}

// reason returns why what was read does not pass; "" if it does.
func (s Short) reason(read string, limit int) string {
	if strings.TrimSpace(read) == "" {
		return None
	}
	question := words(s.Question)
	line := settle(restatement(read, question))
	whole, got, said := forms(read), forms(line), tokenize(line)
	worst := Wrong
	var phrases [][]token
	for _, a := range s.Accepted {
		want, words, why := forms(a), tokenize(a).words, Wrong
		switch {
		case whole[1] == want[1], whole[2] == want[2], got[2] == want[2]:
			return ""
		case reply().FindString(want[1]) == want[1]:
			why = replied(said.text, want[1])
		case len(words) == 1 && words[0].isNumber:
			unit := limit
			if limit != inProse {
				unit = maxClause
			}
			why = s.number(said, words[0], question, unit)
		case !hasSymbols().MatchString(want[2]), strings.Contains(got[2], want[2]):
			phrases = append(phrases, words)
		}
		if why == "" {
			return ""
		}
		worst = min(worst, why)
	}
	_, rest := said.named(phrases)
	switch {
	case !strings.Contains(rest, found):
		return worst
	case doubts(rest, question, limit), isList(rest, question):
		return Several
	}
	return ""
}

// replied judges the replies in a line, which have to be the same, and the first not in doubt.
func replied(line, want string) string {
	all := reply().FindAllStringSubmatchIndex(line, -1)
	switch {
	case all == nil:
		return Wrong
	case slices.ContainsFunc(all, func(m []int) bool { return line[m[2]:m[3]] != want }), doubts(line[:all[0][2]], nil, maxClause/2):
		return Several
	}
	return ""
}

// number judges a sentence, or what follows its last "=" or "so", for an accepted number: it must
// have no other number, except in brackets, those of the question and, beside a year, days.
func (s Short) number(said sentence, accepted token, question map[string]bool, limit int) string {
	asked := tokenize(s.Question).words
	isAccepted := func(t token) bool { return t.isNumber && near(t, accepted, s.Tolerance) }
	isOther := func(t token) bool {
		isDay := len(accepted.text) == len("1945") && s.Tolerance.Sign() == 0 && len(t.text) <= len("31")
		isAsked := !slices.ContainsFunc(asked, isAccepted) && slices.ContainsFunc(asked, func(q token) bool { return q.isNumber && same(q, t) })
		return t.isNumber && !isAsked && !isDay
	}
	rest := said.without(func(i int) bool { return isAccepted(said.words[i]) })
	result := aside().ReplaceAllString(rest, "") // "72 km/h (20 m/s)"
	if all := concluded().FindAllStringIndex(result, -1); all != nil {
		result = result[all[len(all)-1][0]:]
	}
	switch {
	case !strings.Contains(result, found):
		return Wrong
	case slices.ContainsFunc(scan(result).words, isOther), doubts(rest, question, limit):
		return Several
	}
	return ""
}
