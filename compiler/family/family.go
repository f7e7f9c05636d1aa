// Package family has the families of tasks that every pack may use: what their rows hold, and what their verifiers read of
// a task.
package family

import (
	"regexp"
	"slices"
	"sync"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// registry holds the families that every pack may use, those with a verifier first.
var registry = sync.OnceValue(func() []*compiler.Family {
	return append([]*compiler.Family{
		MultipleChoice(), ShortAnswer(), FreeResponse(), CodeCompletion(), RepoPatch(), TerminalTask(),
	}, deferredFamilies()...)
})

// All returns the families that every pack may use, those with a verifier first.
func All() []*compiler.Family { return slices.Clone(registry()) }

// OpenPack is compiler.OpenPack for rows of all families.
func OpenPack(manifest, tasks string) (*compiler.Pack, error) {
	return compiler.OpenPack(manifest, tasks, registry()...)
}

// anything is the schema of a field that may hold any value.
func anything(doc string) *schema.Schema { return &schema.Schema{Doc: doc, Any: true} }

// textOrObject is the schema of fields such as context: a string or any object.
func textOrObject(doc string) *schema.Schema {
	s := schema.Open(doc)
	s.String = &schema.String{NonBlank: true}
	return s
}

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
