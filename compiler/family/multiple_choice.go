package family

import (
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/hidden"
	"github.com/securebench/sbench/compiler/schema"
)

// maxChoices is the number of labels, A to Z.
const maxChoices = 26

// MultipleChoice asks for one of several choices.
func MultipleChoice() *compiler.Family {
	answer := schema.Text("A label (\"B\"), the text of a choice, or the index of one, from 0.")
	answer.Number = &schema.Number{}
	answers := *answer
	answers.Doc = "The right answer: a label (\"B\"), the text of a choice, the index of one from 0, or a list of these if several are right."
	answers.Array = &schema.Array{Items: answer, Min: 1}
	return &compiler.Family{
		Name: "multiple_choice", CandidateKind: compiler.CandidateText,
		AnswerFormat: "End with a line `ANSWER: <letter>`.",
		Doc:          "Pick one of up to 26 choices, which are labelled A to Z in their order.",
		Input: &schema.Object{Fields: []schema.Field{
			schema.Required("question", schema.Text("The question.")),
			schema.Required("choices", &schema.Schema{
				Doc:   "The choices, labelled A to Z in this order.",
				Array: &schema.Array{Items: schema.Text("A choice."), Min: 1, Max: maxChoices},
			}),
		}},
		Eval:  &schema.Object{Fields: []schema.Field{schema.Required("answer", &answers), answerPattern()}},
		Check: checkMultipleChoice,
	}
}

// Answer is one accepted answer of a multiple_choice task.
type Answer struct {
	// Choice is the index of the choice, or -1 if Text is not the text of any: then only
	// Text is right.
	Choice int
	// Text is the choice's text, or the answer as the author wrote it.
	Text string
}

// MultipleChoiceEval is what is needed to verify a multiple_choice task.
type MultipleChoiceEval struct {
	Choices []string               `key:"choices"`
	Answers hidden.Value[[]Answer] // each is right
	Pattern string                 `key:"answer_pattern"` // has one group; "" if there is none
}

// MultipleChoiceOf returns what is needed to verify a task of the family.
func MultipleChoiceOf(t *compiler.Task) MultipleChoiceEval {
	eval := compiler.EvalOf[MultipleChoiceEval](t)
	var answers []Answer
	for _, v := range schema.OneOrMore(t.Eval().Get("answer")) {
		if answer, ok := parseAnswer(v, eval.Choices); ok {
			answers = append(answers, answer)
		}
	}
	eval.Answers = hidden.Hide(answers)
	return eval
}

// parseAnswer finds the choice that an answer names. It reports false for a number
// that is not the index of a choice.
func parseAnswer(v document.Value, choices []string) (Answer, bool) {
	if n, ok := v.Float64(); ok {
		i := int(min(max(n, -1), maxChoices))
		if float64(i) != n || i < 0 || i >= len(choices) {
			return Answer{}, false
		}
		return Answer{i, choices[i]}, true
	}
	text := strings.TrimSpace(v.Text())
	if label := strings.Trim(text, "()[].: "); len(label) == 1 {
		if i := int(label[0]|0x20) - 'a'; i >= 0 && i < len(choices) {
			return Answer{i, choices[i]}, true
		}
	}
	for i, choice := range choices {
		if normalAnswer(choice) == normalAnswer(text) {
			return Answer{i, choice}, true
		}
	}
	return Answer{-1, text}, true
}

// normalAnswer removes differences in case, in white space, and in quotes and
// punctuation at the ends.
func normalAnswer(s string) string {
	s = strings.Join(strings.Fields(strings.ToLower(s)), " ")
	return strings.Trim(s, " \t\r\n\"'`.,;:")
}

func checkMultipleChoice(c *schema.Checker, input, eval document.Value) {
	choices := schema.Strings(input.Get("choices"))
	seen := map[string]int{}
	for i, choice := range input.Get("choices").Items() {
		normal := normalAnswer(choice.Text())
		if first, ok := seen[normal]; ok {
			c.Warnf(choice, "an answer by text cannot tell them apart", "choice is the same as choice %d", first)
		} else {
			seen[normal] = i
		}
	}
	for _, v := range schema.OneOrMore(eval.Get("answer")) {
		switch got, ok := parseAnswer(v, choices); {
		case !ok:
			c.Errorf(v, "indexes count from 0", "answer is no index of the %d choices", len(choices))
		case got.Choice < 0:
			c.Warnf(v, "give a label, a choice's text or an index", "answer names none of the choices")
		}
	}
}
