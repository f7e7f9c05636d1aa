package verifiers

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shortAnswer judges a word, a phrase or a number. It needs no engine.
func shortAnswer(_ context.Context, _ Engine, in Input) (Verdict, error) {
	eval, ok := in.Task.ShortAnswer()
	if !ok {
		return Verdict{}, fmt.Errorf("task %q is no short_answer", in.Task.ID())
	}
	var tolerance *big.Rat
	if eval.HasTolerance {
		tolerance = exactTolerance(eval.Tolerance.Reveal())
	}
	return newShortKey(eval.Question, eval.Accepted.Reveal(), tolerance).judge(in.Candidate.Text), nil
}

// A shortKey is what answers to one question are compared with.
type shortKey struct {
	question  string
	asked     map[string]bool // the question's words that are no alternatives
	accepted  []shortAccepted
	tolerance *big.Rat // nil: numbers are compared as texts
}

type shortAccepted struct {
	text    string
	words   []string
	numeral bool
	value   *big.Rat // of a numeral, unless it is out of bounds
	asked   bool     // it is a part of the question
}

func newShortKey(question string, accepted []string, tolerance *big.Rat) shortKey {
	k := shortKey{oneLine(fold(question)), map[string]bool{}, nil, tolerance}
	asked := texts(words(k.question))
	offers := slices.Contains(asked, "or") // then its words are alternatives
	for _, w := range asked {
		k.asked[w] = !offers
	}
	for _, s := range accepted {
		a := shortAccepted{text: trimEdges(oneLine(fold(s)))}
		if a.text == "" {
			a.text = oneLine(fold(s))
		}
		a.words = texts(words(a.text))
		a.asked = len(find(asked, a.words)) > 0
		if n, ok := wholeNumeral(a.text); ok {
			a.numeral, a.value = true, n.value()
		}
		k.accepted = append(k.accepted, a)
	}
	return k
}

// judge is pure, and linear in the text.
func (k shortKey) judge(text string) Verdict {
	all := k.withoutQuestion(lines(fold(text)))
	if len(all) == 0 {
		return failed(reasonNone, "the answer is empty")
	}
	whole := strings.Join(all, " ")
	if _, rule := k.match(whole); rule != "" {
		return matched(rule)
	}
	if a, rule := k.match(all[len(all)-1]); rule != "" {
		if k.contradicted(all, a) {
			return failed(reasonSeveral, "the answer gives several alternatives")
		}
		return matched(rule)
	}
	if got := texts(words(whole)); !denies(got) {
		for _, a := range k.accepted {
			if len(find(got, a.words)) > 0 {
				return failed(reasonSeveral, "the answer is not given on its own")
			}
		}
	}
	return failed(reasonWrong, "the answer is none of those accepted")
}

// withoutQuestion drops a question that is quoted before the answer.
func (k shortKey) withoutQuestion(all []string) []string {
	var out []string
	for _, line := range all {
		if rest, ok := strings.CutPrefix(line, k.question); ok && k.question != "" && (rest == "" || rest[0] == ' ') {
			line = strings.TrimSpace(rest)
		}
		if trimEdges(line) != "" || k.isAccepted(line) {
			out = append(out, line)
		}
	}
	return out
}

func (k shortKey) isAccepted(s string) bool {
	return slices.ContainsFunc(k.accepted, func(a shortAccepted) bool { return a.text == s })
}

// match returns the accepted answer that s gives, and the rule by which it does.
func (k shortKey) match(s string) (shortAccepted, string) {
	for _, a := range k.accepted {
		if s == a.text {
			return a, "equal"
		}
	}
	for r := range readings(s) {
		if n, ok := wholeNumeral(r); ok {
			for _, a := range k.accepted {
				if k.near(n, a) {
					return a, "number"
				}
			}
		}
		for _, a := range k.accepted {
			if r == a.text {
				return a, "equal"
			}
		}
	}
	said := statement{s, texts(words(s)), numerals(s)}
	for _, a := range k.accepted {
		if k.spans(said, a) {
			return a, "span"
		}
	}
	return shortAccepted{}, ""
}

// near compares numbers, exactly.
func (k shortKey) near(n numeral, a shortAccepted) bool {
	if k.tolerance == nil || a.value == nil {
		return false
	}
	v := n.value()
	if v == nil {
		return false
	}
	return v.Sub(v, a.value).Abs(v).Cmp(k.tolerance) <= 0
}

// A statement is a text that may say an answer in other words.
type statement struct {
	text    string
	words   []string
	numbers []numeral
}

// spans reports whether s says a, and no other thing that could be an answer.
func (k shortKey) spans(s statement, a shortAccepted) bool {
	switch {
	case strings.ContainsAny(s.text, "?≠≤≥<>"), strings.Contains(s.text, "!="):
		return false
	case a.numeral:
		return k.spansNumber(s, a)
	case len(a.words) == 1 && isClosed(a.words[0]), !s.hasSymbols(a.text):
		return false
	}
	at := find(s.words, a.words)
	if len(at) == 0 {
		return false
	}
	mayDeny := denies(a.words)
	others := k.otherWords(a)
	next := 0 // the first word behind the last span
	for i, w := range s.words {
		if len(at) > 0 && at[0] == i {
			next, at = i+len(a.words), at[1:]
		}
		switch {
		case i < next, isGlue(w), others[w], mayDeny && isNegation(w):
		case !isNegation(w) && k.asked[w] && !a.asked && !strings.ContainsFunc(w, unicode.IsNumber):
		default:
			return false
		}
	}
	return true
}

// hasSymbols reports whether s has the symbols of the accepted answer, and no
// number that this has not: "-$5" and "5" are not "$5".
func (s statement) hasSymbols(accepted string) bool {
	symbol := func(r rune) bool { return !isWordRune(r) && !strings.ContainsRune(" .,;:!()\"'-", r) }
	if strings.ContainsFunc(accepted, symbol) && !strings.Contains(s.text, accepted) {
		return false
	}
	own := numerals(accepted)
	foreign := func(n numeral) bool {
		return !slices.ContainsFunc(own, func(m numeral) bool { return m.text == n.text && m.clear == n.clear })
	}
	return !slices.ContainsFunc(s.numbers, foreign)
}

// otherWords returns the words of the other accepted answers, which may stand
// beside a.
func (k shortKey) otherWords(a shortAccepted) map[string]bool {
	m := map[string]bool{}
	for _, other := range k.accepted {
		if other.text != a.text && !denies(other.words) {
			for _, w := range other.words {
				m[w] = true
			}
		}
	}
	return m
}

// spansNumber reports whether a is the only number of s. Other words may be
// units and explanations.
func (k shortKey) spansNumber(s statement, a shortAccepted) bool {
	if len(s.numbers) == 0 {
		return false
	}
	n := s.numbers[0]
	other := func(m numeral) bool { return !m.clear || m.text != n.text }
	if slices.ContainsFunc(s.numbers, other) || n.text != a.text && !k.near(n, a) {
		return false
	}
	return !denies(s.words) && !slices.ContainsFunc(s.words, changesNumber)
}

// changesNumber reports whether w makes another value of the number beside it.
func changesNumber(w string) bool {
	switch w {
	case "or", "either", "than", "least", "most", "minus", "negative", "above", "below", "over", "under",
		"plus", "times", "half", "thousand", "million", "billion", "trillion", "hundred", "dozen":
		return true
	}
	return false
}

// contradicted reports whether an earlier line gives another answer than a, as
// firmly as the last one gives a.
func (k shortKey) contradicted(all []string, a shortAccepted) bool {
	_, said := focus(all[len(all)-1])
	for i, line := range all[:len(all)-1] {
		text, says := focus(line)
		if said && !says || k.gives(text, a) {
			continue
		}
		n, isNumber := wholeNumeral(text)
		switch {
		case a.numeral:
			if isNumber && n.text != a.text {
				return true
			}
		case (says || i == len(all)-2) && k.isAlternative(line, text, a):
			return true
		}
	}
	return false
}

// gives reports whether a focused text is a.
func (k shortKey) gives(text string, a shortAccepted) bool {
	n, ok := wholeNumeral(text)
	return text == a.text || ok && k.near(n, a)
}

// focus returns the innermost reading of a line.
func focus(line string) (text string, says bool) {
	for text, says = range readings(line) {
	}
	return text, says
}

// isAlternative reports whether a line could be meant as an answer: short, with
// one to three words that say something, and not a.
func (k shortKey) isAlternative(line, text string, a shortAccepted) bool {
	if strings.HasSuffix(line, ":") || strings.HasSuffix(line, "?") {
		return false
	}
	got := texts(words(text))
	if len(got) > 6 || len(got) > 1 && denies(got) || len(find(got, a.words)) > 0 {
		return false
	}
	said := 0
	for _, w := range got {
		if !isGlue(w) && (a.asked || !k.asked[w]) {
			said++
		}
	}
	return 0 < said && said <= 3
}

// isGlue reports whether w is a word that is no answer by itself.
func isGlue(w string) bool {
	switch w {
	case "a", "an", "the", "this", "that", "these", "those", "it", "its", "it's", "that's", "he", "she", "they", "we", "you", "i", "i'm", "me",
		"my", "our", "his", "her", "their", "there", "here", "is", "are", "was", "were", "be", "been", "being", "am", "has", "have", "had",
		"do", "does", "did", "would", "could", "should", "must", "of", "in", "on", "at", "to", "for", "from", "by", "with",
		"as", "and", "so", "thus", "hence", "therefore", "then", "because", "since", "which", "who", "what", "where", "when", "whose", "how",
		"answer", "final", "correct", "solution", "result", "called", "named", "known", "name", "namely",
		"think", "thinking", "believe", "believed", "know", "say", "said", "let", "sure", "course", "indeed", "simply", "just", "also", "very",
		"approximately", "about", "around", "roughly":
		return true
	}
	return false
}

// isClosed reports whether w is of those words that glue could be the
// alternatives of, such as a preposition or a letter. It has to be given alone.
func isClosed(w string) bool {
	switch w {
	case "under", "over", "above", "below", "into", "onto", "between", "among", "after", "before", "through", "during", "towards", "toward",
		"until", "than", "or", "but", "if", "why", "him", "them", "us", "your", "mine", "yours", "hers", "ours", "theirs",
		"will", "shall", "can", "may", "might", "ought", "near", "nearly", "exactly", "some", "any", "all":
		return true
	}
	return utf8.RuneCountInString(w) == 1 || isGlue(w)
}
