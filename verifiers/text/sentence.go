package text

import (
	"regexp"
	"strings"
)

// found stands in a sentence for the words that were looked for; no clean text has it.
const found = "\x01"

// without returns the sentence with found for each run of words for which within is true.
func (s sentence) without(within func(i int) bool) string {
	var b strings.Builder
	end, before := 0, false
	for i, t := range s.words {
		now := within(i)
		if now && !before {
			b.WriteString(s.text[end:t.from] + found)
		}
		if now {
			end = t.to
		}
		before = now
	}
	return b.String() + s.text[end:]
}

// spoils returns the reason why a sentence without the answer in it does not give the answer: it
// denies, leaves open or asks. It returns "" if it does none of these.
func spoils(rest string) string {
	switch {
	case phrasesOf().denied.MatchString(rest):
		return Wrong
	case phrasesOf().open.MatchString(rest), strings.HasSuffix(strings.TrimRight(rest, ` "'*_)`), "?"):
		return Several
	}
	return ""
}

var (
	slash = regexp.MustCompile(found + `["'*_]* ?/|/ ?["'*_]*` + found)
	// contrast is what an answer is set against, as in "Canberra, not Sydney".
	contrast   = regexp.MustCompile(`, (?:and |but |und |et |e )?(?:not|nicht|non|pas|não) (?:(?:the|an?|die|der|das|le|la) |[\p{Lu}\d"'*(])[^,;.()]*,?|,? ?而不是[^,;。]*`)
	mistaken   = regexp.MustCompile(`(?i)\b(?:wrong|incorrect|mistaken?)\b`)
	separator  = regexp.MustCompile(`[,;/&|•·\n。]|[.!?](?:\s|$)|\band\b`)
	apposition = regexp.MustCompile(`^ an? `) // as in "Canberra, a city"
	listed     = regexp.MustCompile(`\ban? ` + found)
	hasSymbols = regexp.MustCompile(`[^\p{L}\p{M}\p{N}\s.,;:!()"'$€£¥%+#-]`)
)

// maxItem is how many words an item of a list has, unless an accepted answer has more.
const maxItem = 3

// isList reports whether a sentence is a list of items, of which the answer is one: two short
// parts beside it, or one if the answer is in a short part, too.
func isList(rest string, accepted []string) bool {
	most := maxItem
	for _, a := range accepted {
		most = max(most, len(strings.Fields(a)))
	}
	if strings.Count(rest, " - ") > 1 {
		rest = strings.ReplaceAll(rest, " - ", ",")
	}
	others := 0
	for _, part := range separator.Split(rest, -1) {
		switch n := len(tokenize(part).words); {
		case apposition.MatchString(part) && !listed.MatchString(rest):
		case strings.Contains(part, found) && n < most:
			others++
		case !strings.Contains(part, found) && 0 < n && n <= most:
			others++
		}
	}
	return others > 1
}
