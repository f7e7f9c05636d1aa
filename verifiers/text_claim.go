package verifiers

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A reader finds the answer that a text gives to a question with short answers.
type reader struct {
	question echo            // words of the question
	aside    map[string]bool // words that may stand beside any answer
	denial   bool            // an accepted answer is itself a negation
	numeric  bool            // the answers are numbers or dates, to which words are no alternatives
	open     bool            // an unknown text is an alternative to the known answers
}

// firmness is how clearly a statement gives its answer.
type firmness int

const (
	listed    firmness = iota // a label with its text, as in a quoted question
	alone                     // the answer and nothing else
	sentence                  // "it is …", words of the question
	announced                 // "the answer is …"
)

// role is what a statement does in an answer.
type role int

const (
	idle     role = iota // says nothing
	prose                // says something else
	claims               // gives an answer
	refuses              // denies an answer or something else
	retracts             // denies what was said before
	doubts               // mentions an answer without giving it
)

// A said is the meaning of a statement.
type said struct {
	role    role
	firm    firmness
	answers []int // those that it gives or denies; a claim with none gives an unknown one
	spoils  bool  // it makes its whole sentence uncertain
	at      *statement
}

// read returns the answers that a text with the mentions gives: several if the same words fit several, none
// with the reason.
func (r reader) read(ts []token, ms []mention) ([]int, string) {
	all := r.understand(statements(ts, ms))
	last := r.decisive(all)
	if last < 0 {
		return nil, r.withoutClaim(all)
	}
	decision := all[last]
	given := decision.answers
	for i, s := range all {
		near := s.at.sentence == decision.at.sentence
		line := s.at.line == decision.at.line
		if i == last {
			if s.spoils {
				return nil, reasonSeveral
			}
			continue
		}
		switch {
		case near && s.spoils, near && s.role == doubts, s.role == doubts && s.firm == announced && !s.at.asks && meet(s.answers, given) == nil, i > last && s.role == retracts, i > last && s.role == doubts && !s.at.asks && !r.open:
			return nil, reasonSeveral
		case s.role == refuses && (near || i > last) && meet(s.answers, given) != nil:
			return nil, reasonSeveral
		case near && s.role == refuses && i < last && decision.firm == alone && decision.at.opened != "but":
			return nil, reasonSeveral
		case near && s.role == prose && i < last && decision.firm < sentence && r.open && !r.numeric:
			return nil, reasonSeveral
		case s.role != claims:
			continue
		}
		common := meet(given, s.answers)
		switch {
		case common != nil:
			given = common
		case s.firm >= decision.firm, near, line && i < last, line && r.open, i > last && s.answers != nil:
			return nil, reasonSeveral
		}
	}
	if given == nil {
		return nil, reasonWrong
	}
	return given, ""
}

// decisive returns the last of the firmest claims, or -1.
func (r reader) decisive(all []said) int {
	last := -1
	for i, s := range all {
		if s.role == claims && (last < 0 || s.firm >= all[last].firm) {
			last = i
		}
	}
	return last
}

// withoutClaim returns why a text in which no statement gives an answer fails.
func (r reader) withoutClaim(all []said) string {
	said := false
	for _, s := range all {
		if s.role == doubts {
			return reasonSeveral
		}
		said = said || s.role != idle
	}
	if said && r.open {
		return reasonWrong
	}
	return reasonNone
}

func meet(a, b []int) []int {
	var out []int
	for _, x := range a {
		if slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	return out
}

// understand finds the role of each statement. An announcement without an answer of its own
// applies to what follows it.
func (r reader) understand(ss []statement) []said {
	all := make([]said, len(ss))
	lead := idleLead
	for i := range ss {
		s := r.classify(&ss[i], i+1 < len(ss) && ss[i+1].opened == "=")
		switch {
		case s.role == idle && s.firm == announced:
			lead = ss[i].sentence
		case lead == ss[i].sentence, i > 0 && all[i-1].role == idle && lead == ss[i-1].sentence:
			s.firm = announced
			if s.role == claims {
				lead = ss[i].sentence
			}
		}
		all[i] = s
	}
	for i := len(all) - 2; i >= 0; i-- {
		// "A, C and D are wrong" denies the first, too.
		a, b := &all[i], &all[i+1]
		if a.role == claims && a.firm == alone && a.answers != nil && b.role == refuses && b.at.opened == "," && b.at.startsWithMention() && a.at.sentence == b.at.sentence {
			a.role = refuses
		}
	}
	return all
}

func (s *statement) startsWithMention() bool {
	return s.mentions != nil && s.mentions[0].from == s.from
}

const idleLead = -1

// A count holds how many tokens of each kind a statement has outside its mentions.
type count struct{ unknown, numbers, asked, copulas, signs int }

func (r reader) classify(s *statement, isWorking bool) said {
	out := said{at: s, firm: alone}
	if isWorking {
		return out
	}
	if s.opened == "because" {
		out.role = prose
		return out
	}
	t := s.toneOf()
	t.denies = t.denies && !(r.denial && s.mentions == nil)
	c, announcing := r.count(s)
	switch {
	case announcing:
		out.firm = announced
	case c.copulas > 0, c.asked > 0 && s.mentions != nil, c.asked > 1, s.opened == "=":
		out.firm = sentence
	case slices.ContainsFunc(s.mentions, func(m mention) bool { return m.listed }):
		out.firm = listed
	}
	short := c.unknown+c.numbers <= 3 && len(s.tokens)-c.asked <= 6
	out.spoils = t.hedges || t.or && (s.mentions != nil || short) || s.asks && s.mentions != nil
	if len(s.mentions) == 0 {
		switch {
		case r.open && len(s.tokens) == 1 && s.wordAt(0) == "no": // the opposite of "yes", so an answer
			out.role = claims
		case t.denies && c.unknown+c.numbers == 0:
			out.role, out.spoils = retracts, true
		case t.denies:
			out.role = refuses
		case c.unknown+c.numbers+c.signs == 0:
			out.role = idle
		case s.asks, !r.open, !short, s.narrates(), r.numeric && (c.numbers == 0 || c.signs > 0 || c.unknown > 2):
			out.role = prose
		default:
			out.role = claims
		}
		return out
	}
	out.answers = s.mentions[0].answers
	same := true
	for _, m := range s.mentions[1:] {
		common := meet(out.answers, m.answers)
		same = same && common != nil
		if common != nil {
			out.answers = common
		}
	}
	switch {
	case out.spoils:
		out.role = doubts
	case t.denies:
		out.role, out.answers = refuses, nil
		for _, m := range s.mentions {
			if !slices.Equal(meet(m.answers, out.answers), m.answers) {
				out.answers = append(out.answers, m.answers...)
			}
		}
	case !same, !r.isPure(s, c):
		out.role = doubts
	default:
		out.role = claims
	}
	return out
}

func (r reader) count(s *statement) (c count, announcing bool) {
	for i, t := range s.tokens {
		switch {
		case t.named, isQuiet(t), s.isHarmless(i), r.numeric && s.isExponent(i) && !r.question.hasUnit():
		case t.kind == symbol:
			c.signs++
		case t.kind != word:
			if r.question.has(t) {
				c.asked++
			} else {
				c.numbers++
			}
		case announcement.has(t.text):
			announcing = true
		case r.aside[t.text], t.text == "yes" && !r.denial:
		case denial.has(t.text), hedge.has(t.text): // see toneOf
		case copula.has(t.text):
			c.copulas++
		case glue.has(t.text):
		case r.question.has(t):
			c.asked++
		default:
			c.unknown++
		}
	}
	return c, announcing
}

// isExponent reports whether the token at i belongs to the exponent of a unit.
func (s *statement) isExponent(i int) bool {
	if s.wordAt(i) != "^" {
		return i > 1 && s.wordAt(i-1) == "^" && s.tokens[i-2].kind == word
	}
	return i > 0 && s.tokens[i-1].kind == word
}

// narrates reports whether a statement says what somebody does: "they scored more".
func (s *statement) narrates() bool {
	switch s.wordAt(0) {
	case "he", "she", "it", "they", "we", "i":
		return !copula.has(s.wordAt(1))
	}
	return slices.ContainsFunc(s.tokens, func(t token) bool {
		return slices.Contains([]string{"has", "have", "had", "do", "does", "did"}, t.text)
	})
}

// isQuiet reports whether t is a symbol without meaning: a mark of emphasis, an emoji.
func isQuiet(t token) bool {
	if t.kind != symbol {
		return false
	}
	r, _ := utf8.DecodeRuneInString(t.text)
	return strings.ContainsRune("*_`'\"{}$~#\\-,:.!", r) || unicode.In(r, unicode.So, unicode.Sk) && !strings.ContainsRune("❌✗✘\ufffd", r)
}

// isPure reports whether a statement gives the answer that it mentions, and nothing else.
func (r reader) isPure(s *statement, c count) bool {
	if c.signs > 0 || c.numbers > 0 {
		return false
	}
	for _, m := range s.mentions {
		from, to := m.from-s.from, m.to-s.from
		if isNumberAt(s.tokens, from) && to == from+1 && !s.isClear(from) {
			return false
		}
		if to == from+1 && s.tokens[from].kind == word && standIn.has(s.tokens[from].text) && !m.label && (len(s.mentions) > 1 || !s.isLast(to)) {
			return false
		}
	}
	if !r.numeric {
		return c.unknown == 0
	}
	return r.isNumberPure(s)
}

// isLast reports whether nothing in the statement follows the mention that ends at to, and
// only words of an announcement precede it.
func (s *statement) isLast(to int) bool {
	if to < len(s.tokens) && slices.ContainsFunc(s.tokens[to:], func(t token) bool { return t.kind != symbol }) {
		return false
	}
	for _, t := range s.tokens[:to] {
		if t.kind == word && !t.named && !announcement.has(t.text) && !copula.has(t.text) && t.text != "the" {
			return false
		}
	}
	return true
}

// isClear reports whether nothing next to the number at i changes its value.
func (s *statement) isClear(i int) bool {
	const quiet = "*_`'\"{}$:,"
	near := func(step int, skipped string) token {
		for j := i + step; 0 <= j && j < len(s.tokens); j += step {
			if t := s.tokens[j]; t.kind != symbol || !strings.Contains(skipped, t.text) {
				return t
			}
		}
		return token{}
	}
	before, after := near(-1, quiet), near(1, quiet+".")
	r, size := utf8.DecodeRuneInString(after.text)
	switch {
	case before.kind == symbol && !strings.Contains("~≈=([|.!?;\n", before.text),
		before.kind == word && (changer.has(before.text) || before.text == "from" || before.text == "to"):
		return false
	case after.kind == symbol:
		return size == 0 || strings.ContainsRune("°€£¥", r) || unicode.In(r, unicode.So)
	}
	return !changer.has(after.text) && !(after.glued && slices.Contains([]string{"th", "st", "nd", "rd", "s"}, after.text))
}

// isNumberPure is isPure for numbers, which may have a unit after them and the name of a
// quantity before "is".
func (r reader) isNumberPure(s *statement) bool {
	first, last := s.mentions[0].from-s.from, s.mentions[len(s.mentions)-1].to-s.from
	if !r.isQuantity(s, first) {
		return false
	}
	return !slices.ContainsFunc(r.withoutUnit(s.tokens[last:]), func(t token) bool {
		return t.kind == word && (changer.has(t.text) || !glue.has(t.text) && !r.question.has(t) && !r.aside[t.text])
	})
}

const maxQuantity = 4 // words in the name of a quantity that the question does not use

func (r reader) isQuantity(s *statement, to int) bool {
	unknown, linked := 0, s.opened == "=" || s.opened == ":"
	for i := to - 1; i >= 0; i-- {
		t := s.tokens[i]
		switch {
		case t.kind == symbol, t.named:
		case t.kind == word && changer.has(t.text):
			if !r.question.has(t) {
				return false
			}
		case copula.has(t.text):
			linked = true
		case glue.has(t.text), r.question.has(t), r.aside[t.text]:
		case !linked:
			return false
		default:
			unknown++
		}
	}
	return unknown <= maxQuantity
}

// withoutUnit drops a unit at the start of ts, the tokens after a number. If the question
// names units, it has to be one of them.
func (r reader) withoutUnit(ts []token) []token {
	for len(ts) > 0 && isQuiet(ts[0]) {
		ts = ts[1:]
	}
	if len(ts) == 0 || ts[0].kind != word || glue.has(ts[0].text) || standIn.has(ts[0].text) && !unit.has(ts[0].text) || changer.has(ts[0].text) {
		return ts
	}
	if unit.has(ts[0].text) && !r.question.has(ts[0]) && r.question.hasUnit() {
		return ts
	}
	ts = ts[1:]
	if len(ts) > 1 && (ts[0].text == "/" || ts[0].text == "per") && ts[1].kind == word && (r.question.has(ts[1]) || !r.question.hasUnit()) {
		return ts[2:]
	}
	return ts
}

func (e echo) hasUnit() bool {
	for w := range e {
		if unit.has(w) {
			return true
		}
	}
	return false
}
