package verifiers

import (
	"slices"
	"strings"
)

// A mention is a place where a text names a known answer: an accepted one, or a choice.
type mention struct {
	answers  []int // several if the words fit several
	from, to int   // tokens of the text, to excluded
	label    bool  // it is the label of a choice, perhaps with its text
	listed   bool  // it is a label with its text
}

// A statement is a clause of a text: the tokens between two separators.
type statement struct {
	tokens   []token
	mentions []mention
	from     int    // index of its first token in the text
	line     int    // its number in the text, blank lines not counted
	sentence int    // its number in the text
	opened   string // the separator before it; ",", "but" or "because" for a conjunction
	asks     bool   // its sentence ends in a question mark
}

// statements splits a text into clauses, and marks the tokens of mentions as named. A
// separator within a mention belongs to the mention.
func statements(ts []token, ms []mention) []statement {
	var out []statement
	line, sentence := 0, 0
	opened, begin, next := "\n", 0, 0
	flush := func(end int) {
		if end > begin {
			s := statement{tokens: ts[begin:end], from: begin, line: line, sentence: sentence, opened: opened}
			for next < len(ms) && ms[next].from < end {
				s.mentions = append(s.mentions, ms[next])
				next++
			}
			out = append(out, s)
		}
	}
	inside := 0 // the end of the mentions that have begun
	for i, m := 0, 0; i < len(ts); i++ {
		for ; m < len(ms) && ms[m].from <= i; m++ {
			inside = max(inside, ms[m].to)
		}
		if ts[i].named = i < inside; ts[i].named {
			continue
		}
		t := ts[i]
		switch {
		case t.kind == word && conjunctionAt(ts, i) != "":
			flush(i)
			begin, opened = i+1, conjunctionAt(ts, i)
		case t.kind != symbol || !separates(ts, i):
		case strings.Contains("\n.!?;", t.text):
			flush(i)
			if t.text == "?" {
				for j := len(out) - 1; j >= 0 && out[j].sentence == sentence; j-- {
					out[j].asks = true
				}
			}
			if t.text == "\n" && len(out) > 0 && out[len(out)-1].line == line {
				line++
			}
			begin, opened = i+1, t.text
			sentence++
		default:
			flush(i)
			begin, opened = i+1, t.text
		}
	}
	flush(len(ts))
	return out
}

// separates reports whether the symbol at i ends a clause. Between two numbers it may belong
// to a number.
func separates(ts []token, i int) bool {
	t := ts[i]
	switch t.text {
	case "\n", "?", ";", "(", ")", "[", "]", "|", "=", "≈", "→", "⇒", "\"", "•":
		return true
	case ",", ":":
		return !isNumberAt(ts, i-1) || !isNumberAt(ts, i+1) || !ts[i+1].glued
	case ".":
		return i+1 == len(ts) || !ts[i+1].glued || ts[i+1].kind == symbol
	case "!": // after a number, a factorial
		return !isNumberAt(ts, i-1) || !t.glued
	case "-":
		if isNumberAt(ts, i+1) && (i == 0 || ts[i-1].kind != word || len(ts[i-1].text) == 1) {
			return false // a minus
		}
		return !t.glued && (i+1 == len(ts) || !ts[i+1].glued)
	}
	return false
}

func isNumberAt(ts []token, i int) bool { return 0 <= i && i < len(ts) && ts[i].kind == number }

// conjunctionAt returns what the word at i opens a clause with; "" if it begins none, like the
// "but" of "anything but".
func conjunctionAt(ts []token, i int) string {
	before := ""
	if i > 0 {
		before = ts[i-1].text
	}
	if w := ts[i].text; w == "as" && before != "," || w == "but" && quantifier.has(before) {
		return ""
	}
	return conjunction.of(ts[i].text)
}

// A tone is the way in which a statement mentions something.
type tone struct {
	denies bool // it has a negation outside of its mentions
	hedges bool // it leaves open whether it is so
	or     bool // it gives alternatives
}

// toneOf judges by the words outside of mentions.
func (s statement) toneOf() tone {
	var t tone
	for i := range s.tokens {
		w := s.tokens[i].text
		if s.tokens[i].kind != word || s.tokens[i].named {
			continue
		}
		switch {
		case denial.has(w):
			t.denies = t.denies || !s.isHarmless(i)
		case w == "but":
			t.denies = true
		case hedge.has(w):
			t.hedges = true
		case w == "or":
			t.or = true
		case w == "far" && s.wordAt(i+1) == "from":
			t.denies = true
		}
	}
	return t
}

func (s statement) wordAt(i int) string {
	if 0 <= i && i < len(s.tokens) {
		return s.tokens[i].text
	}
	return ""
}

// isHarmless reports whether the negation at i denies nothing: "not only", "no
// doubt", "without question".
func (s statement) isHarmless(i int) bool {
	near := func(step int) string { // the word beside it, but for an article
		if w := s.wordAt(i + step); w != "a" && w != "any" {
			return w
		}
		return s.wordAt(i + 2*step)
	}
	switch s.tokens[i].text {
	case "without", "no":
		return slices.Contains([]string{"doubt", "question"}, near(1))
	case "not":
		return slices.Contains([]string{"only", "just", "merely", "simply"}, near(1))
	case "doubt":
		return slices.Contains([]string{"no", "without"}, near(-1))
	}
	return false
}

// denies reports whether any word is a negation.
func denies(ws []string) bool {
	return slices.ContainsFunc(ws, denial.has)
}

// An echo holds the stems of a question's words, which say nothing new in an answer.
type echo map[string]bool

// newEcho leaves out the alternatives that a question offers with "or".
func newEcho(question []token) echo {
	e := echo{}
	sentences := map[int][]statement{}
	all := statements(question, nil)
	for _, s := range all {
		sentences[s.sentence] = append(sentences[s.sentence], s)
	}
	for _, clauses := range sentences {
		offered := slices.ContainsFunc(clauses, func(s statement) bool { return s.toneOf().or })
		for i, s := range clauses {
			words := slices.DeleteFunc(slices.Clone(s.tokens), func(t token) bool { return t.kind == symbol })
			if offered && (i > 0 || len(clauses) == 1) {
				continue
			}
			if asks := s.wordAt(0); offered && clauses[1].opened == "," && (asks == "is" || asks == "are" || asks == "was") {
				words = words[:len(words)-1] // the first alternative
			}
			for _, t := range words {
				e[stem(t)] = true
			}
		}
	}
	return e
}

func (e echo) has(t token) bool { return e[stem(t)] }

// stem returns the same text for the inflected forms of a word: it drops an ending, and the
// vowels after the first letter, which change in "write", "wrote", "written".
func stem(t token) string {
	if t.kind != word {
		return t.text
	}
	w := t.text
	w = strings.TrimSuffix(w, "'s")
	if c := unit.of(w); c != "" {
		return c
	}
	if len(w) < 3 {
		return w
	}
	for _, ending := range []string{"est", "ers", "er", "ing", "en", "ed", "es", "s"} {
		if rest, ok := strings.CutSuffix(w, ending); ok && len(rest) >= 3 {
			w = rest
			break
		}
	}
	var b strings.Builder
	last := rune(0)
	for i, r := range w {
		if i > 0 && (strings.ContainsRune("aeiouy", r) || r == last) {
			continue
		}
		b.WriteRune(r)
		last = r
	}
	return b.String()
}
