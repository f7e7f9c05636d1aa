package text

import (
	"regexp"
	"slices"
	"strings"
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

// pick picks the first line if the last names no other choice, or the first is nothing but its choice and the
// last a sentence. Else it picks the last line, or a last list of all choices with labels.
func (b ballot) pick(lines []string) (string, Rule) {
	last := lines[len(lines)-1]
	_, why, isBare := b.read(lines[0])
	_, whyLast, isBareLast := b.read(last)
	if why == "" && (whyLast == None || isBare && !isBareLast) {
		return lines[0], FirstLine
	}
	if all := strings.Join(lines[max(0, len(lines)-b.labels):], "; "); len(item().FindAllString(all, -1)) == b.labels {
		return strings.ReplaceAll(item().ReplaceAllString(all, "$1)"), ". ", " "), LastLine // one sentence
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
	item       = expression(`((?:^|; )[^\p{L}\p{N}]*[A-Z])(?:[).:*_\]]| -)`)
	lowerLabel = expression(`^[^\p{L}]*(?:(?i:option|choice|answer) )?[([]?[a-z](?:[).:\]]|[^\p{L}\p{N}=+^-]*$)`)
	capital    = expression(`(?:^|[^\p{Latin}\p{M}\p{N}_'-]_*)([A-Z])`)
	// noLabel is a letter that is a word or a part of one: "A planet", "I think", "A's".
	noLabel = expression(`^(?:A [b-df-hj-np-z]|I [a-z]|.[\p{Latin}\p{M}\p{N}'^=+/]|.-\w)`)
	// setOff is a label at the start, at the end, before punctuation, in brackets, quotes or emphasis,
	// or after a word such as "option".
	setOff = expression("(?i:^|[([{<*_`\"]|" + option + `)[` + labelRange + `]|[` + labelRange + "](?:$|[)\\]}>*_`\".,;:!])")
	// stop is a full stop or a dash between a label and a text or a mark.
	stop = expression(`[` + labelRange + `][*_)\]]*(?:\.| -)["*_)\]]*\s*["*_]*[✅✔✓☑❌✗✘✖` + textRange + `]`)
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
	line = joined(b.labelled(tokenize(line).marked(b.words, nil)))
	if r, _ := utf8.DecodeRuneInString(strings.TrimLeft(line, " \"*_`~#>-([{<|✅")); r >= labelMark { // an explanation may follow
		line = sentences(line)[0]
	}
	line = affirmed(line)
	isBare = len(tokenize(line).words) == 0
	texts, labels := marksOf(line, firstMark), marksOf(line, labelMark)
	if len(labels) == 2 && b.forms[labels[0]][2] == string(rune('a'+labels[1])) { // "A) B" if B is the text of A
		labels = labels[:1]
	}
	isLabel := isBare && len(labels) == 1 && (len(texts) == 0 || slices.Contains(texts, labels[0]))
	if named = labels; len(texts) == 1 && !setOff().MatchString(line) {
		named = texts
	}
	switch {
	case equal != nil && !isLabel:
		return equal, "", true
	case len(texts)+len(labels) == 0:
		return nil, None, isBare
	case isBare && len(labels) > 0 && !isLabel, len(named) != 1, isOpen(line): // "Mars (B)"
		return nil, Several, isBare
	}
	return named, "", isBare
}

// joined removes a full stop or a dash between a label and its choice's text or a mark, which ends no sentence. Another
// choice's text begins an explanation ("B. Mars is smaller"), if there are other words.
func joined(line string) string {
	isBare := len(tokenize(line).words) == 0
	return stop().ReplaceAllStringFunc(line, func(s string) string {
		if texts := marksOf(s, firstMark); !isBare && len(texts) > 0 && texts[0] != marksOf(s, labelMark)[0] {
			return s
		}
		return strings.NewReplacer(".", "", " -", "").Replace(s)
	})
}

func (b ballot) labelled(line string) string {
	var out strings.Builder
	end := 0
	for _, m := range capital().FindAllStringSubmatchIndex(line, -1) {
		if i := rune(line[m[2]] - 'A'); int(i) < b.labels && !noLabel().MatchString(line[m[2]:]) {
			out.WriteString(line[end:m[2]] + string(labelMark+i))
			end = m[3]
		}
	}
	return out.String() + line[end:]
}
