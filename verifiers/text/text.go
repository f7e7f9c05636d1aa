// Package text judges answers in words by a contract: where in a text the answer stands, and how
// what stands there is read. testdata/forms.txt shows both. Its functions are pure, take time
// linear in the text, and run nothing of a candidate's but patterns of RE2.
package text

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"
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

// verdict cuts what was read.
func verdict(reason, read string, rule Rule) Verdict {
	if len(read) > MaxRead {
		read = strings.ToValidUTF8(read[:MaxRead-len("…")], "") + "…"
	}
	return Verdict{reason, read, rule}
}

// expression returns a function that compiles a regular expression when it is first called.
func expression(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// place returns what a text says by the author's pattern, if there is one, or else by the rules.
// answersFirst reports whether the first line of several is the answer.
func place(text string, pattern *regexp.Regexp, answersFirst func(first, last string) bool) (string, Rule) {
	if pattern == nil {
		text = thoughtless(clean(text))
		inner, mark := inMark(text)
		read, rule := spoken(cmp.Or(inner, text), answersFirst) // "<answer>The answer is B</answer>"
		return read, cmp.Or(mark, rule)
	}
	for _, m := range slices.Backward(pattern.FindAllStringSubmatchIndex(text, -1)) {
		if m[2] >= 0 { // the group took part
			return strings.TrimSpace(clean(text[m[2]:m[3]])), Pattern
		}
	}
	return "", ""
}

var (
	tight   = expression(` ?([^\p{L}\p{M}\p{N}\s]) ?`)
	article = expression(`^(?:the|an?) `)
)

// forms returns a line in the forms that are compared one after another: as it is, without
// differences in case, and without what surrounds it, an article, and spaces beside symbols.
func forms(s string) [3]string {
	line, folded := oneLine(clean(s)), oneLine(fold(s))
	return [3]string{line, folded, cmp.Or(article().ReplaceAllString(tight().ReplaceAllString(bare(folded), "$1"), ""), folded)}
}
