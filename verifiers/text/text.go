// Package text judges answers in words by a contract: where in a text the answer stands, and how
// what stands there is read. testdata/forms.txt shows both. Its functions are pure, take time
// linear in the text, and run nothing of a candidate's but patterns of RE2.
package text

import (
	"regexp"
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

func verdict(reason, read string, rule Rule) Verdict {
	if len(read) > MaxRead {
		read = strings.ToValidUTF8(read[:MaxRead-len("…")], "") + "…"
	}
	if reason != "" && strings.Trim(read, " \n.,;:\"'") == "" {
		reason = None
	}
	return Verdict{reason, read, rule}
}

// expression returns a function that compiles a regular expression when it is first called.
func expression(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
