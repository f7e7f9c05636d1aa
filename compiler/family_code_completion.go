package compiler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// CodeCompletion asks for source code, which is then tested.
func CodeCompletion() *Family {
	return &Family{
		Name: "code_completion", CandidateKind: CandidateCode,
		Doc: "Write code. Tests that the agent never sees use the names it defines.",
		Input: &schema.Object{Fields: []schema.Field{
			required("prompt", schema.Text("What the code has to do.")),
			optional("language", schema.Text("The language, python unless given. Only python has a verifier.")),
			optional("starter_code", schema.AnyText("Code to begin with.")),
		}},
		Eval: &schema.Object{Fields: []schema.Field{
			required("tests", &schema.Schema{
				Doc: "The tests: {\"source\": \"inline\", \"code\": \"…\"}. The code finds the candidate's top-level names as globals.",
				Object: &schema.Object{Unknown: schema.Accept, Fields: []schema.Field{
					optional("source", anything("Where the tests are: \"inline\".")),
					optional("code", anything("The code of the tests. It fails by an exception.")),
				}, Variants: []schema.Variant{
					{Key: "source", Value: "inline", Fields: inlineTests().Fields},
				}},
				Check: checkCodeTests,
			}),
			optional("reference_solution", schema.AnyText("A right solution, whole.")),
			optional("canonical_solution", schema.AnyText("A right solution, possibly a body that continues the prompt.")),
		}},
		Inputs: []string{"tests"},
		Check:  checkCodeCompletion,
	}
}

func checkCodeTests(c *schema.Checker, v document.Value) {
	if !v.Get("source").Is("inline") {
		c.Report(v, Problem{
			Path: v.Path() + ".source", Message: "tests that are not inline have no verifier",
			Hint: `give {"source": "inline", "code": "…"}`, Warning: true,
		})
		return
	}
	c.CheckObject(inlineTests(), v)
	if isolation := v.Get("isolation"); isolation.Kind() != 0 {
		c.Warnf(isolation, "leave it out", "it has no effect: tests and candidate are two modules of one process")
	}
}

// inlineTests returns the rule for tests that have a verifier.
func inlineTests() *schema.Object {
	return &schema.Object{Fields: []schema.Field{
		required("source", schema.Enum("Where the tests are.", "inline")),
		required("code", schema.Text("The code of the tests. It fails by an exception.")),
		optional("isolation", schema.Enum("Without effect, from earlier versions.", "cells", "shared")),
	}}
}

func checkCodeCompletion(c *schema.Checker, input, _ document.Value) {
	if language := input.Get("language"); !isPython(language.Text()) {
		c.Warnf(language, "", "only python has a verifier, not %q", language.Text())
	}
}

func isPython(language string) bool {
	return slices.Contains([]string{"", "python", "python3", "py"}, strings.ToLower(strings.TrimSpace(language)))
}

// CodeCompletionEval is what is needed to verify a code_completion task. It prints as
// "<redacted>".
type CodeCompletionEval struct {
	redacted
	Prompt      string `key:"prompt"`
	Language    string `key:"language"`     // "python" unless the author gave another
	StarterCode string `key:"starter_code"` // empty if the author gave none
	// Inline reports whether Tests holds code; otherwise the task cannot be verified.
	Inline            bool           `key:"source" is:"inline"`
	Tests             string         `key:"code"`
	ReferenceSolution Hidden[string] `key:"reference_solution"` // complete; "" if there is none
	CanonicalSolution Hidden[string] `key:"canonical_solution"` // possibly a body that continues Prompt; "" if there is none
}

// CodeCompletionOf returns what is needed to verify a task of the family.
func CodeCompletionOf(t *Task) CodeCompletionEval {
	eval := EvalOf[CodeCompletionEval](t)
	decode(t.eval().Get("tests"), &eval)
	if isPython(eval.Language) {
		eval.Language = "python"
	}
	return eval
}

// Continue returns the program that code completes: the starter code, or the prompt, and then
// the code.
func (e CodeCompletionEval) Continue(code string) string {
	starter := cmp.Or(e.StarterCode, e.Prompt)
	if !strings.HasSuffix(starter, "\n") {
		starter += "\n"
	}
	return starter + code
}
