package text

import (
	"regexp"
	"slices"
	"strings"
)

// found stands in a sentence for the words that were looked for; no clean text has it.
const found = "\x01"

// named returns which of the phrases stand in a sentence other than within a longer one of them,
// and the sentence with found for each run of their words.
func (s sentence) named(phrases [][]token) (all []int, rest string) {
	longest := make([]int, len(s.words)) // by word: the length of the longest phrase that holds it
	at := make([][]int, len(phrases))
	for i, words := range phrases {
		at[i] = find(s.words, words)
		for _, from := range at[i] {
			for k := range words {
				longest[from+k] = max(longest[from+k], len(words))
			}
		}
	}
	for i, words := range phrases {
		if slices.ContainsFunc(at[i], func(from int) bool { return longest[from] == len(words) }) {
			all = append(all, i)
		}
	}
	return all, s.without(func(i int) bool { return longest[i] > 0 })
}

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
	// contrast is what an answer is set against, as in "Canberra, not Sydney".
	contrast   = regexp.MustCompile(`, (?:and |but |und |et |e |y )?(?:not|nicht|non|pas|não|no) (?:(?:the|an?|die|der|das|le|la) |[\p{Lu}\d"'*($])[^,;.()]*,?|(?:,? ?而|, ?)不是[^;。]*|であり,[^。]*ではありません|[^,。]*(?:ではなく|(?:이|가) 아니라),?`)
	separator  = regexp.MustCompile(`(?:[,/&|•·\n。和と]|[.!?;](?:\s|$)| (?:and|und|et|y|e) )+`)
	slash      = regexp.MustCompile(found + `["'*_]* ?/|/ ?["'*_]*` + found)
	lead       = regexp.MustCompile(`^(?:so|thus|hence|therefore),? `)
	apposition = regexp.MustCompile(`^ an? `) // as in "Canberra, a city"
)

// maxItem is how many words an item of a list has at most.
const maxItem = 3

// isList reports whether the answer is an item of a list in a sentence: short parts stand on both
// sides of it, two after it, or one if the answer's own part is short, too.
func isList(rest string) bool {
	if strings.Count(rest, " - ") > 1 {
		rest = strings.ReplaceAll(rest, " - ", ",")
	}
	parts := separator.Split(lead.ReplaceAllString(rest, ""), -1)
	short := func(i int) bool {
		if i < 0 || i >= len(parts) || apposition.MatchString(parts[i]) {
			return false
		}
		n := len(tokenize(parts[i]).words)
		return n <= maxItem && n > 0
	}
	for i, part := range parts {
		if !strings.Contains(part, found) {
			continue
		}
		own := len(tokenize(part).words) < maxItem
		if short(i-1) && (own || short(i+1)) || short(i+1) && (own || short(i+2)) {
			return true
		}
	}
	return slash.MatchString(rest)
}
