package text

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Rule says where an answer stands in a text.
type Rule string

// The rules, in the order in which they are tried. The last match of a rule counts.
const (
	AnswerTag Rule = "answer_tag" // <answer>…</answer>
	Boxed     Rule = "boxed"      // \boxed{…}
	Hashes    Rule = "hashes"     // #### … at the start of a line
	Announced Rule = "announced"  // ANSWER: …, "the answer is …", in the table's languages
	JSON      Rule = "json"       // an object with the key answer
	Whole     Rule = "whole"      // the text, if it is one line
	LabelLine Rule = "label_line" // the first line, a label: multiple choice only
	LastLine  Rule = "last_line"  // the last line that is not empty
	Pattern   Rule = "pattern"    // the author's pattern, instead of all rules above
)

var (
	thinkEnd   = regexp.MustCompile(`(?i)</(?:think|thinking|reasoning)>`)
	answerTag  = regexp.MustCompile(`(?is)<(?:final_?)?answer>(.*?)</(?:final_?)?answer>`)
	hashes     = regexp.MustCompile(`(?m)^ {0,3}####[ \t]+(\S.*)$`)
	heading    = regexp.MustCompile(`(?m)^ {0,3}#+[ \t]`)
	jsonAnswer = regexp.MustCompile(`(?i)[{,]\s*"(?:final_)?answer"\s*:\s*("(?:[^"\\]|\\.)*"|\[[^\]]*\]|[^\s"{},\[][^{},\n]*)`)
	// courtesy is what a chat model says last.
	courtesy = regexp.MustCompile(`(?i)(?:^|[.!?*\n]\s*)(?:(?:please )?let me know|feel free|would you like|do you want|is there anything|i hope|hope (?:this|that)|if you (?:have|need|would|want))\b[^\n]*$`)
	noLine   = regexp.MustCompile("^(?:```.*|[-=|:*_ ]{3,})?$") // a fence, a rule, or nothing
)

// thoughtless returns what follows the last end of a thought.
func thoughtless(text string) string {
	if ends := thinkEnd.FindAllStringIndex(text, -1); ends != nil {
		return text[ends[len(ends)-1][1]:]
	}
	return text
}

// locate returns where the answer stands in a clean text, and the rule. labelled returns the
// choice that a line names by its label, or -1; nil if there are no labels.
func locate(text string, labelled func(line string) int) (string, Rule) {
	text = thoughtless(text)
	if inner, rule := marked(text); rule != "" {
		read, _ := spoken(inner, labelled) // "<answer>The answer is B</answer>"
		return read, rule
	}
	return spoken(text, labelled)
}

// marked applies the rules of tags, boxes and hashes.
func marked(text string) (read string, rule Rule) {
	text, last := strings.TrimSpace(text), -1
	found := func(from, to int, by Rule) {
		if from > last && strings.TrimSpace(text[from:to]) != "" {
			last, read, rule = from, text[from:to], by
		}
	}
	for _, m := range answerTag.FindAllStringSubmatchIndex(text, -1) {
		found(m[2], m[3], AnswerTag)
	}
	end, sections := len(text), len(heading.FindAllStringIndex(text, 2)) > 1
	for _, m := range hashes.FindAllStringSubmatchIndex(text, -1) {
		if _, rule := announced(text[m[2]:m[3]]); rule == "" && (m[3] >= end || !sections) { // it heads no section
			found(m[2], m[3], Hashes)
		}
	}
	var open []int // where each brace that is not closed yet begins
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
			if strings.HasPrefix(text[i:], "boxed") {
				i += len("boxed") - 1
			}
		case '{':
			open = append(open, i)
		case '}':
			if n := len(open) - 1; n >= 0 {
				if from := open[n]; strings.HasSuffix(strings.TrimRight(text[max(0, from-8):from], " "), `\boxed`) {
					found(from+1, i, Boxed)
				}
				open = open[:n]
			}
		}
	}
	return read, rule
}

// spoken applies the rules of announcements and lines.
func spoken(text string, labelled func(string) int) (string, Rule) {
	if read, rule := announced(text); rule != "" {
		return read, rule
	}
	var lines []string
	if m := courtesy.FindStringIndex(strings.TrimSpace(text)); m != nil && m[0] > 0 {
		text = strings.TrimSpace(text)[:m[0]+1]
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); !noLine.MatchString(line) {
			lines = append(lines, line)
		}
	}
	switch n := len(lines); {
	case n == 0:
		return strings.TrimSpace(text), Whole
	case n == 1:
		return lines[0], Whole
	default:
		if labelled != nil {
			if i, j := labelled(lines[0]), labelled(lines[n-1]); i >= 0 && (j < 0 || j == i) {
				return lines[0], LabelLine
			}
		}
		return lines[n-1], LastLine
	}
}

// announced applies the rule of announcements.
func announced(text string) (read string, rule Rule) {
	const skipped = " \t\n*_:"
	last, end := -1, len(strings.TrimRight(text, skipped))
	for _, re := range phrasesOf().announced {
		for _, m := range re.FindAllStringIndex(text, -1) {
			if m[1] > last && m[1] < end {
				last, rule = m[1], Announced
			}
		}
	}
	for _, m := range jsonAnswer.FindAllStringSubmatchIndex(text, -1) {
		if m[1] > last {
			last, rule, read = m[1], JSON, strings.TrimSpace(text[m[2]:m[3]])
		}
	}
	switch rule {
	case Announced:
		line, _, _ := strings.Cut(strings.TrimLeft(text[last:], skipped), "\n")
		read = phrasesOf().tail.ReplaceAllString(strings.TrimSpace(sentences(line)[0]), "")
	case JSON:
		var value string
		if json.Unmarshal([]byte(read), &value) == nil {
			read = value
		}
	}
	return read, rule
}

var (
	sentenceEnd  = regexp.MustCompile(`[.!?]["'*_` + "`" + `)\]$]*(?:\s|$)|[。!?]`)
	abbreviation = regexp.MustCompile(`(?i)(?:^|[^\p{L}])(?:\p{L}|st|dr|mr|mrs|ms|prof|vs|ca|approx)\.$`)
)

// sentences splits a line; there is at least one.
func sentences(line string) (all []string) {
	from := 0
	for _, m := range sentenceEnd.FindAllStringIndex(line, -1) {
		next, _ := utf8.DecodeRuneInString(line[m[1]:])
		glued := m[1] < len(line) && strings.TrimSpace(line[m[0]:m[1]]) == line[m[0]:m[1]]
		switch {
		case glued && next <= unicode.MaxLatin1 && line[m[0]] < utf8.RuneSelf: // as in "5!=120"
		case line[m[0]] == '.' && abbreviation.MatchString(line[max(0, m[0]-8):m[0]+1]):
		case m[1] < len(line):
			all, from = append(all, line[from:m[1]]), m[1]
		}
	}
	return append(all, line[from:])
}
