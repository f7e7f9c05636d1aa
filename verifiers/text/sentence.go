package text

import (
	"maps"
	"slices"
	"strings"
)

// found stands in a sentence for the words that were looked for; no clean text has it.
const found = "\x01"

// How many strange words may stand beside an answer: in its clause, or as the unit of a number, and
// in all of the sentence. In a line they are half as many if it does not take up the question.
const (
	maxClause = 5
	maxWords  = 16
)

// inProse is the limit of strange words that depends on the sentence.
const inProse = -1

// beside returns how many strange words may stand beside an answer that a rule has found.
func beside(rule Rule) int {
	if rule == Whole || rule == FirstLine || rule == LastLine {
		return inProse
	}
	return 0 // only the answer may stand in a form
}

var (
	wordRun   = expression(`\p{L}[\p{L}\p{M}\p{N}'-]+`) // in scripts without spaces, a run of characters
	nonLatin  = expression(`[\p{Hangul}` + spaceless + `]`)
	clauseEnd = expression(`[.,;:!?。]`)
	separator = expression(`[,&•·\n。和と]|[.;-](?:\s|$)| (?:and|und|et|y|e) `)
	aside     = expression(`\([^()` + found + `]*\)`)
	bracketed = expression(`(?:^|[^\p{L}\d])\([^()]*` + found) // "Sydney (or Canberra)"
	// ending is what Japanese and Korean add to an answer.
	ending = expression(`(?:です|である|だ|となります|になります|번?(?:입니다|이다|예요|이에요)|번)[.。!]?$`)
	// reason is what follows an answer and does not change it: "because …", ", not Sydney".
	reason = expression(`(?i)(?:,? (?:because|parce que|porque|perché)|, (?:since|weil|denn|car|pois)) .*|, ?因[为為].*|, (?:and |but |und |et |e |y )?(?:not|nicht|non|pas|não|no) (?:(?:the|an?|die|der|das|le|la) |(?-i:[\p{Lu}\d"'*($])).*|(?:,|而)+ ?而?不是.*|^[^,。]*(?:ではなく|(?:이|가) 아니라),?`)
)

// settle returns one line without what surrounds an answer and does not change it.
func settle(s string) string {
	return strings.TrimSpace(ending().ReplaceAllString(reason().ReplaceAllString(oneLine(withoutLaTeX(clean(s))), ""), ""))
}

// words returns the words of a question, folded.
func words(question string) map[string]bool {
	all := map[string]bool{}
	for _, w := range wordRun().FindAllString(fold(question), -1) {
		all[strings.TrimSuffix(w, "'s")] = true
	}
	return all
}

// strange returns how many words of a folded text are neither those of the question nor of announcements.
func strange(text string, question map[string]bool) (n int) {
	for _, w := range wordRun().FindAllString(text, -1) {
		if w = strings.TrimSuffix(w, "'s"); !question[w] && !phrasesOf().known.MatchString(w) {
			n++
		}
	}
	return n
}

// shared returns how many different words of a text, other than short ones, are those of the question.
func shared(text string, question map[string]bool) int {
	all := words(text)
	maps.DeleteFunc(all, func(w string, _ bool) bool { return len(w) < len("moon") || !question[w] })
	return len(all)
}

// restatement returns the sentence of a line that takes up most of the question, the last of such
// ones, or else the line.
func restatement(line string, question map[string]bool) string {
	best, most := line, 1
	for _, s := range sentences(line) {
		if n := shared(s, question); n >= most {
			best, most = s, n
		}
	}
	return best
}

// doubts reports whether a folded sentence, with found for the answer in it, may not give that
// answer: it denies, asks, leaves open, or has more than limit strange words.
func doubts(sentence string, question map[string]bool, limit int) bool {
	counted := sentence
	if limit == inProse {
		counted = aside().ReplaceAllString(sentence, "")
		clause := maxClause
		if limit = maxWords; shared(sentence, question) == 0 && !nonLatin().MatchString(sentence) {
			limit, clause = limit/2, clause/2
		}
		for _, c := range clauseEnd().Split(counted, -1) {
			if strings.Contains(c, found) && strange(c, question) > clause {
				return true
			}
		}
	}
	return phrasesOf().doubt.MatchString(sentence) || strings.HasSuffix(strings.TrimRight(sentence, ` "'*_)`), "?") || strange(counted, question) > limit
}

// isList reports whether the answer stands in brackets, or is an item of a list: beside it stand
// short parts without words of the question, two of them, or one if the answer stands alone.
func isList(rest string, question map[string]bool) bool {
	items := 0
	for _, part := range separator().Split(rest, -1) {
		n := strange(part, question)
		if isAnswer := strings.Contains(part, found); isAnswer && n == 0 || !isAnswer && 0 < n && n < maxClause && n == strange(part, nil) && !article().MatchString(strings.TrimSpace(part)) {
			items++
		}
	}
	return items > 1 || bracketed().MatchString(rest)
}

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
