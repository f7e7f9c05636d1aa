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

// Judge judges all of a text but thoughts; of one with a tag for the answer, what is in the tag.
// An accepted phrase that the text contains as whole words scores 1, and any other its token F1.
// The text must contain no rejected phrase, other than within an accepted one, nor resemble one as
// much.
func (f Free) Judge(text string) Verdict {
	read, rule := strings.TrimSpace(thoughtless(clean(text))), Whole
	if tags := answerTag.FindAllStringSubmatch(read, -1); tags != nil {
		read, rule = strings.TrimSpace(tags[len(tags)-1][1]), AnswerTag
	}
	if f.Pattern != nil {
		read, rule = place(text, f.Pattern, nil)
	}
	return verdict(f.reason(read), read, rule)
}

func (f Free) reason(read string) string {
	said := tokenize(read)
	if strings.Trim(read, " \n.,;:\"'") == "" {
		return None
	}
	score := 0.0
	covered := make([]int, len(said.words)) // by word: the end of the accepted phrase that holds it
	for _, a := range f.Accepted {
		words := tokenize(a).words
		at := find(said.words, words)
		if at != nil || len(words) == 0 && strings.Contains(said.text, oneLine(fold(a))) {
			score = 1
		}
		score = max(score, f1(words, said.words))
		for _, from := range at {
			for k := range words {
				covered[from+k] = max(covered[from+k], from+len(words))
			}
		}
	}
	for _, r := range f.Rejected {
		words := tokenize(r).words
		contained := slices.ContainsFunc(find(said.words, words), func(from int) bool {
			return covered[from] < from+len(words) || slices.ContainsFunc(f.Accepted, func(a string) bool { return fold(a) == fold(r) })
		})
		if contained || len(words) == 0 && strings.Contains(said.text, oneLine(fold(r))) || score > 0 && f1(words, said.words) >= score {
			return Rejected
		}
	}
	if score == 0 || score < f.MinF1 {
		return Wrong
	}
	return ""
}

// f1 returns the harmonic mean of precision and recall of words, in any order.
func f1(want, got []token) float64 {
	if len(want)+len(got) == 0 {
		return 0
	}
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
	return 2 * float64(common) / float64(len(want)+len(got))
}
