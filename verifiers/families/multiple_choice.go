package families

import (
	"context"
	"slices"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/text"
)

func multipleChoice() verifiers.Family {
	return verifiers.Family{
		Family: family.MultipleChoice(), Verify: verifiers.By(family.MultipleChoiceOf, verifyChoice),
		Reference: func(t *compiler.Task) (c candidate.Candidate) {
			if answers := family.MultipleChoiceOf(t).Answers.Reveal(); len(answers) > 0 {
				c.Text = answers[0].Text
				if answers[0].Choice >= 0 {
					c.Text = string(rune('A' + answers[0].Choice))
				}
			}
			return c
		},
	}
}

func verifyChoice(_ context.Context, _ verifiers.Engine, in verifiers.Input, eval family.MultipleChoiceEval) (verifiers.Verdict, error) {
	c := text.Choice{Choices: slices.Clone(eval.Choices), Labels: len(eval.Choices), Pattern: pattern(eval.Pattern)}
	for _, a := range eval.Answers.Reveal() {
		if a.Choice < 0 { // a text that is not one of the choices and has no label
			a.Choice = len(c.Choices)
			c.Choices = append(c.Choices, a.Text)
		}
		c.Right = append(c.Right, a.Choice)
	}
	return told(c.Judge(in.Candidate.Text)), nil
}
