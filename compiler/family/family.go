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

// deferredFamilies returns the families without a verifier. Their rows compile and their harness runs,
// and records stay pending.
func deferredFamilies() []*compiler.Family {
	return []*compiler.Family{
		deferred("tool_call", "Call tools until the state is the expected one.", []string{"initial_state"},
			schema.Optional("initial_state", anything("The state that the tools start from.")),
			schema.Optional("expected_calls", anything("The calls that are expected.")),
			schema.Optional("expected_final_state", anything("The state that is expected in the end.")),
		),
		deferred("browser_task", "Reach a goal in a web browser.", []string{"credentials"},
			schema.Optional("credentials", anything("What the sandbox logs in with.")),
			schema.Optional("success_check", anything("How success is recognised.")),
		),
		deferred("desktop_task", "Reach a goal on a desktop.", nil,
			schema.Optional("success_check", anything("How success is recognised.")),
		),
		deferred("artifact_task", "Make an artifact, such as a document or a picture.", nil,
			schema.Optional("reference_artifact", anything("An artifact to compare with; may be a file reference.")),
			schema.Optional("rubric", anything("How artifacts are judged.")),
		),
		deferred("multimodal_qa", "Answer a question about pictures, sound or video.", nil,
			schema.Optional("answer", anything("The right answer.")),
			schema.Optional("rubric", anything("How answers are judged.")),
		),
		deferred("preference_pair", "Say which of two answers is better.", nil,
			schema.Optional("preference", anything("The preferred answer.")),
			schema.Optional("rubric", anything("How preferences are judged.")),
		),
	}
}

// deferred makes a family that no verifier judges yet. Its rows may have any fields.
func deferred(name, doc string, inputs []string, eval ...schema.Field) *compiler.Family {
	return &compiler.Family{
		Name: name, CandidateKind: compiler.CandidateText,
		Doc:    doc,
		Input:  &schema.Object{Unknown: schema.Accept},
		Eval:   &schema.Object{Unknown: schema.Accept, Fields: eval},
		Inputs: inputs,
	}
}
