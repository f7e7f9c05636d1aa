package family

import (
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/hidden"
	"github.com/securebench/sbench/compiler/schema"
)

// ContainsAny is the only rubric type that has a verifier.
const ContainsAny = "contains_any"

// FreeResponse asks for a text, which is judged by a rubric.
func FreeResponse() *compiler.Family {
	return &compiler.Family{
		Name: "free_response", CandidateKind: compiler.CandidateText,
		Doc: "Write a text. A rubric says what it has to hold.",
		Input: &schema.Object{Fields: []schema.Field{
			schema.Required("prompt", schema.Text("What to write.")),
			schema.Optional("context", textOrObject("What the prompt is about.")),
		}},
		Eval: &schema.Object{Fields: []schema.Field{
			schema.Required("rubric", rubricSchema()),
			schema.Optional("reference_answer", schema.Text("A good answer.")),
			schema.Optional("judge", judgedSchema()),
			answerPattern(),
		}},
		Check:  checkJudged,
		Judged: func(t *compiler.Task) bool { return len(FreeResponseOf(t).Wrong.Reveal()) > 0 },
	}
}

func judgedSchema() *schema.Schema {
	return schema.Nullable(schema.Closed("That a model may judge by a rubric in prose, where the tester file names one.",
		schema.Required("wrong_answers", &schema.Schema{
			Doc:   "Answers that are wrong in different ways. The judge must fail them, and the candidate's text with them in it.",
			Array: &schema.Array{Items: schema.Text("A wrong answer."), Min: 1},
		}),
	))
}

func checkJudged(c *schema.Checker, _, eval document.Value) {
	judged, rubric := eval.Get("judge"), eval.Get("rubric")
	switch {
	case judged.Kind() != document.Object && rubric.Kind() == document.String:
		c.Warnf(rubric, "give an object of type contains_any, or eval.judge", "a rubric in prose has no verifier: records stay pending")
	case judged.Kind() != document.Object:
	case rubric.Kind() != document.String:
		c.Errorf(judged, "remove it, or write the rubric in prose", "this rubric needs no judge")
	case eval.Get("reference_answer").Kind() != document.String:
		c.Errorf(judged, "give eval.reference_answer, which the judge has to pass", "there is nothing to test the judge with")
	}
}

func rubricSchema() *schema.Schema {
	return &schema.Schema{
		Doc:    "How answers are judged. A rubric in prose is for people: its records stay pending.",
		String: &schema.String{NonBlank: true},
		Object: &schema.Object{Unknown: schema.Accept, Fields: []schema.Field{
			schema.Optional("type", anything("The kind of rubric: \"contains_any\".")),
			schema.Optional("accepted_answers", anything("Phrases. The answer has to contain or resemble one of them.")),
			schema.Optional("rejected_answers", anything("Phrases that the answer must not contain or resemble as much.")),
			schema.Optional("min_token_f1", &schema.Schema{Doc: "How much an answer has to resemble an accepted one, 0 to 1.", Any: true, Default: 1.0}),
		}, Variants: []schema.Variant{
			{Key: "type", Value: ContainsAny, Fields: containsAny().Fields},
		}},
		Check: checkRubric,
	}
}

func containsAny() *schema.Object {
	phrase := schema.Text("A phrase.")
	return &schema.Object{Fields: []schema.Field{
		schema.Required("type", schema.Enum("The kind of rubric.", ContainsAny)),
		schema.Required("accepted_answers", &schema.Schema{Array: &schema.Array{Items: phrase, Min: 1}, Doc: "phrases, each of them enough"}),
		schema.Optional("rejected_answers", schema.List("", phrase)),
		schema.Optional("min_token_f1", &schema.Schema{Number: &schema.Number{Min: new(0.0), Max: new(1.0)}}),
	}}
}

// checkRubric checks a contains_any rubric, and warns about a type without a verifier.
func checkRubric(c *schema.Checker, v document.Value) {
	if v.Kind() == document.String {
		return // see checkJudged
	}
	if !v.Get("type").Is(ContainsAny) {
		c.Report(v, compiler.Problem{
			Path: v.Path() + ".type", Message: "this type of rubric has no verifier: records stay pending",
			Hint: "give an object of type contains_any", Warning: true,
		})
		return
	}
	c.CheckObject(containsAny(), v)
}

// Rubric is a structured rubric, of type contains_any.
type Rubric struct {
	AcceptedAnswers []string `key:"accepted_answers"` // an answer has to contain or resemble one of these phrases
	RejectedAnswers []string `key:"rejected_answers"` // an answer must not contain or resemble one of these phrases
	MinTokenF1      float64  `key:"min_token_f1"`     // how much an answer has to resemble an accepted one, 0 to 1
}

// FreeResponseEval is what is needed to verify a free_response task.
type FreeResponseEval struct {
	Prompt string `key:"prompt"`
	Reason string // why there is no verifier for the rubric, so that the record stays pending; "" if Rubric is set
	// Prose is a rubric in prose, and Wrong are the wrong answers with which a model may judge
	// by it; there are none if it may not.
	Prose           hidden.Value[string]
	Wrong           hidden.Value[[]string]
	Rubric          hidden.Value[Rubric]
	ReferenceAnswer hidden.Value[string] `key:"reference_answer"` // "" if there is none
	Pattern         string               `key:"answer_pattern"`   // has one group; "" if there is none
}

// FreeResponseOf returns what is needed to verify a task of the family.
func FreeResponseOf(t *compiler.Task) FreeResponseEval {
	eval := compiler.EvalOf[FreeResponseEval](t)
	rubric := t.Eval().Get("rubric")
	switch {
	case rubric.Kind() == document.String:
		eval.Reason = "the rubric is prose"
		eval.Prose = hidden.Hide(rubric.Text())
		eval.Wrong = hidden.Hide(schema.Strings(t.Eval().Get("judge").Get("wrong_answers")))
	case !rubric.Get("type").Is(ContainsAny):
		eval.Reason = "the rubric's type has no verifier"
	default:
		structured := Rubric{MinTokenF1: 1}
		schema.Decode(rubric, &structured)
		eval.Rubric = hidden.Hide(structured)
	}
	return eval
}
