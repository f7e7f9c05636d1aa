package family

import (
	"strconv"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/hidden"
	"github.com/securebench/sbench/compiler/schema"
)

// ShortAnswer asks for a word, a phrase or a number.
func ShortAnswer() *compiler.Family {
	return &compiler.Family{
		Name: "short_answer", CandidateKind: compiler.CandidateText,
		AnswerFormat: "End with a line `ANSWER: <answer>`.",
		Doc:          "Answer with a word, a phrase or a number.",
		Input: &schema.Object{Fields: []schema.Field{
			schema.Required("question", schema.Text("The question.")),
			schema.Optional("context", textOrObject("What the question is about.")),
			schema.Optional("answer_format", schema.Text("How the answer is to be written, as advice to the agent.")),
		}},
		Eval: &schema.Object{Fields: []schema.Field{
			schema.Required("accepted_answers", &schema.Schema{
				Doc: "The right answers, each of them enough.",
				Array: &schema.Array{Min: 1, Items: &schema.Schema{
					Doc: "An accepted answer.", String: &schema.String{NonBlank: true}, Number: &schema.Number{},
				}},
			}),
			schema.Optional("tolerance", &schema.Schema{
				Doc:    "How far a number may be from an accepted one.",
				Number: &schema.Number{Min: new(0.0)},
			}),
			answerPattern(),
		}},
		Check: checkShortAnswer,
		Words: true,
	}
}

// ShortAnswerEval is what is needed to verify a short_answer task.
type ShortAnswerEval struct {
	Question string `key:"question"`
	// Accepted are the accepted answers, with numbers as they were written.
	Accepted hidden.Value[[]string]
	// Tolerance is how far a number may be off; 0 if the author gave none.
	Tolerance hidden.Value[float64] `key:"tolerance"`
	Pattern   string                `key:"answer_pattern"` // has one group; "" if there is none
}

// ShortAnswerOf returns what is needed to verify a task of the family.
func ShortAnswerOf(t *compiler.Task) ShortAnswerEval {
	eval := compiler.EvalOf[ShortAnswerEval](t)
	var accepted []string
	for _, v := range t.Eval().Get("accepted_answers").Items() {
		accepted = append(accepted, v.Plain())
	}
	eval.Accepted = hidden.Hide(accepted)
	return eval
}

func checkShortAnswer(c *schema.Checker, _, eval document.Value) {
	tolerance := eval.Get("tolerance")
	if tolerance.Kind() != document.Number {
		return
	}
	for _, v := range eval.Get("accepted_answers").Items() {
		// A number may have commas between its digits.
		if _, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(v.Plain()), ",", ""), 64); err == nil {
			return
		}
	}
	c.Warnf(tolerance, "", "no accepted answer is a number that it could apply to")
}
