package text

import (
	"math/big"
	"slices"
	"strings"
	"unicode"
)

// Marks are private runes that only [sentence.marked] puts into a text. They stand for the phrases that are looked for, by
// number from firstMark on, and for labels from labelMark on.
const (
	firstMark, labelMark = '\U000F0000', '\U00100000'

	textRange, labelRange = `\x{F0000}-\x{FFFFF}`, `\x{100000}-\x{10FFFF}`
	found                 = `[` + textRange + labelRange + `]`
)

var (
	marks        = expression(found)
	sentenceEnd  = expression(`[.!?]["')\]$]*(?:\s+` + cross + `|\s|$)`)
	abbreviation = expression(`(?i)(?:^|[^\p{L}\d\s/°]\s?|\p{L}\s)(?:\p{L}|st|dr|mr|mrs|ms|prof|vs|ca|approx)\.$|\.\.$`)
	clause       = expression(`(?s).+?(?:[,;:!?.](?:\s+` + cross + `|\s|$)|\s(?:-|but|sondern|mais|sino|mas|ma)\s|ではなく|아니라|$)`)
	aside        = expression(`\([^()]*\)`)
	retraction   = expression(`^[^\p{L}` + textRange + labelRange + `]*(?:[\p{Ll}']{1,5} )*(?:no|` + wrong + `|` + cross + `)[^\p{L}\p{N}]*$`)
	openness     = expression(or)
	remark       = expression(`( ?[,;:-]?` + or + `.*)|(?:[,;:]| -) [^,;:?` + textRange + labelRange + `]*`)
	clauseStart  = expression(`(?s)^.*(?:` + so + `|[\n.,;:!?])`)
	conclusion   = expression(so)
	separator    = expression(`[,;]["\s]?(?:and\s|und\s|et\s|y\s|e\s)?|[&•·|]|` + and)
	notLabel     = expression(`^(?:A [b-df-hj-np-z]|I [a-z])`)
	conjunction  = expression(`;|` + and)
	appended     = expression(`(` + found + `)(?:: .*| \([^()]*\)|(?:,| -)(?: [^\s,]+){4}.*)`) // an explanation
)

// sentences returns the sentences of a line, at least one.
func sentences(line string) (all []string) {
	start := 0
	for _, m := range sentenceEnd().FindAllStringIndex(line, -1) {
		if !abbreviation().MatchString(line[max(0, m[0]-8) : m[0]+1]) {
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
	return denial().MatchString(clauseStart().ReplaceAllString(text[max(0, len(text)-MaxRead):], ""))
}

// affirmed returns a marked sentence without what denies, or is taken back, and without what explains an answer before it.
func affirmed(s string) string {
	if said := explanation().ReplaceAllString(s, ""); marks().MatchString(said) {
		s = said
	}
	affirm := func(part string) string {
		if denial().MatchString(part) {
			return ""
		}
		return part
	}
	said := ""
	for _, part := range clause().FindAllString(aside().ReplaceAllStringFunc(s, affirm), -1) {
		if said += affirm(part); retraction().MatchString(part) && !openness().MatchString(part) {
			said = ""
		}
	}
	return said
}

// isOpen reports whether a marked sentence asks, or leaves open, other than in a clause that follows
// without a mark. A clause that begins with such a word belongs to what precedes it.
func isOpen(s string) bool { return openness().MatchString(remark().ReplaceAllString(s, "$1")) }

// marked returns the text with marks in place of the longest phrases that begin at each word, and of labels. It removes
// the private runes that the text has, however they came into it, so that none can stand for a mark.
func (s sentence) marked(phrases [][]token, labels int, tolerance *big.Rat) string {
	var b strings.Builder
	isSame := func(a, b token) bool { return same(a, b, tolerance) }
	end := 0 // of what is written
	for from := 0; from < len(s.words); from++ {
		longest, all := 0, ""
		for i, words := range phrases {
			n := len(words)
			if n < longest || from+n > len(s.words) || !slices.EqualFunc(words, s.words[from:from+n], isSame) {
				continue
			}
			if n > longest {
				longest, all = n, ""
			}
			all += string(firstMark + rune(i))
		}
		if label := s.label(from, labels); longest == 0 && label >= 0 {
			longest, all = 1, string(labelMark+label)
		}
		if longest > 0 {
			b.WriteString(marks().ReplaceAllString(s.text[end:s.words[from].from], "") + all)
			from += longest - 1
			end = s.words[from].to
		}
	}
	return b.String() + marks().ReplaceAllString(s.text[end:], "")
}

// label returns the index of the choice that a word labels, -1 for none. It is a capital letter that is a word,
// but for "A planet" and "I think".
func (s sentence) label(word, labels int) rune {
	w := s.words[word]
	label := rune(s.text[w.from]) - 'A'
	if w.to-w.from > 1 || label < 0 || label >= rune(labels) || notLabel().MatchString(s.text[w.from:]) {
		return -1
	}
	return label
}

// marksOf returns the numbers of the marks from first on in a marked text, each once.
func marksOf(s string, first rune) (all []int) {
	for _, r := range s {
		if i := int(r - first); i >= 0 && i < labelMark-firstMark && !slices.Contains(all, i) {
			all = append(all, i)
		}
	}
	return all
}

// isList reports whether the mark in a sentence is an item of a list: two short parts stand beside it, or one
// if it is alone in its part. No item has a word of the question, begins with an article, or has lower case beside an
// upper-case answer. Commas do not separate answers that have commas.
func isList(s, answer string, question []token) bool {
	separator, upper := separator, unicode.IsUpper([]rune(answer)[0])
	if strings.Contains(answer, ",") {
		separator = conjunction
	}
	items := 0
	for _, part := range separator().Split(appended().ReplaceAllString(s, "$1"), -1) {
		words := tokenize(part).words
		switch isMarked := marks().MatchString(part); {
		case len(words) == 0 && isMarked:
			items++
		case len(words) == 0 || len(words) > 3 || isMarked || conclusion().MatchString(part):
		case upper && strings.IndexFunc(part, unicode.IsLower) == words[0].from, slices.Contains([]string{"a", "an", "i"}, words[0].text):
		case !slices.ContainsFunc(words, func(w token) bool { return has(question, w) }):
			items++
		}
	}
	return items > 1
}
