// Package text judges answers in words by a contract: where in a text the answer stands, and how
// what stands there is read. testdata/forms.txt shows both. Its functions are pure, take time
// linear in the text, and run nothing of a candidate's but patterns of RE2.
package text

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/securebench/sbench/compiler/family"
)

// Reasons why an answer does not pass.
const (
	None     = "no_answer"
	Wrong    = "wrong_answer"
	Several  = "several_answers"
	Rejected = "rejected_answer"
)

// A Verdict says what was read and whether it is right.
type Verdict struct {
	Reason string // "" if the answer is right
	Read   string // the candidate's own words, cleaned of invisible characters; at most MaxRead bytes
	Rule   Rule   // by which Read was found; "" if a pattern was not
}

// MaxRead bounds Verdict.Read in bytes.
const MaxRead = 400

func verdict(reason, read string, rule Rule) Verdict {
	if len(read) > MaxRead {
		read = strings.ToValidUTF8(read[:MaxRead-len("…")], "") + "…"
	}
	if reason != "" && strings.Trim(read, " \n.,;:\"'") == "" {
		reason = None
	}
	return Verdict{reason, read, rule}
}

// A Rule says where an answer stands in a text.
type Rule string

// The rules, in the order in which they are tried; the first four are one. The last match of a rule counts.
const (
	AnswerTag Rule = "answer_tag" // <answer>…</answer>
	Boxed     Rule = "boxed"      // \boxed{…}
	Hashes    Rule = "hashes"     // #### …, the last line
	JSON      Rule = "json"       // an object with the key answer
	Announced Rule = "announced"  // ANSWER: …, "the answer is …", in the table's languages
	Whole     Rule = "whole"      // the text, if it is one line
	FirstLine Rule = "first_line" // the first line, an answer before its explanation
	LastLine  Rule = "last_line"  // the last line that is not empty
	Pattern   Rule = "pattern"    // the author's pattern, instead of all rules above
)

var (
	// marked has a group for each of the first four rules.
	marked = expression(`(?i)<(?:final_?)?answer>\s*(\S(?s:.*?))</(?:final_?)?answer>` +
		`|\\boxed ?\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}` +
		`|(?m:^) {0,3}####[ \t]+(\S.*)\s*\z` +
		`|[{,]\s*["'](?:final_)?answer["']\s*:\s*("(?:[^"\\]|\\.)*"|'[^'\n]*'|\[[^\]]*\]|\{[^{}]*\}|[^\s,}"'\[{][^,}]*)`)
	newline = expression(`\s*\n\s*`)
	// courtesy is all from a line on that a chat model adds: an offer, or an explanation under its name.
	courtesy = expression(`(?is)\s*\n[^\p{L}\n]*(?:(?:please )?let me know|feel free|would you like|do you want|is there anything|i hope|hope (?:this|that)|if you (?:have|need|would|want)|ich hoffe|j'espère|espero|spero|希望|お役に立|도움이|` +
		`(?:explanation|confidence|erklärung|begründung|explication|explicación|explicação|spiegazione|解释|解釋|説明|解説|설명) ?:).*`)
)

// pick chooses of the lines of a text, at least two, the one that is the answer.
type pick func(lines []string) (string, Rule)

// place returns what a text says, without markup, and the rule that found it: the author's pattern, if there is one, or else
// one of the other rules. If of is nil, only the rules for marks are tried.
func place(text string, pattern *regexp.Regexp, of pick) (string, Rule) {
	if pattern == nil {
		text = clean(family.Said(text))
		inner, mark := inMark(text)
		text = strings.TrimSpace(plain(cmp.Or(inner, text)))
		if of == nil {
			return text, cmp.Or(mark, Whole)
		}
		read, rule := spoken(text, of) // "<answer>The answer is B</answer>"
		return read, cmp.Or(mark, rule)
	}
	for _, m := range slices.Backward(pattern.FindAllStringSubmatchIndex(text, -1)) {
		if m[2] >= 0 { // the group took part
			return strings.TrimSpace(plain(clean(text[m[2]:m[3]]))), Pattern
		}
	}
	return "", ""
}

// inMark returns what is in the last tag, box or JSON object of a text, or after hashes; "" for none.
func inMark(text string) (string, Rule) {
	for _, m := range slices.Backward(marked().FindAllStringSubmatch(text, -1)) {
		for i, rule := range []Rule{AnswerTag, Boxed, Hashes, JSON} {
			inner := strings.TrimSpace(m[i+1])
			if inner == "" {
				continue
			}
			if rule == JSON {
				_ = json.Unmarshal([]byte(inner), &inner) // what is no string stays as it is
				inner = clean(inner)                      // an escape can be any character
			}
			return inner, rule
		}
	}
	return "", ""
}

// spoken applies the rules of announcements and lines to a plain text.
func spoken(text string, of pick) (string, Rule) {
	if read := announced(text); read != "" {
		return read, Announced
	}
	lines := newline().Split(courtesy().ReplaceAllString(text, ""), -1)
	if len(lines) > 1 {
		return of(lines)
	}
	return lines[0], Whole
}

// announced returns what a plain text announces last; "" for nothing.
func announced(text string) string {
	for _, m := range slices.Backward(announcement().FindAllStringIndex(text, -1)) {
		rest := strings.TrimLeft(text[m[1]:], " \n:\"'>|")
		if rest == "" || isDenied(strings.TrimRight(text[:m[1]], " \n:=-")) {
			continue
		}
		line, _, _ := strings.Cut(rest, "\n")
		return strings.TrimRight(sentences(line)[0], "!")
	}
	return ""
}

// expression returns a function that compiles a regular expression when it is first called.
func expression(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
