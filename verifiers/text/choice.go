package text

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
)

// A Choice judges answers that name one of several choices.
type Choice struct {
	Question string
	Choices  []string // the first Labels of them are labelled A, B, …
	Labels   int
	Right    []int // indices of Choices; any one is right
	Pattern  *regexp.Regexp
}

// Judge judges a text.
func (c Choice) Judge(text string) Verdict {
	b := ballot{labels: c.Labels, question: words(c.Question)}
	for _, s := range c.Choices {
		b.forms, b.words = append(b.forms, forms(s)), append(b.words, tokenize(s).words)
	}
	read, rule := place(text, c.Pattern, func(first, last string) bool {
		i, j := b.only(first), b.only(last)
		return i >= 0 && (j < 0 || j == i)
	})
	named, why := b.read(read, beside(rule))
	wrong := func(i int) bool { return !slices.Contains(c.Right, i) }
	if why == "" && slices.ContainsFunc(named, wrong) {
		if why = Wrong; len(named) > 1 { // choices that are the same but for their case
			why = Several
		}
	}
	return verdict(why, read, rule)
}

// A ballot holds the choices in the forms in which texts name them.
type ballot struct {
	labels   int
	question map[string]bool
	forms    [][3]string
	words    [][]token
}

// equal returns the choices whose text s is.
func (b ballot) equal(s string) (all []int) {
	for level, form := range forms(s) {
		for i, f := range b.forms {
			if f[level] == form {
				all = append(all, i)
			}
		}
		if all != nil {
			return all
		}
	}
	return nil
}

var (
	marks      = strings.NewReplacer("*", "", "_", "", "`", "", `"`, "", "~", "")
	separators = expression(`^(?:[.:,;!)\]}>]|- )+`)
	computed   = expression(`^[^\p{L}]+[=≈]([^=≈]+)$`) // "2 + 4 = 6"
	capital    = expression(`\b[A-Z]\b`)
	// noLabel is what follows a letter that is a word or a part of one: "A planet", "I think", "A's".
	noLabel = expression(`^(?:A [b-df-hj-np-z]|I [a-z]|.['\p{M}]|.-\w)`)
)

// index returns the choice with a label, or -1.
func (b ballot) index(label string) int {
	if i := int(label[0]|0x20) - 'a'; i < b.labels {
		return i
	}
	return -1
}

// label returns the choice whose label a line begins with, or -1; what follows the label; and
// whether punctuation stands between them.
func (b ballot) label(line string) (i int, rest string, isSetOff bool) {
	line = strings.Trim(marks.Replace(line), "'$ ")
	m := phrasesOf().label.FindStringSubmatchIndex(line)
	if m == nil || b.index(line[m[4]:m[5]]) < 0 {
		return -1, "", false
	}
	rest = strings.TrimSpace(line[m[1]:])
	next, _ := utf8.DecodeRuneInString(line[m[5]:])
	if isWordRune(next) || strings.ContainsRune("'^=+/", next) {
		return -1, "", false
	}
	isSetOff = m[7] > m[6] || rest == "" || strings.ContainsRune(".:,;-([!", rune(rest[0]))
	return b.index(line[m[4]:m[5]]), bare(separators().ReplaceAllString(rest, "")), isSetOff
}

// only returns the choice that a line names by its label, alone or with the choice's own text, or
// by its text alone; -1 if it names none so.
func (b ballot) only(line string) int {
	i, rest, _ := b.label(settle(line))
	if all := b.equal(line); i < 0 && len(all) == 1 {
		return all[0]
	}
	if rest == "" || i >= 0 && slices.Contains(b.equal(rest), i) {
		return i
	}
	return -1
}

// read returns the choices that an answer names: several only if one text fits all of them.
// If there are none, it returns the reason.
func (b ballot) read(s string, limit int) ([]int, string) {
	line := settle(s)
	equal := b.equal(s)
	if m := computed().FindStringSubmatch(line); m != nil && equal == nil {
		equal = b.equal(m[1])
	}
	i, rest, isSetOff := b.label(line)
	switch {
	case i >= 0 && rest == "":
		return []int{i}, ""
	case equal != nil:
		return equal, ""
	case i < 0:
		return b.sentence(line, limit)
	}
	own := b.equal(rest)
	first, _ := utf8.DecodeRuneInString(rest)
	others, _ := b.mentioned(rest)
	switch isSubject := strings.HasPrefix(fold(rest), b.forms[i][1]); {
	case slices.Contains(own, i):
		return []int{i}, ""
	case own != nil, isSetOff && slices.ContainsFunc(others, func(j int) bool { return j != i }):
		return nil, Several
	case !isSetOff || unicode.IsLower(first) && !isSubject:
		return b.sentence(line, limit)
	case isSubject && doubts(fold(sentences(rest)[0]), b.question, maxWords):
		return nil, None
	}
	return []int{i}, "" // an explanation follows
}

// sentence returns the one choice that stands in a sentence by its label, its text or both.
func (b ballot) sentence(s string, limit int) ([]int, string) {
	for _, f := range b.forms {
		if len(f[0]) > 1 && capital().MatchString(f[0]) { // "A and B" names no labels
			s = strings.ReplaceAll(s, f[0], f[1])
		}
	}
	labels, rest := b.mentioned(s)
	texts, rest := scan(cases.Fold().String(rest)).named(b.words)
	named := slices.Compact(slices.Sorted(slices.Values(slices.Concat(labels, texts))))
	switch {
	case len(named) > 1:
		return nil, Several
	case len(named) == 0, doubts(rest, b.question, limit):
		return nil, None
	}
	return named, ""
}

// mentioned returns the choices whose labels stand in a line, and the line with found for them.
func (b ballot) mentioned(line string) (all []int, rest string) {
	var marked strings.Builder
	end := 0
	for _, m := range capital().FindAllStringIndex(line, -1) {
		before, _ := utf8.DecodeLastRuneInString(line[:m[0]])
		after, _ := utf8.DecodeRuneInString(line[m[1]:])
		i := b.index(line[m[0]:m[1]])
		if i < 0 || unicode.In(before, unicode.Latin, unicode.M) || strings.ContainsRune("'-", before) || unicode.In(after, unicode.Latin, unicode.M) || noLabel().MatchString(line[m[0]:]) {
			continue
		}
		marked.WriteString(line[end:m[0]] + found)
		all, end = append(all, i), m[1]
	}
	return all, marked.String() + line[end:]
}
