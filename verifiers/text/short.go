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

// Judge judges a text.
func (s Short) Judge(text string) Verdict {
	if s.Tolerance == nil {
		s.Tolerance = new(big.Rat)
	}
	read, rule := place(text, s.Pattern, nil)
	return verdict(s.reason(read), read, rule)
}

// reason returns why what was read does not pass; "" if it does.
func (s Short) reason(read string) string {
	if strings.TrimSpace(read) == "" {
		return None
	}
	got := forms(read)
	line := cmp.Or(bare(aside.ReplaceAllString(withoutLaTeX(clean(read)), " ")), read)
	line = phrasesOf().tail.ReplaceAllString(contrast.ReplaceAllString(line, " "), "")
	said := tokenize(line)
	worst := Wrong
	for _, a := range s.Accepted {
		want := forms(a)
		if got[1] == want[1] || withoutArticle(got[2]) == withoutArticle(want[2]) || withoutArticle(forms(line)[2]) == withoutArticle(want[2]) {
			return ""
		}
		if reply.MatchString(want[1]) {
			all := reply.FindAllStringSubmatch(said.text, -1)
			other := slices.ContainsFunc(all, func(m []string) bool { return m[1] != want[1] })
			switch {
			case all == nil || !strings.HasPrefix(said.text, all[0][0]):
			case other:
				continue
			default:
				return ""
			}
		}
		var why string
		if words := tokenize(a).words; len(words) == 1 && words[0].number {
			if len(a) == len("1945") {
				said = tokenize(date.ReplaceAllString(line, " "))
			}
			why = s.number(said, words[0])
		} else {
			why = s.phrase(said, words, want[1])
		}
		if why == "" {
			return ""
		}
		if why != Wrong {
			worst = why
		}
	}
	return worst
}

var (
	// aside is what stands in brackets beside the answer.
	aside   = regexp.MustCompile(`\([^()]*\)`)
	article = regexp.MustCompile(`^(?:the|an?) `)
	// date is a month and a day before a year.
	date = regexp.MustCompile(`(?i)\b(?:\d\d?(?:st|nd|rd|th)? (?:of )?)?` + month + `(?: \d\d?(?:st|nd|rd|th)?,)? `)
	// reply is "yes" or "no" before an explanation; the first decides, unless there are others.
	reply     = regexp.MustCompile(`(?:^|\P{L})(yes|no|true|false|ja|nein|oui|non|sí|sim|não|sì|是的?|不是?|はい|いいえ|네|아니요)["*_]*(?:[,.;:!(。]| -| because |$)`)
	concluded = regexp.MustCompile(`[=≈]|\b(?:so|thus|hence|therefore)\b`)
)

const month = `(?:january|february|march|april|may|june|july|august|september|october|november|december)`

func withoutArticle(s string) string { return article.ReplaceAllString(s, "") }

// number judges a sentence, or what follows its last "=" or "so", for an accepted number: it must
// have no other number, except those of the question.
func (s Short) number(said sentence, accepted token) string {
	from := -1
	for _, m := range concluded.FindAllStringIndex(said.text, -1) {
		if said.text[m[0]] != 's' || slices.ContainsFunc(said.words, func(t token) bool { return t.number && t.from > m[0] }) {
			from = m[0]
		}
	}
	asked := tokenize(s.Question).words
	isAccepted := func(t token) bool { return t.number && near(t, accepted, s.Tolerance) }
	isAsked := func(t token) bool {
		return !slices.ContainsFunc(asked, isAccepted) && slices.ContainsFunc(asked, func(q token) bool { return q.number && same(q, t) })
	}
	found, others := false, false
	for _, t := range said.words {
		if t.number && t.from > from {
			found = found || isAccepted(t)
			others = others || !isAccepted(t) && !isAsked(t)
		}
	}
	switch {
	case !found:
		return Wrong
	case others:
		return Several
	}
	return spoils(said.without(func(i int) bool { return isAccepted(said.words[i]) }))
}

// phrase judges a line for an accepted phrase, which has to be in its first or last sentence.
func (s Short) phrase(said sentence, accepted []token, want string) string {
	within, all := make([]bool, len(said.words)), sentences(said.text)
	first, last := len(all[0]), len(said.text)-len(all[len(all)-1])
	at := slices.DeleteFunc(find(said.words, accepted), func(from int) bool {
		next := from + len(accepted)
		return said.words[next-1].to > first && said.words[from].from < last || next < len(said.words) && factors()[said.words[next].text] != nil // "two hundred" is not two
	})
	for _, from := range at {
		for k := range accepted {
			within[from+k] = true
		}
	}
	if len(at) == 0 || hasSymbols.MatchString(want) && !strings.Contains(said.text, want) {
		return Wrong
	}
	rest := said.without(func(i int) bool { return within[i] })
	if why := spoils(rest); why != "" {
		return why
	}
	if slash.MatchString(rest) || isList(rest, s.Accepted) {
		return Several
	}
	return ""
}
