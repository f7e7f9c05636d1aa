package text

import (
	"regexp"
	"slices"
	"strings"
)

// A Free judges a text of any length by phrases.
type Free struct {
	Accepted, Rejected []string
	// MinF1 is the token F1 that a text reaches which contains no accepted phrase, but resembles
	// one.
	MinF1   float64
	Pattern *regexp.Regexp
}

// Judge judges all of a text but thoughts, or what is in its last tag, box or hashes. An accepted phrase that
// the text contains as whole words scores 1, and any other its token F1. A rejected phrase may neither stand in
// the text, unless within a longer phrase, nor resemble the text as much.
func (f Free) Judge(text string) Verdict {
	read, rule := place(text, f.Pattern, nil)
	return verdict(f.reason(read), read, rule)
}

func (f Free) reason(read string) string {
	said := tokenize(read)
	var words [][]token
	for _, phrase := range slices.Concat(f.Accepted, f.Rejected) {
		words = append(words, wordsOf(phrase))
	}
	marked := said.marked(words, 0, nil)
	best := func(phrases []string, first int) (score float64) {
		for i, phrase := range phrases {
			if strings.ContainsRune(marked, firstMark+rune(first+i)) || len(words[first+i]) == 0 && strings.Contains(said.text, plain(clean(phrase))) {
				return 1
			}
			score = max(score, f1(words[first+i], said.words))
		}
		return score
	}
	score, rejected := best(f.Accepted, 0), best(f.Rejected, len(f.Accepted))
	switch {
	case rejected == 1, score > 0 && rejected >= score:
		return Rejected
	case score == 0 || score < f.MinF1:
		return Wrong
	}
	return ""
}

// f1 returns the harmonic mean of precision and recall of words, in any order.
func f1(want, got []token) float64 {
	left, common := map[string]int{}, 0
	for _, w := range want {
		left[w.text]++
	}
	for _, w := range got {
		if left[w.text] > 0 {
			left[w.text]--
			common++
		}
	}
	return 2 * float64(common) / max(1, float64(len(want)+len(got)))
}
