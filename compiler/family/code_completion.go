package family

import (
	"cmp"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/hidden"
	"github.com/securebench/sbench/compiler/schema"
)

// Fenced is the value of eval.extract for candidates in the form of chat models' answers.
const Fenced = "fenced"

// CodeCompletion asks for source code, which the verifier tests.
func CodeCompletion() *compiler.Family {
	return &compiler.Family{
		Name: "code_completion", CandidateKind: compiler.CandidateCode,
		Doc: "Write code. Tests that the agent never sees use the names it defines.",
		Input: &schema.Object{Fields: []schema.Field{
			schema.Required("prompt", schema.Text("What the code has to do.")),
			schema.Optional("language", schema.Text("The language, python unless given. For tests only python has a verifier.")),
			schema.Optional("starter_code", schema.AnyText("Code to begin with.")),
		}},
		Eval: &schema.Object{Fields: []schema.Field{
			schema.Optional("tests", schema.Closed("The tests: {\"source\": \"inline\", \"code\": \"…\"}. The code finds the candidate's top-level names as globals.",
				schema.Required("source", schema.Enum("Where the tests are: \"inline\".", "inline")),
				schema.Required("code", schema.Text("The code of the tests. It fails by an exception.")),
			)),
			compiler.SplitField(),
			schema.Optional("reference_solution", schema.AnyText("A right solution, whole.")),
			schema.Optional("canonical_solution", schema.AnyText("A right solution, possibly a body that continues the prompt.")),
			schema.Optional("extract", schema.Enum("How the candidate is found in what was written: \"none\", all of it, unless given; \"fenced\", the code in Markdown fences, or the body of the starter code's last function.", "none", Fenced)),
		}},
		Inputs: []string{"tests"},
		Check:  checkCodeCompletion,
	}
}

func checkCodeCompletion(c *schema.Checker, input, eval document.Value) {
	if compiler.OneCheck(c, eval, "tests", `the tests: {"source": "inline", "code": "…"}; or give split`) {
		return
	}
	if language := input.Get("language"); !compiler.IsPython(language.Text()) {
		c.Warnf(language, "", "only python has a verifier, not %q", language.Text())
	}
}

// CodeCompletionEval is what is needed to verify a code_completion task. It prints as
// "<redacted>".
type CodeCompletionEval struct {
	hidden.Fields
	Prompt            string               `key:"prompt"`
	Language          string               `key:"language"`           // "python" unless the author gave another
	StarterCode       string               `key:"starter_code"`       // empty if the author gave none
	Tests             string               `key:"code"`               // "" for a task with a split check
	ReferenceSolution hidden.Value[string] `key:"reference_solution"` // complete; "" if there is none
	Extract           string               `key:"extract"`            // Fenced, "none" or ""
	CanonicalSolution hidden.Value[string] `key:"canonical_solution"` // possibly a body that continues Prompt; "" if there is none
}

// CodeCompletionOf returns what is needed to verify a task of the family.
func CodeCompletionOf(t *compiler.Task) CodeCompletionEval {
	eval := compiler.EvalOf[CodeCompletionEval](t)
	schema.Decode(t.Eval().Get("tests"), &eval)
	if compiler.IsPython(eval.Language) {
		eval.Language = "python"
	}
	return eval
}

// Written returns the code in what was written as a candidate: all of it or, if Extract is Fenced, Program(text).
func (e CodeCompletionEval) Written(text string) string {
	if e.Extract == Fenced {
		return e.Program(text)
	}
	return text
}

// Continue returns the program that code completes: the starter code, or the prompt, and then the code. An indentation
// at the end of the starter code stands for one that the code lacks. If Extract is Fenced, it returns Program(code).
func (e CodeCompletionEval) Continue(code string) string {
	if e.Extract == Fenced {
		return e.Program(code)
	}
	starter := cmp.Or(e.StarterCode, e.Prompt)
	lines, indented := strings.TrimRight(starter, " \t"), strings.TrimLeft(code, " \t") != code
	switch {
	case !strings.HasSuffix(lines, "\n"):
		return starter + "\n" + code
	case indented:
		return lines + code
	}
	return starter + code
}
