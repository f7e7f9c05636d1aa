package text

import (
	"regexp"
	"slices"
	"strings"
)

// A Choice judges answers that name one of several choices.
type Choice struct {
	Choices []string // the first Labels of them are labelled A, B, …
	Labels  int
	Right   []int // indices of Choices; any one is right
	Pattern *regexp.Regexp
}

// Judge judges a text.
func (c Choice) Judge(text string) Verdict {
	b := ballot{labels: c.Labels}
	for _, s := range c.Choices {
		words := wordsOf(s)
		if len(words) == 1 && len(words[0].text) == 1 && !words[0].isNumber { // rather a label, or an article
			words = nil
		}
		b.forms, b.words = append(b.forms, forms(plain(clean(s)))), append(b.words, words)
	}
	read, rule := place(text, c.Pattern, b.pick)
	named, why, _ := b.read(read)
	if slices.ContainsFunc(named, func(i int) bool { return !slices.Contains(c.Right, i) }) {
		if why = Wrong; len(named) > 1 { // choices that are the same but for their case
			why = Several
		}
	}
	return verdict(why, read, rule)
}

// A ballot holds the choices in the forms in which texts name them.
type ballot struct {
	labels int
	forms  [][2]string
	words  [][]token
}

// pick picks the first line if it is an answer before an explanation. Else it picks the last line, or a last list of all
// choices with labels.
func (b ballot) pick(lines []string) (string, Rule) {
	first, last := lines[0], lines[len(lines)-1]
	_, why, isBare := b.read(first)
	_, whyLast, isBareLast := b.read(last)
	isList := item().MatchString(first) && item().MatchString(lines[1])
	// A sentence or an item that names other choices explains a first line that is nothing but its choice.
	explains := whyLast == None || last[0] == '|' || isBare && !isList && (!isBareLast || item().MatchString(last) && len(lines) > 2)
	if why == "" && explains {
		return first, FirstLine
	}
	all := lines[max(0, len(lines)-b.labels):]
	isEnd := strings.HasPrefix(strings.TrimLeft(last, "-+*([ "), string(rune('A'+b.labels-1)))
	if isEnd && len(all) == b.labels && !slices.ContainsFunc(all, func(s string) bool { return !item().MatchString(s) }) {
		return strings.Join(all, "\n"), LastLine
	}
	return last, LastLine
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
	computed   = expression(`^[^\p{L}]+[=≈]([^=≈]+)$`) // "2 + 4 = 6"
	item       = expression(`^[^\p{L}\p{N}]*[A-Z](?:[).:\]]| -)`)
	lowerLabel = expression(`^\P{L}*(?:(?i:option|choice) )?[a-z](?:[).:\]]|[^\p{L}\p{N}=+^-]*$)`)
	// head is a label at the start of a line, and the text of a choice if no other word is between them.
	head      = expression(`^([^\p{L}\p{N}` + textRange + labelRange + `]*[` + labelRange + `])([^\p{L}\p{N}` + textRange + labelRange + `]*)([` + textRange + `]?)(.*)$`)
	concluded = expression(`^.*` + so + `(.*` + found + `.*)$`)
	// led is what begins an explanation.
	led = expression(`^["')\]]*(?:[.:;(]| -)`)
)

// read returns the choices that an answer names, by a label or else by a text: several only if one text fits all of
// them. If there are none, it returns the reason. isBare reports whether the answer has no other words.
func (b ballot) read(s string) (named []int, why string, isBare bool) {
	line := lowerLabel().ReplaceAllStringFunc(s, strings.ToUpper)
	equal := b.equal(computed().ReplaceAllString(s, "$1"))
	var said []string
	for part := range strings.SplitSeq(line, "\n") {
		said = append(said, affirmed(explained(tokenize(part).marked(b.words, b.labels, nil))))
	}
	line = concluded().ReplaceAllString(strings.Join(said, "; "), "$1")
	isBare = len(tokenize(line).words) == 0
	texts, labels := marksOf(line, firstMark), marksOf(line, labelMark)
	if len(labels) == 2 && b.forms[labels[0]][1] == string(rune('a'+labels[1])) { // "A) B" if B is the text of A
		labels = labels[:1]
	}
	isLabel := isBare && len(labels) == 1 && (len(texts) == 0 || slices.Contains(texts, labels[0]))
	if named = labels; len(labels) == 0 {
		named = texts
	}
	switch {
	case equal != nil && !isLabel:
		return equal, "", true
	case named == nil:
		return nil, None, isBare
	case isBare && len(labels) > 0 && !isLabel, len(named) != 1, isOpen(line): // "Mars (B)"
		return nil, Several, isBare
	}
	return named, "", isBare
}

// explained returns a marked line that begins with a label without what explains it: "B) Jupiter - Mars is smaller.",
// "B. Mars is smaller.". Nothing is left if a short sentence takes the label back: "B. Nope."
func explained(line string) string {
	m := head().FindStringSubmatch(line)
	if m == nil {
		return line
	}
	label, between, text, rest := m[1], m[2], m[3], m[4]
	switch {
	case text != "" && marksOf(text, firstMark)[0] == marksOf(label, labelMark)[0]:
		line = label + strings.NewReplacer(".", "", ":", "", " -", "").Replace(between) + text + rest
	case len(tokenize(line).words) == 0:
		return line
	default:
		rest = between + text + rest
	}
	if !led().MatchString(rest) {
		return sentences(line)[0]
	}
	if first := sentences(strings.TrimLeft(rest, " .:;-)"))[0]; retraction().MatchString(strings.ToLower(first)) {
		return ""
	}
	return label
}
