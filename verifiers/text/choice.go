package text

import (
	"cmp"
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
		b.forms, b.words = append(b.forms, forms(s)), append(b.words, tokenize(s).words)
	}
	read, rule := place(text, c.Pattern, func(first, last string) bool {
		i, j := b.only(first), b.only(last)
		return i >= 0 && (j < 0 || j == i)
	})
	named, why := b.read(read)
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
	labelForm  = regexp.MustCompile(`(?i)^[\s#>|•+-]*(?:(?:the |die |la |l'|a )?(?:` + phrasesOf().option + `) ?[:#-]? ?|la |die |(?-i:a ))?([(\[{<]?) ?([a-z]) ?([)\]}>]?)`)
	separators = regexp.MustCompile(`^(?:[.:,;!)\]}>]|- )+`)
	because    = regexp.MustCompile(`(?i)^(?:because|since|as)\b`)
	clause     = regexp.MustCompile(`^[^.,;:。]*`)
	computed   = regexp.MustCompile(`^[^\p{L}]+[=≈]([^=≈]+)$`) // "2 + 4 = 6"
	// setOff is a label in brackets, in emphasis or after "option"; single is any label, but not an
	// article.
	setOff = regexp.MustCompile("[(\\[]([A-Z])[)\\]]|\\b([A-Z])\\)|[*_`]{1,3}[(\\[]?([A-Z])[)\\].:]{0,2}(?:[*_`]|\\s)|(?i:" + phrasesOf().option + `) ?([A-Z])(?:[^\p{L}\p{N}'-]|[\p{Hangul}` + spaceless + `]|$)`)
	single = regexp.MustCompile(`\b([A-Z])(?:[^\w' ]| (?:[^a-z]|(?:or|and|is)\b)|$)`)
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
	line = strings.Trim(phrasesOf().tail.ReplaceAllString(marks.Replace(withoutLaTeX(line)), ""), "' ")
	if inner, ok := strings.CutPrefix(line, "$"); ok {
		line = strings.TrimRight(inner, "$.")
	}
	m := labelForm.FindStringSubmatchIndex(line)
	if m == nil || b.index(line[m[4]:m[5]]) < 0 {
		return -1, "", false
	}
	rest = strings.TrimSpace(line[m[1]:])
	next, _ := utf8.DecodeRuneInString(line[m[5]:])
	if isWordRune(next) || strings.ContainsRune("'^=+/", next) {
		return -1, "", false
	}
	isSetOff = m[7] > m[6] || rest == "" || strings.ContainsRune(".:,;-([!", rune(rest[0]))
	return b.index(line[m[4]:m[5]]), bare(separators.ReplaceAllString(rest, "")), isSetOff
}

// only returns the choice that a line names by its label, alone or with the choice's own text, or
// by its text alone; -1 if it names none so.
func (b ballot) only(line string) int {
	i, rest, _ := b.label(clean(line))
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
func (b ballot) read(s string) ([]int, string) {
	line := contrast.ReplaceAllString(clean(s), " ")
	i, rest, isSetOff := b.label(line)
	equal := b.equal(s)
	if m := computed.FindStringSubmatch(withoutLaTeX(line)); m != nil && equal == nil {
		equal = b.equal(m[1])
	}
	switch {
	case i >= 0 && rest == "":
		return []int{i}, ""
	case equal != nil:
		return equal, ""
	case i < 0:
		return b.sentence(line)
	}
	own := b.equal(rest)
	first, _ := utf8.DecodeRuneInString(rest)
	isSubject := unicode.IsLower(first) || strings.HasPrefix(fold(rest), b.forms[i][1])
	others := func(j int) bool { return j != i }
	switch {
	case slices.Contains(own, i), because.MatchString(rest):
		return []int{i}, ""
	case own != nil, isSetOff && slices.ContainsFunc(append(b.labelsIn(setOff, rest), b.labelsIn(single, rest)...), others):
		return nil, Several
	case isSetOff && isSubject && spoils(fold(clause.FindString(rest))) != "":
		return nil, None
	case isSetOff:
		return []int{i}, ""
	}
	return b.sentence(line)
}

// sentence returns the one choice that stands in a sentence by its text, or by a label that is set
// off, or by the only label, if a word points to it.
func (b ballot) sentence(s string) ([]int, string) {
	labels := b.labelsIn(setOff, withoutLaTeX(s))
	texts, rest := tokenize(s).named(b.words)
	alone := b.labelsIn(single, s)
	if len(labels)+len(texts) == 0 && len(alone) <= 1 {
		labels = b.labelsIn(phrasesOf().pointed, s)
	}
	named := cmp.Or(len(labels), len(texts))
	switch {
	case named == 0 && len(alone) > 1, named > 1:
		return nil, Several
	case named == 0, spoils(rest) != "":
		return nil, None
	case len(labels) == 0:
		return texts, ""
	case len(texts) > 0 && !slices.Contains(texts, labels[0]):
		return nil, Several
	}
	return labels, ""
}

// labelsIn returns the choices whose labels are in a group of re.
func (b ballot) labelsIn(re *regexp.Regexp, s string) (all []int) {
	for _, m := range re.FindAllStringSubmatch(s, -1) {
		if i := b.index(cmp.Or(m[1:]...)); i >= 0 && !slices.Contains(all, i) {
			all = append(all, i)
		}
	}
	return all
}
