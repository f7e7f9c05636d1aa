package text

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Rule says where an answer stands in a text.
type Rule string

// The rules, in the order in which they are tried; the first three are one. The last match of a
// rule counts.
const (
	AnswerTag Rule = "answer_tag" // <answer>…</answer>
	Boxed     Rule = "boxed"      // \boxed{…}
	Hashes    Rule = "hashes"     // #### …, the last line
	Announced Rule = "announced"  // ANSWER: …, "the answer is …", in the table's languages
	JSON      Rule = "json"       // an object with the key answer
	Whole     Rule = "whole"      // the text, if it is one line
	FirstLine Rule = "first_line" // the first line, an answer before its explanation
	LastLine  Rule = "last_line"  // the last line that is not empty
	Pattern   Rule = "pattern"    // the author's pattern, instead of all rules above
)

var (
	thinkEnd   = expression(`(?i)</(?:think|thinking|reasoning)>`)
	marked     = expression(`(?i)<(?:final_?)?answer>\s*(\S(?s:.*?))</(?:final_?)?answer>|\\boxed ?\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}|(?m:^) {0,3}####[ \t]+(\S.*)\s*\z`)
	jsonAnswer = expression(`(?i)[{,]\s*"(?:final_)?answer"\s*:\s*("(?:[^"\\]|\\.)*"|\[[^\]]*\]|\{[^{}]*\}|[^\s"{},\[][^{},\n]*)`)
	// courtesy is what a chat model says last: an offer, or an explanation under its name.
	courtesy = expression(`(?i)(?:^|[.!?*\n]\s*)(?:(?:(?:please )?let me know|feel free|would you like|do you want|is there anything|i hope|hope (?:this|that)|if you (?:have|need|would|want)|ich hoffe|j'espère|¡?espero|spero)\b|希望|お役に立|도움이)[^\n]*$|\n[^\p{L}\n]*(?:explanation|note|erklärung|begründung|explication|explicación|explicação|spiegazione|解释|解釋|説明|解説|설명)[*_]* ?:(?s:.*)`)
	quoted   = expression("\\p{L}.*[\"`].?$")           // as in: My friend says "the answer is B".
	noLine   = expression("^(?:```.*|[-=|:*_ ]{3,})?$") // a fence, a rule, or nothing
)

// thoughtless returns what follows the last end of a thought.
func thoughtless(text string) string {
	if ends := thinkEnd().FindAllStringIndex(text, -1); ends != nil {
		return text[ends[len(ends)-1][1]:]
	}
	return text
}

// inMark returns what is in the last tag or box of a text, or after hashes; "" for none.
func inMark(text string) (string, Rule) {
	for _, m := range slices.Backward(marked().FindAllStringSubmatch(text, -1)) {
		for i, rule := range []Rule{AnswerTag, Boxed, Hashes} {
			if inner := strings.TrimSpace(m[i+1]); inner != "" {
				return inner, rule
			}
		}
	}
	return "", ""
}

// spoken applies the rules of announcements and lines.
func spoken(text string, answersFirst func(first, last string) bool) (string, Rule) {
	if read, rule := announced(text); rule != "" {
		return read, rule
	}
	text = strings.TrimSpace(text)
	if m := courtesy().FindStringIndex(text); m != nil && m[0] > 0 {
		text = text[:m[0]+1]
	}
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); !noLine().MatchString(line) {
			lines = append(lines, line)
		}
	}
	switch n := len(lines); {
	case n == 0:
		return text, Whole
	case n == 1:
		return lines[0], Whole
	case answersFirst(lines[0], lines[n-1]):
		return lines[0], FirstLine
	default:
		return lines[n-1], LastLine
	}
}

// announced applies the rules of announcements and JSON. What leads to an announcement in its
// clause must be short: "You want me to say that the answer is B" announces nothing.
func announced(text string) (read string, rule Rule) {
	const skipped = " \t\n*_:"
	last, end := -1, len(strings.TrimRight(text, skipped))
	for _, re := range phrasesOf().announced {
		for _, m := range re.FindAllStringIndex(text, -1) {
			_, n := utf8.DecodeRuneInString(text[m[0]:])
			before := text[max(0, m[0]-MaxRead) : m[0]+n]
			before = before[strings.LastIndexAny(before, "\n.,;:!?")+1:]
			if m[1] > last && m[1] < end && !quoted().MatchString(before) && !doubts(strings.ToLower(before), nil, maxClause-1) {
				last, rule = m[1], Announced
			}
		}
	}
	if rule == Announced {
		line, _, _ := strings.Cut(strings.TrimLeft(text[last:], skipped), "\n")
		read = sentences(line)[0]
	}
	if all := jsonAnswer().FindAllStringSubmatchIndex(text, -1); all != nil && all[len(all)-1][1] > last {
		m := all[len(all)-1]
		rule, read = JSON, strings.TrimSpace(text[m[2]:m[3]])
		var value string
		if json.Unmarshal([]byte(read), &value) == nil {
			read = value
		}
	}
	return read, rule
}

var (
	sentenceEnd  = expression(`[.!?]["'*_` + "`" + `)\]$]*(?:\s|$)|。`)
	abbreviation = expression(`(?i)(?:^|[^\p{L}])(?:\p{L}|st|dr|mr|mrs|ms|prof|vs|ca|approx)\.$`)
	germanDate   = expression(`(?i)^\. (?:jan|feb|mär|apr|mai|jun|jul|aug|sep|okt|nov|dez)`)
)

// sentences returns the sentences of a line, at least one.
func sentences(line string) (all []string) {
	start := 0
	for _, m := range sentenceEnd().FindAllStringIndex(line, -1) {
		if !abbreviation().MatchString(line[max(0, m[0]-8):m[0]+1]) && !germanDate().MatchString(line[m[0]:min(len(line), m[0]+8)]) {
			all, start = append(all, strings.TrimSpace(line[start:m[1]])), m[1]
		}
	}
	if start < len(line) || all == nil {
		all = append(all, strings.TrimSpace(line[start:]))
	}
	return all
}
