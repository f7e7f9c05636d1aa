package text

import (
	"math/big"
	"slices"
	"strings"
	"unicode"
)

// Marks are private runes, which no clean text has. They stand in a marked text for what was found: 64
// for the phrases that are looked for, by their number, and 64 for labels.
const (
	firstMark, labelMark, lastMark = '\uE000', '\uE040', '\uE07F'

	textRange, labelRange = `\x{E000}-\x{E03F}`, `\x{E040}-\x{E07F}`
	found                 = `[` + textRange + labelRange + `]`
)

var (
	sentenceEnd  = expression(`[.!?]["'*_` + "`" + `)\]$]*(?:\s|$)`)
	abbreviation = expression(`(?i)(?:^|[^\p{L}])(?:\p{L}|st|dr|mr|mrs|ms|prof|vs|ca|approx)\.$`)
	germanDate   = expression(`(?i)^\. (?:jan|feb|mär|apr|mai|jun|jul|aug|sep|okt|nov|dez)`)
	clause       = expression(`(?s).+?(?:[,;:!?.](?:\s|$)|\s-\s|ではなく|아니라|$)`)
	aside        = expression(`\([^()]*\)`)
	separator    = expression(`[,;&•·|]["\s]|\s(?:-|vs\.?|and|und|et|y|e)\s|[和と]`)
)

// sentences returns the sentences of a line, at least one.
func sentences(line string) (all []string) {
	start := 0
	for _, m := range sentenceEnd().FindAllStringIndex(line, -1) {
		if !abbreviation().MatchString(line[max(0, m[0]-8):m[0]+1]) && !germanDate().MatchString(line[m[0]:min(len(line), m[0]+8)]) {
			all, start = append(all, strings.TrimSpace(line[start:m[1]])), m[1]
		}
	}
	if start < len(line) || all == nil {
		all = append(all, strings.TrimSpace(line[start:]))
	}
	return all
}

// isDenied reports whether the clause that a text ends in denies.
func isDenied(text string) bool {
	text = text[max(0, len(text)-MaxRead):]
	text = text[strings.LastIndexAny(text, "\n.,;:!?")+1:]
	if all := phrasesOf().so.FindAllStringIndex(text, -1); all != nil {
		text = text[all[len(all)-1][1]:]
	}
	return phrasesOf().deny.MatchString(text)
}

// affirmed returns a marked sentence without the clauses and the brackets that deny.
func affirmed(s string) string {
	affirm := func(part string) string {
		if phrasesOf().deny.MatchString(part) {
			return ""
		}
		return part
	}
	s = phrasesOf().orAfter.ReplaceAllString(s, " $1")
	return clause().ReplaceAllStringFunc(aside().ReplaceAllStringFunc(s, affirm), affirm)
}

// isOpen reports whether each clause of a sentence that has a mark asks, or leaves open.
func isOpen(s string) bool {
	return !slices.ContainsFunc(clause().FindAllString(s, -1), func(c string) bool {
		return strings.ContainsFunc(c, isMark) && !phrasesOf().open.MatchString(c)
	})
}

// named returns, by word, the phrases that begin there other than within a longer phrase.
func (s sentence) named(phrases [][]token, tolerance *big.Rat) [][]int {
	longest := make([]int, len(s.words)) // by word: the length of the longest phrase that holds it
	starts := make([][]int, len(s.words))
	for i, words := range phrases {
		for _, from := range find(s.words, words, tolerance) {
			starts[from] = append(starts[from], i)
			for k := range words {
				longest[from+k] = max(longest[from+k], len(words))
			}
		}
	}
	for from := range starts {
		starts[from] = slices.DeleteFunc(starts[from], func(i int) bool { return len(phrases[i]) < longest[from] })
	}
	return starts
}

// marked returns the text with a mark for each of the phrases in it, in place of its words.
func (s sentence) marked(phrases [][]token, tolerance *big.Rat) string {
	var b strings.Builder
	end := 0
	for from, all := range s.named(phrases, tolerance) {
		for _, i := range all {
			b.WriteString(s.text[end:max(end, s.words[from].from)])
			b.WriteRune(firstMark + rune(min(i, labelMark-firstMark-1)))
			end = s.words[from+len(phrases[i])-1].to
		}
	}
	return b.String() + s.text[end:]
}

// isList reports whether the mark in a sentence is an item of a list: beside it stand two short
// parts, or one if the mark is alone in its part. A part with a word of the question is no item, nor
// is one in lower case beside an answer in upper case.
func isList(s string, question []token, isUpper bool) bool {
	items := 0
	for _, part := range separator().Split(s, -1) {
		words := tokenize(part).words
		switch isMarked := strings.ContainsFunc(part, isMark); {
		case len(words) == 0 && isMarked:
			items++
		case len(words) == 0 || len(words) > 3 || isMarked || words[0].isNumber || phrasesOf().so.MatchString(part) || article().MatchString(strings.TrimSpace(part)):
		case isUpper && strings.IndexFunc(part, unicode.IsLower) == words[0].from:
		case !slices.ContainsFunc(words, func(w token) bool {
			return slices.ContainsFunc(question, func(q token) bool { return same(w, q, nil) })
		}):
			items++
		}
	}
	return items > 1
}

func isMark(r rune) bool { return firstMark <= r && r <= lastMark }
