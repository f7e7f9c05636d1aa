package compiler

import (
	"regexp"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// answerPattern is the eval field with the author's own form of answers.
func answerPattern() schema.Field {
	s := schema.Text("A regular expression (RE2) with one group, which holds the answer. Its last match counts, instead of sbench's own rules for where an answer stands.")
	s.Check = func(c *schema.Checker, v document.Value) {
		switch re, err := regexp.Compile(v.Text()); {
		case err != nil:
			c.Errorf(v, "the syntax is RE2's, without look-around and back-references", "answer_pattern is no regular expression: %v", err)
		case re.NumSubexp() != 1:
			c.Errorf(v, "write (?:…) for a group that only groups", "answer_pattern has %d groups and needs exactly one, for the answer", re.NumSubexp())
		}
	}
	return schema.Optional("answer_pattern", s)
}

// answerFormat returns the family's sentence on the form of an answer; "" if the author describes the form, in
// input.answer_format or by a pattern.
func (t *Task) answerFormat() string {
	if t.eval().Get("answer_pattern").Kind() == document.String || t.doc.Root().Get("input").Get("answer_format").Kind() == document.String {
		return ""
	}
	return t.family.AnswerFormat
}
