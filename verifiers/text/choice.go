package text

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
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
		b.forms, b.words = append(b.forms, forms(s)), append(b.words, words)
	}
	read, rule := place(text, c.Pattern, b.pick)
	named, why, _ := b.read(read)
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
	labels int
	forms  [][3]string
	words  [][]token
}

// pick picks the first line if it names a choice and the last line none or the same. If the first
// has nothing but the choice, the last may name others in a sentence. Else pick picks the last line,
// or all lines if they end in a list of all choices.
func (b ballot) pick(lines []string) (string, Rule) {
	last := lines[len(lines)-1]
	i, why, isBare := b.read(lines[0])
	j, whyLast, isBareLast := b.read(last)
	if why == "" && (whyLast == None || slices.Equal(i, j) || isBare && !isBareLast) {
		return lines[0], FirstLine
	}
	var listed []string
	for _, line := range slices.Backward(lines) {
		m := item().FindStringSubmatch(line)
		if m == nil || slices.Contains(listed, m[1]) {
			break
		}
		if listed = append(listed, m[1]); len(listed) == b.labels {
			return strings.Join(lines[len(lines)-b.labels:], "; "), LastLine
		}
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
	item       = expression(`^[^\p{L}\p{N}]*([A-Z])[).:*_\]]`)
	capital    = expression(`\b[A-Z]\b`)
	lowerLabel = expression(`^[^\p{L}]*(?:(?i:option|choice|answer) )?[([]?[a-z](?:[).:\]]|[^\p{L}\p{N}=+^-]*$)`)
	// noLabel is what follows a letter that is a word or a part of one: "A planet", "I think", "A's".
	noLabel = expression(`^(?:A [b-df-hj-np-z]|I [a-z]|.['^=+/\p{M}]|.-\w)`)
	// stop is a full stop between a label and a text, which ends no sentence.
	stop = expression(`([` + labelRange + `][*_)\]]*)\.(["*_)\]]*\s+["*_]*[` + textRange + `])`)
)

// read returns the choices that an answer names, by a label that is set off, or else by a text, or
// else by any label: several only if one text fits all of them. If there are none, it returns the
// reason. isBare reports whether the answer has no other words.
func (b ballot) read(s string) (named []int, why string, isBare bool) {
	line := lowerLabel().ReplaceAllStringFunc(strings.Trim(plain(clean(s)), "' "), strings.ToUpper)
	equal := b.equal(s)
	if m := computed().FindStringSubmatch(line); m != nil && equal == nil {
		equal = b.equal(m[1])
	}
	line, isSetOff := b.labelled(tokenize(line).marked(b.words, nil))
	line = stop().ReplaceAllString(line, "$1$2")
	if r, _ := utf8.DecodeRuneInString(strings.TrimLeft(line, " \"*_`~#>-([{<|✅")); isMark(r) && r >= labelMark { // an explanation may follow
		line = sentences(line)[0]
	}
	line = affirmed(line)
	isBare = len(tokenize(line).words) == 0
	var kinds [2][]int // texts, labels
	for _, r := range line {
		if i := int(r - firstMark); isMark(r) && !slices.Contains(kinds[i>>6], i&63) {
			kinds[i>>6] = append(kinds[i>>6], i&63)
		}
	}
	texts, labels := kinds[0], kinds[1]
	if len(labels) == 2 && b.forms[labels[0]][2] == string(rune('a'+labels[1])) { // "A) B" if B is the text of A
		kinds[1], labels = labels[:1], labels[:1]
	}
	isLabel := isBare && len(labels) == 1 && (len(texts) == 0 || slices.Contains(texts, labels[0]))
	order := []int{0, 1}
	switch {
	case equal != nil && !isLabel:
		return equal, "", true
	case isBare && len(labels) > 0 && !isLabel: // "Mars (B)"
		return nil, Several, true
	case isSetOff:
		order = []int{1, 0}
	}
	why = None
	for _, kind := range order {
		others := func(r rune) rune {
			if isMark(r) && int(r-firstMark)>>6 != kind {
				return ' '
			}
			return r
		}
		n := len(kinds[kind])
		if n == 1 && !isOpen(strings.Map(others, line)) {
			return kinds[kind], "", isBare
		}
		if n > 0 {
			why = Several
		}
		if n == 1 || n > 1 && isSetOff {
			break
		}
	}
	return nil, why, isBare
}

// labelled marks the labels in a line. They are set off if one of them is at the start, at the end,
// before punctuation, in brackets, quotes or emphasis, or after a word such as "option".
func (b ballot) labelled(line string) (marked string, isSetOff bool) {
	line = strings.ReplaceAll(line, "__", "**")
	var out strings.Builder
	end := 0
	for _, m := range capital().FindAllStringIndex(line, -1) {
		i := rune(line[m[0]] - 'A')
		before, _ := utf8.DecodeLastRuneInString(line[:m[0]])
		after, _ := utf8.DecodeRuneInString(line[m[1]:])
		if int(i) >= b.labels || unicode.In(before, unicode.Latin, unicode.M) || strings.ContainsRune("'-", before) || unicode.In(after, unicode.Latin) || noLabel().MatchString(line[m[0]:]) {
			continue
		}
		isSetOff = isSetOff || m[0] == 0 || m[1] == len(line) || strings.ContainsRune("([{<*_`\"", before) || strings.ContainsRune(")]}>*_`\".,;:!", after) || phrasesOf().option.MatchString(line[max(0, m[0]-40):m[0]])
		out.WriteString(line[end:m[0]] + string(labelMark+i))
		end = m[1]
	}
	return out.String() + line[end:], isSetOff
}
